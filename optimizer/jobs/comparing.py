"""Compare two plans."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from optimizer.errors import SpecError
from optimizer.jobs.requests import LoadChangeOptions, LoadScenario, PlanOptions, RequestError
from optimizer.plan import Plan
from optimizer.spec.system import System
from optimizer.studies.comparison.compare import compare
from optimizer.studies.comparison.document import Comparison


class CompareOptions(LoadChangeOptions):
    """A change of the load, and options that override the document's."""


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """Two plans to compare.

    With one side: its unlimited and limited plans, or its plan before and after a change of options or load.
    """

    first: System | Plan
    second: System | Plan | None = None
    load: LoadScenario = field(default_factory=LoadScenario)
    second_options: Mapping[str, object] | None = None
    """Optimizer options of the second side alone, by their Python names."""
    transition: bool = False
    """Whether the second system follows the first in time, so that the first plan is what runs."""
    labels: tuple[str, str] | None = None
    """Names of the sides."""
    solve: PlanOptions = field(default_factory=PlanOptions)
    backend: str = "highs"


def compare_plans(request: CompareRequest) -> Comparison:
    """Return two plans side by side.

    Raises:
        SpecError: there is nothing to compare or to solve, or an option is wrong.
        SolverError: the solver failed, or a plan does not pass verification.
    """
    _check_comparison(request)
    first, second, transition = request.first, request.second, request.transition
    if request.load.field is not None:
        assert isinstance(first, System)
        second, transition = request.load.applied_to(first), True
    return compare(
        first,
        second,
        second_options=request.second_options,
        transition=transition,
        labels=request.labels,
        backend=request.backend,
        **request.solve.given(),
    )


def _check_comparison(request: CompareRequest) -> None:
    """Reject contradictions, and options if nothing is solved with them."""
    first, second, load = request.first, request.second, request.load.field
    if second is not None:
        if load is not None:
            raise RequestError(load, "compares one system before and after; remove it, or {second}")
        if isinstance(second, Plan) and request.second_options is not None:
            raise RequestError("second_options", "{second} is a plan, and nothing is solved; remove it")
        if isinstance(first, Plan) and isinstance(second, Plan) and request.solve.given():
            raise SpecError("both sides are plans, and nothing is solved; remove the options for solving")
    elif isinstance(first, Plan):
        if load is not None:
            raise RequestError(load, "{first} is a plan, which has no loads; give its system")
        raise RequestError("first", "is a plan; name another to compare it with ({second})")
    elif load is None and request.second_options is None and request.solve.unlimited is not None:
        raise RequestError(
            "unlimited",
            "both plans, limited and unlimited, are compared; remove it, or add {second}, {second_options} "
            "or a change of the load",
        )
