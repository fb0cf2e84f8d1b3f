"""Job that compares two plans."""

from collections.abc import Mapping

from optimizer.errors import SpecError
from optimizer.jobs.requests import LoadChangeOptions, RequestError
from optimizer.plan import Plan
from optimizer.spec.arguments import checks_documents
from optimizer.spec.system import System
from optimizer.studies.comparison.compare import compare
from optimizer.studies.comparison.comparison_document import Comparison


class CompareOptions(LoadChangeOptions):
    """Options of a comparison: a load change, and optimizer options that override the document's."""


@checks_documents
def compare_plans(
    first: System | Plan,
    second: System | Plan | None,
    options: CompareOptions,
    *,
    second_options: Mapping[str, object] | None = None,
    transition: bool = False,
    labels: tuple[str, str] | None = None,
) -> Comparison:
    """Compare two plans; for one system, its plans without and with limits, or before and after a change.

    Args:
        first: a system to plan, or a plan.
        second: the other side; None selects the first system with other options or another load.
        options: a change of the load, and optimizer options of both sides.
        second_options: optimizer options of only the second side, by Python name, and other values by their
            names in sweeps.
        transition: whether the second system follows the first in time, so that the first plan is running.
        labels: names of the sides.

    Raises:
        SpecError: there is nothing to compare or to solve, or an option is wrong.
        SolverError: the solver failed, or a plan does not pass verification.
    """
    _check_sides(first, second, options, second_options)
    first = options.with_given(first) if isinstance(first, System) else first
    second = options.with_given(second) if isinstance(second, System) else second
    if options.load_changes:
        assert isinstance(first, System)
        second, transition = options.with_changed_load(first), True
    return compare(
        first,
        second,
        second_options=second_options,
        transition=transition,
        labels=labels,
        backend=options.backend,
    )


def _check_sides(
    first: System | Plan,
    second: System | Plan | None,
    options: CompareOptions,
    second_options: Mapping[str, object] | None,
) -> None:
    """Reject contradictory arguments, and options that have no effect because nothing is solved with them."""
    load = next(iter(options.load_changes), None)
    if second is not None:
        if load is not None:
            raise RequestError(load, "compares one system before and after; remove it, or {second}")
        if isinstance(second, Plan) and second_options is not None:
            raise RequestError("second_options", "{second} is a plan, so nothing is solved; remove it")
        given = options.given() or options.spare is not None
        if isinstance(first, Plan) and isinstance(second, Plan) and given:
            raise SpecError("both sides are plans, so nothing is solved; remove the options for solving")
    elif isinstance(first, Plan):
        if load is not None:
            raise RequestError(load, "{first} is a plan, which has no loads; give its system")
        raise RequestError("first", "is a plan; name another to compare it with ({second})")
    elif load is None and second_options is None and options.unlimited is not None:
        raise RequestError(
            "unlimited",
            "both plans, limited and unlimited, are compared; remove it, or add {second}, {second_options} "
            "or a change of the load",
        )
