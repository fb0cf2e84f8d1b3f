"""Compares two plans: limited and unlimited, of two systems or option sets, or around a load change.

Systems are solved; plans are compared as they are.
"""

from collections.abc import Iterable, Iterator, Mapping

from optimizer.errors import SpecError
from optimizer.pipeline import solve
from optimizer.plan import Plan
from optimizer.spec.arguments import checks_documents
from optimizer.spec.changes import with_values
from optimizer.spec.system import System
from optimizer.studies.comparison.comparison_document import Comparison, ComparisonType, Side
from optimizer.studies.comparison.rows import (
    Case,
    alike,
    class_model_rows,
    class_rows,
    cost_rows,
    figures_of,
    have_same_servers,
    priority_rows,
    reserves_alike,
    row_of,
    serve_the_same,
    server_rows,
    type_rows,
)
from optimizer.tolerances import SAME

LABELS: Mapping[ComparisonType, tuple[str, str]] = {
    "scarcity": ("unlimited", "limited"),
    "options": ("as given", "changed"),
    "load_change": ("before", "after"),
    "plans": ("first", "second"),
}


@checks_documents
def compare(
    first: System | Plan,
    second: System | Plan | None = None,
    *,
    second_options: Mapping[str, object] | None = None,
    transition: bool = False,
    labels: tuple[str, str] | None = None,
    backend: str = "highs",
    **options: object,
) -> Comparison:
    """Compare two plans; if only a system is given, compare its unlimited plan with its limited one.

    Args:
        first: a system to solve, or a plan.
        second: the other system or plan; None selects the first system.
        second_options: optimizer options of the second plan only, by Python name, and other values by the
            names that sweeps have: ``{"count:H100": 12}``.
        transition: whether the second system follows the first in time, so that its current allocations are
            those of the first plan.
        labels: labels of the plans.
        backend: MILP solver: ``highs``, or the name of a solver that PuLP supports (``CBC``).
        options: optimizer options of every plan that is solved, by Python name.

    Raises:
        SpecError: there is nothing to compare or to solve, or an option is invalid.
        SolverError: the solver failed, or a plan does not pass verification.
    """
    if second is None:
        if isinstance(first, Plan):
            raise SpecError("a plan alone cannot be compared; name a second plan or system")
        if second_options is None:
            first = first.with_options(unlimited=True)
            second_options = {"unlimited": False}
        second = first
        kind: ComparisonType = "options"
    else:
        kind = "plans"
    one = _solved(first, options, backend)
    if transition:
        second, kind = _following(one, second), "load_change"
    two = _solved(second, options | dict(second_options or {}), backend)
    if kind == "options" and _only_limits_differ(one, two):
        kind = "scarcity"
    return _comparison(kind, one, two, labels or LABELS[kind])


def _solved(source: System | Plan, options: Mapping[str, object], backend: str) -> Case:
    if isinstance(source, Plan):
        return Case.of(source, None)
    system = with_values(source, options)
    return Case.of(solve(system, backend=backend), system)


def _following(before: Case, after: System | Plan) -> System:
    """Return a copy of a system whose current allocations are those of the plan of a previous case."""
    if isinstance(after, Plan):
        raise SpecError("an existing plan cannot start from another plan; give the system after the change")
    used = {pool.accelerator for pools in before.plan.allocations.values() for pool in pools}
    gone = sorted(used - after.accelerators.keys())
    if gone:
        raise SpecError(f"accelerator {gone[0]!r} of the first plan does not exist in the second system")
    return before.plan.applied_to(after)


def _only_limits_differ(one: Case, two: Case) -> bool:
    """Return whether the plans differ only in that one has limits on cards and the other has none."""
    if one.system is None or two.system is None:
        return False
    limited = one.system.options.model_copy(update={"unlimited": False})
    return one.system.options.unlimited and two.system.options == limited


# --- from two cases to a comparison ---------------------------------------------------------------------


def _comparison(kind: ComparisonType, one: Case, two: Case, labels: tuple[str, str]) -> Comparison:
    _check_currencies(one.plan.currency, two.plan.currency, labels)
    one, two = one.with_classes_of(two), two.with_classes_of(one)
    servers = server_rows(one, two)
    total = row_of(figures_of(one.table), figures_of(two.table))
    cost = 0.0 if total.first is None else total.first.cost_cents_per_h
    difference = total.difference.cost_cents_per_h
    equal, alike_reserves = serve_the_same(one, two), reserves_alike(one, two)
    return Comparison(
        kind=kind,
        same=equal
        and alike_reserves
        and all(alike(row.first, row.second) for row in servers)
        and abs(difference or 0.0) <= SAME * max(cost, 1.0),
        equal_service=equal,
        equal_reserves=alike_reserves,
        first=_side(one, labels[0]),
        second=_side(two, labels[1]),
        total=total,
        relative_cost_difference=difference / cost if cost else None,
        transition_value_cents_per_h=two.plan.objective if kind == "load_change" else None,
        priorities=priority_rows(one, two),
        classes=class_rows(one, two),
        class_models=class_model_rows(one, two),
        servers=servers,
        types=type_rows(one, two),
        costs=cost_rows(one, two),
        notes=tuple(_notes(kind, one, two, labels)),
    )


def _check_currencies(one: str | None, two: str | None, labels: tuple[str, str]) -> None:
    """Check that the costs of both plans are in one currency; plain numbers can be compared with any.

    Raises:
        SpecError: the plans have different currencies.
    """
    if one is not None and two is not None and one != two:
        raise SpecError(f"{labels[0]} has costs in {one}, {labels[1]} in {two}; give both in one currency")


def _side(case: Case, label: str) -> Side:
    return Side(label=label, options=None if case.system is None else case.system.options, plan=case.plan)


# --- what to know ---------------------------------------------------------------------------------------


def _notes(kind: ComparisonType, one: Case, two: Case, labels: tuple[str, str]) -> Iterable[str]:
    """Yield notes on what affects the cost difference, other than the compared change."""
    yield from _service_notes(one, two)
    for case, label in zip((one, two), labels, strict=True):
        if case.system is None:
            yield f"{label} is a finished plan, taken as it is: it can be verified only with its system"
        elif case.plan.status == "heuristic":
            yield f"{label} was found by a heuristic, without proof"
        elif case.plan.status == "feasible":
            yield f"the solver stopped early on {label}; a better plan might exist"
        elif case.plan.gap:
            yield f"{label} is proved to within {case.plan.gap:.2%} of the least value, not to the last cent"
    runs = one.system is not None and any(server.current.is_running for server in one.system.servers.values())
    if kind == "scarcity" and runs:
        yield "both plans take into account what runs now: they minimise the transition value, not the cost"


def _service_notes(one: Case, two: Case) -> Iterator[str]:
    """Yield the reason why the costs are not for the same service, if there is one."""
    if not have_same_servers(one, two):
        yield "the two sides have different servers, so their costs are not for the same service"
    elif not serve_the_same(one, two):
        yield "not every server is served to the same fraction, so the costs are not for the same service"
    elif not reserves_alike(one, two):
        yield "not every server has the same reserve, so the costs are not for the same service"
