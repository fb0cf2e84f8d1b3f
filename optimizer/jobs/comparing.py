"""Compare two plans."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from optimizer.errors import SpecError
from optimizer.jobs.requests import LoadChange, RequestError, SolveOptions
from optimizer.plan import Plan
from optimizer.spec.system import System
from optimizer.studies.comparison.compare import compare
from optimizer.studies.comparison.document import Comparison


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """What to compare: a system with itself, unlimited, under other options or another load; or two sides."""

    first: System | Plan
    second: System | Plan | None = None
    load: LoadChange = field(default_factory=LoadChange)
    second_options: Mapping[str, object] | None = None
    """Optimizer options of the second side alone, by their Python names."""
    transition: bool = False
    """Whether the second system follows the first in time: what the first plan says is then what runs."""
    labels: tuple[str, str] | None = None
    """What to call the sides."""
    solve: SolveOptions = field(default_factory=SolveOptions)
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
    """Refuse what contradicts itself, and options where nothing is solved with them."""
    first, second, load = request.first, request.second, request.load.field
    if second is not None:
        if load is not None:
            raise RequestError(load, "compares one system before and after; remove it, or {second}")
        if isinstance(second, Plan) and request.second_options is not None:
            raise RequestError("second_options", "{second} holds a plan, and nothing is solved; remove it")
        if isinstance(first, Plan) and isinstance(second, Plan) and request.solve.given():
            raise SpecError("both sides are plans, and nothing is solved; remove the options for solving")
    elif isinstance(first, Plan):
        if load is not None:
            raise RequestError(load, "{first} holds a plan, which has no loads; give its system")
        raise RequestError("first", "holds a plan; name what to compare it with ({second})")
    elif load is None and request.second_options is None and request.solve.unlimited is not None:
        raise RequestError(
            "unlimited",
            "both plans, limited and unlimited, are compared; remove it, or add {second}, {second_options} "
            "or a change of the load",
        )
