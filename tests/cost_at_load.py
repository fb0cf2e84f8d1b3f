"""The study that `test_a_new_study` adds: the cost of the best plan at a multiple of the load."""

from typing import Annotated

from pydantic import Field

from optimizer.documents import Document
from optimizer.jobs.flag import Flag
from optimizer.jobs.requests import PlanOptions
from optimizer.jobs.study import Study
from optimizer.pipeline import solve
from optimizer.section import Column, Section, table
from optimizer.spec.arguments import checks_documents
from optimizer.spec.system import System
from optimizer.studies.load_changes import scale_loads


class CostAtLoadOptions(PlanOptions):
    """Factor on the load, and options that override the document's."""

    factor: Annotated[float, Flag("X")] = Field(2.0, gt=0, le=100)
    """Multiply every arrival rate by this factor."""


class CostAtLoad(Document):
    """Cost of a system at a multiple of its load."""

    factor: float
    """Factor on every arrival rate."""
    cost_cents_per_h: float = Field(alias="cost")
    """Cost of the best plan [cents/h]."""


@checks_documents
def cost_at_load(system: System, options: CostAtLoadOptions) -> CostAtLoad:
    """Return the cost of the best plan at a multiple of the load.

    Raises:
        SolverError: the solver failed.
    """
    plan = solve(scale_loads(system, options.factor))
    return CostAtLoad(factor=options.factor, cost_cents_per_h=plan.total_cost_cents_per_h)


_COLUMNS = (Column("factor", "factor"), Column("cost", "cost_cents_per_h", "cents/h", ",.2f"))


def _sections(answer: CostAtLoad) -> list[Section]:
    return [table("Cost", _COLUMNS, [answer])]


STUDY = Study(
    title="Price a load",
    options=CostAtLoadOptions,
    answer=CostAtLoad,
    run=cost_at_load,
    sections=_sections,
    table_names=("cost",),
)
