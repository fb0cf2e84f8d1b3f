"""All figures by name, as offered by the command line and the service.

`make_figure` returns the figure of a system, given the names of the figure, the server and the accelerator.
If there is nothing to show, the figure has a note with the reason.
"""

from collections.abc import Callable

from optimizer.errors import SpecError
from optimizer.kinds.batch_servers.kind import BatchServers
from optimizer.kinds.kind import Kind
from optimizer.kinds.token_batching import TokenBatching
from optimizer.pipeline import solve
from optimizer.schema.messages import did_you_mean, known_name
from optimizer.spec.arguments import checks_documents
from optimizer.spec.system import System
from optimizer.studies.comparison.compare import compare
from optimizer.studies.figures.any_kind import figures_by_batch_limit, figures_by_load
from optimizer.studies.figures.curves import batch_figure, latency_figure
from optimizer.studies.figures.figure_document import Figure
from optimizer.studies.figures.placed import EmptyFigureError, Placed, place
from optimizer.studies.figures.plans import PANELS, WHOLE_PLAN, PlannedSystem, plan_figure
from optimizer.studies.figures.prices import cost_figure
from optimizer.studies.figures.rejections import batch_latency_figure
from optimizer.studies.figures.simulated import batch_distribution_figure, distribution_figure

Picture = Callable[[Placed], Figure]
PICTURES: dict[type[Kind], dict[str, Picture]] = {
    TokenBatching: {
        "batch": batch_figure,
        "latency": latency_figure,
        "distribution": distribution_figure,
    },
    BatchServers: {
        "batch": figures_by_batch_limit,
        "latency": batch_latency_figure,
        "distribution": batch_distribution_figure,
    },
}
"""Figures of one server on one accelerator, by kind of replica and by name."""
OF_ANY_KIND: dict[str, Picture] = {"batch": figures_by_batch_limit, "latency": figures_by_load}
"""Figures of one server whose kind of replica has no specific figures, by name."""
PLAN_FIGURES = ("plan", *PANELS)
"""Names of the figures that show an entire plan."""
FIGURES = (
    *PLAN_FIGURES,
    *dict.fromkeys(name for some in PICTURES.values() for name in some),
    "cost",
)


@checks_documents
def make_figure(
    system: System,
    kind: str = "plan",
    *,
    server: str | None = None,
    accelerator: str | None = None,
    before: System | None = None,
    backend: str = "highs",
) -> Figure:
    """Return a figure of a system.

    Args:
        kind: name of the figure, one of `FIGURES`.
        server: server, for a figure that shows one; optional if there is only one.
        accelerator: accelerator, for a figure that shows one server; default: the plan's, or all.
        backend: MILP solver: ``highs``, or the name of a solver that PuLP supports (``CBC``).
        before: the system before a load change, for comparison; for a figure that shows a plan.

    Raises:
        SpecError: a figure, a server or an accelerator does not exist, or a name is missing.
        SolverError: a plan was needed, and the solver failed.
    """
    if kind not in FIGURES:
        hint = did_you_mean(str(kind), FIGURES)
        raise SpecError(f"kind: {kind!r} does not exist{hint}; there are {', '.join(FIGURES)}")
    if kind in PLAN_FIGURES:
        return _plan_figure(system, before, WHOLE_PLAN if kind == "plan" else (kind,), backend)
    name = known_name(server, system.servers, "server")
    try:
        if kind == "cost":
            return cost_figure(system, name, accelerator)
        return _replica_figure(kind, place(system, name, accelerator, backend))
    except EmptyFigureError as nothing:
        return Figure(title=f"{kind[0].upper()}{kind[1:]}: {name}", note=f"Nothing to show: {nothing}")


def _replica_figure(name: str, placed: Placed) -> Figure:
    """Return a figure of a replica, by its name and the kind of the replica."""
    picture = _pictures(placed.kind).get(name)
    if picture is None:
        raise EmptyFigureError(_none_of(placed.kind, placed.server))
    return picture(placed)


def _pictures(kind: Kind) -> dict[str, Picture]:
    return PICTURES.get(type(kind), OF_ANY_KIND)


def _none_of(kind: Kind, server: str) -> str:
    return f"{server} is {kind.words.replica}; there are {', '.join((*_pictures(kind), 'cost'))}"


def _plan_figure(system: System, before: System | None, panels: tuple[str, ...], backend: str) -> Figure:
    """Return a figure of a plan; if `before` is given, its plan is the running one before a load change."""
    if before is None:
        return plan_figure(PlannedSystem.of(system, solve(system, backend=backend)), None, panels)
    comparison = compare(before, system, transition=True, backend=backend)
    first = PlannedSystem.of(before, comparison.first.plan)
    return plan_figure(PlannedSystem.of(system, comparison.second.plan), first, panels)
