"""Study that explains the best plan of a system."""

from typing import Annotated

from pydantic import Field

from optimizer.jobs.flag import Flag
from optimizer.jobs.requests import ExactOptions, ScaleOption
from optimizer.jobs.study import Study
from optimizer.render.explanation_sections import explanation_sections
from optimizer.spec.arguments import checks_documents
from optimizer.spec.system import System
from optimizer.studies.explanation.explain import explain
from optimizer.studies.explanation.explanation_document import Explanation
from optimizer.units import SECONDS


class ExplainOptions(ScaleOption, ExactOptions):
    """Options of an explanation, and optimizer options that override the document's."""

    time_limit: Annotated[float | None, Flag("S", SECONDS)] = Field(None, gt=0, le=1e6)
    """Time limit of the entire explanation [s]."""
    server: Annotated[str | None, Flag("S")] = None
    """Name of a server to explain in depth; default: all servers, and the accelerator types."""


@checks_documents
def explain_plan(system: System, options: ExplainOptions) -> Explanation:
    """Explain the best plan: the value of cards and targets, and changes that would serve the unserved load.

    Each question solves the system again, often more than a hundred times in all. A large system can need
    more time than the service allows for a request.

    Raises:
        SpecError: the server does not exist.
        SolverError: the solver failed.
    """
    return explain(system, options.server)


STUDY = Study(
    title="Explain a plan",
    options=ExplainOptions,
    answer=Explanation,
    run=explain_plan,
    sections=explanation_sections,
    table_names=("overview", "overload", "cards", "targets", "candidates", "rejected"),
)
