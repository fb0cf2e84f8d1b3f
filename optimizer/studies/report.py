"""A report as a document: a plan with its metrics and reasons, and the cost of scarcity and of growth.

`optimizer.render.pages` renders a `Report` as HTML, Markdown or CSV.
"""

from pydantic import Field

from optimizer.documents import OutputDocument, is_none
from optimizer.parallel import Progress, ignore_progress
from optimizer.plan import Plan
from optimizer.simulation.replicas import Effort
from optimizer.spec.arguments import checks_documents
from optimizer.spec.system import System
from optimizer.studies.comparison.compare import compare
from optimizer.studies.comparison.comparison_document import Comparison
from optimizer.studies.estimates import EstimatePrice, price_of_estimates
from optimizer.studies.explanation.explain import explain
from optimizer.studies.explanation.explanation_document import Explanation
from optimizer.studies.overload import Overload, find_overload
from optimizer.studies.overview import Overview, describe
from optimizer.studies.simulation.plans import simulate_pools
from optimizer.studies.simulation.simulation_document import Simulation
from optimizer.studies.sweep.checkpoint import Checkpoint
from optimizer.studies.sweep.parameters import read_variations
from optimizer.studies.sweep.sweep import sweep
from optimizer.studies.sweep.sweep_document import Sweep

GROWTH = ("load=1,1.25,1.5,1.75,2",)
"""Sweep of factors on all loads, for which a report shows the plans."""
GROWTH_LIMIT_S = 10.0
"""Time limit for the plan at each load factor [s]."""


class Report(OutputDocument):
    """A plan with the studies that a report shows."""

    overview: Overview
    """The plan, pool by pool and type by type."""
    comparison: Comparison
    """The unlimited and the limited plan; the reported plan is one of the two."""
    overload: Overload | None = Field(None, exclude_if=is_none)
    """Options that serve more load, if cards remain while load is unserved; otherwise absent."""
    estimates: EstimatePrice | None = Field(None, exclude_if=is_none)
    """Cost of not measuring estimated token times; absent unless the plan uses the slow end of estimates."""
    growth: Sweep | None = Field(None, exclude_if=is_none)
    """Plans for larger loads; absent in brief reports, and without load."""
    explanation: Explanation | None = Field(None, exclude_if=is_none)
    """Reasons for the plan, and the value of cards and targets; absent in brief reports, and for greedy
    plans.
    """
    simulation: Simulation | None = Field(None, exclude_if=is_none)
    """Simulation of the plan's pools; absent if it was not requested."""

    @property
    def plan(self) -> Plan:
        """The reported plan."""
        return self.overview.plan


@checks_documents
def make_report(
    system: System,
    *,
    brief: bool = False,
    effort: Effort | None = None,
    progress: Progress = ignore_progress,
    backend: str = "highs",
    **options: object,
) -> Report:
    """Solve a system with and without limits, and return the report.

    Args:
        system: the system to plan.
        brief: whether to leave out growth and reasons, which plan the system again a hundred times.
        effort: length and seed of the simulation; None for no simulation.
        progress: called after each simulated pool.
        backend: MILP solver: ``highs``, or the name of a solver that PuLP supports (``CBC``).
        options: optimizer options by their Python names (``unlimited=True``), which override the document's.

    Raises:
        SpecError: an option does not exist or its value is out of range.
        SolverError: the solver failed, or a plan does not pass verification.
        AnalysisError: a latency model to simulate has iterations that take no time.
    """
    system = system.with_options(**options)
    comparison = compare(system, backend=backend)
    plan = (comparison.first if system.options.unlimited else comparison.second).plan
    reasons = not brief and system.options.milp_solver
    return Report(
        overview=describe(system, plan),
        comparison=comparison,
        overload=find_overload(system, plan),
        estimates=price_of_estimates(system, plan),
        growth=None if brief else _growth(system),
        explanation=explain(system) if reasons else None,
        simulation=None if effort is None else simulate_pools(system, plan, effort, progress),
    )


def _growth(system: System) -> Sweep | None:
    """Return the plans for larger loads; None if there is no load."""
    if not any(server.current.load.arrival_rate_rpm for server in system.servers.values()):
        return None
    quick = system.with_options(time_limit_s=min(GROWTH_LIMIT_S, system.options.time_limit_s))
    return sweep(quick, read_variations(quick, GROWTH), Checkpoint())
