"""More units than exist: which to add so that every server is served, and what a unit is worth.

Takes a `Problem` with capacities of which every server can be served if there are enough units, and writes
it as a model in which units may be added: one more variable per accelerator type. Equation numbers refer to
``docs/math.md``.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.solvers.compact import SessionFactory
from optimizer.solvers.deadline import Deadline, OutOfTimeError
from optimizer.solvers.formulation import Formulation, formulate
from optimizer.solvers.levels import value_slack
from optimizer.solvers.model import MilpModel, Outcome, RelaxingSession, RunResult, Session
from optimizer.solvers.objectives import INTEGER_SLACK
from optimizer.solvers.problem import Problem, gap_target, units_used

AMPLE_UNITS = 2.0**52
"""Units of each type with which no candidate is left out for want of them."""


@dataclass(frozen=True, slots=True)
class Expansion:
    """Units to add."""

    added: IntArray
    """Units by accelerator type, shape (T,)."""
    proved: bool
    """Whether no other is better, at either level."""


def cheapest_expansion(
    problem: Problem, session: SessionFactory, deadline: Deadline | None = None
) -> Expansion | None:
    """Return the units with which the value is least, and the fewest of them (eq. 61).

    Of a problem `from_nothing` they are those with which the total cost is least. Without a deadline the
    answer is due after the time limit of the options; so below.

    Returns:
        None if no units serve every server.

    Raises:
        OutOfTimeError: the deadline passed before any were found.
        SolverError: the solver failed.
    """
    return _minimise_in_order(problem, session, deadline, units_first=False)


def smallest_expansion(
    problem: Problem, session: SessionFactory, kind: int | None = None, deadline: Deadline | None = None
) -> Expansion | None:
    """Return the fewest units, of one type if it is given, and those with the least value (eq. 62).

    Returns:
        None if units of that type do not suffice.

    Raises:
        OutOfTimeError: the deadline passed before any were found.
        SolverError: the solver failed.
    """
    return _minimise_in_order(problem, session, deadline, units_first=True, kind=kind)


def fits(problem: Problem, session: SessionFactory, deadline: Deadline | None = None) -> bool:
    """Return whether every server of a problem can be served with the units that exist.

    Raises:
        OutOfTimeError: the deadline passed before the solver knew.
        SolverError: the solver failed.
    """
    formulation = formulate(problem)
    if not np.isin(np.flatnonzero(problem.to_serve), formulation.servers).all():
        return False
    if not len(formulation.columns):
        return True
    loaded = session(formulation.model)
    loaded.set_upper(formulation.unserved, 0.0)
    due, nothing = deadline or Deadline.after(problem.options.time_limit_s), np.zeros(len(formulation.value))
    return _in_time(loaded, nothing, None, 0.0, due.left_s).x is not None


def unit_prices(
    problem: Problem, session: Callable[[MilpModel], RelaxingSession], deadline: Deadline | None = None
) -> FloatArray | None:
    """Return what a small part of a unit more of each type would save, per unit [cents/h] (eq. 60).

    These are the dual values of the capacities in the relaxation of the value level with every server
    served, over all candidates, including those that need more units than exist; shape (T,).

    Returns:
        None if the relaxation serves not every server.

    Raises:
        OutOfTimeError: the deadline passed.
        SolverError: the solver failed.
    """
    formulation, model = _expandable(problem)
    prices = np.zeros(len(_capacity(problem)))
    if not len(formulation.columns):
        return prices
    relaxation = session(model)
    relaxation.set_upper(formulation.unserved, 0.0)
    relaxation.set_upper(np.arange(len(formulation.value), len(model.lower)), 0.0)
    due = deadline or Deadline.after(problem.options.time_limit_s)
    if due.passed:
        raise OutOfTimeError
    found = relaxation.relax(_padded(formulation.value, model), due.left_s)
    if found.outcome is Outcome.time_limit:
        raise OutOfTimeError
    if found.row_price is None or found.outcome is not Outcome.optimal:
        return None
    rows = formulation.capacity
    prices[rows.kind] = np.maximum(-found.row_price[rows.row] / rows.divisor, 0.0)
    return prices


# --- the model in which units may be added ---------------------------------------------------------------


def _capacity(problem: Problem) -> FloatArray:
    if problem.capacity is None:
        raise ValueError("units can be added to a problem with capacities only")
    return problem.capacity


def _expandable(problem: Problem) -> tuple[Formulation, MilpModel]:
    """Return the formulation as if there were ample units, and its model with units added to what exists.

    The last variables are the units added, one for each type that has a capacity row.
    """
    capacity = _capacity(problem)
    ample = np.full(len(capacity), AMPLE_UNITS)
    formulation = formulate(replace(problem, capacity=ample))
    rows = formulation.capacity
    row_upper = formulation.model.row_upper.copy()
    row_upper[rows.row] = capacity[rows.kind] / rows.divisor
    model = replace(formulation.model, row_upper=row_upper)
    return formulation, model.widened(np.full(len(rows.row), np.inf), rows.row, -1 / rows.divisor)


def _in_time(
    session: Session, objective: FloatArray, start: FloatArray | None, gap: float, time_limit_s: float
) -> RunResult:
    """Minimise from a start, or else until there is an answer of any kind."""
    stopped = RunResult(Outcome.time_limit, None, -np.inf, 0.0)
    result = session.minimise(objective, start, gap, time_limit_s) if time_limit_s > 0 else stopped
    if start is None and result.x is None and result.outcome is Outcome.time_limit:
        raise OutOfTimeError
    return result


def _padded(objective: FloatArray, model: MilpModel) -> FloatArray:
    return np.concatenate([objective, np.zeros(len(model.lower) - len(objective))])


def _minimise_in_order(
    problem: Problem,
    session: SessionFactory,
    deadline: Deadline | None,
    *,
    units_first: bool,
    kind: int | None = None,
) -> Expansion | None:
    """Minimise value and units added, or units and then the value, with every server served.

    The first level, which has no start, may use half of the time. Units of one type alone may be added.
    """
    capacity = _capacity(problem)
    if not problem.to_serve.any():
        return Expansion(np.zeros(len(capacity), np.int64), proved=True)
    formulation, model = _expandable(problem)
    loaded, deadline = session(model), deadline or Deadline.after(problem.options.time_limit_s)
    loaded.set_upper(formulation.unserved, 0.0)
    added = np.arange(len(formulation.value), len(model.lower))
    if kind is not None:
        loaded.set_upper(added[formulation.capacity.kind != kind], 0.0)
    value, units = _padded(formulation.value, model), np.zeros(len(model.lower))
    units[added] = 1.0
    gap = gap_target(problem.options, len(formulation.columns))
    objectives = (units, value) if units_first else (value, units)
    first = _in_time(loaded, objectives[0], None, gap, deadline.left_s / 2)
    if first.x is None:
        return None
    reached = float(objectives[0] @ first.x)
    most = np.round(reached) + INTEGER_SLACK if units_first else reached + value_slack(reached)
    loaded.add_limit(objectives[0], float(most))
    second = _in_time(loaded, objectives[1], first.x, gap, deadline.left_s)
    # Units are counted again in integers.
    replicas = formulation.replicas(first.x if second.x is None else second.x, len(problem.table))
    more = np.maximum(units_used(problem, replicas, len(capacity)) - capacity, 0).astype(np.int64)
    return Expansion(more, proved=first.outcome is second.outcome is Outcome.optimal)
