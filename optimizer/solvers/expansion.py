"""Capacity expansion: units to add to limits so that every server is served, and the value of one more unit.

The `Problem` must be feasible with enough added units. The model has one more variable for each item that can
be added. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass, replace

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.milp.model import MilpModel, RunResult, RunStatus, Session
from optimizer.solvers.compact import SessionFactory, highs_session
from optimizer.solvers.compact_model import formulate
from optimizer.solvers.deadline import Deadline, OutOfTimeError
from optimizer.solvers.formulation import Formulation
from optimizer.solvers.objectives import INTEGER_SLACK
from optimizer.solvers.problem import Problem, gap_target
from optimizer.tolerances import value_slack

AMPLE = 2.0**52
"""Amount of a limited item that suffices for every candidate."""


@dataclass(frozen=True, slots=True)
class Expansion:
    """Units to add to the limits so that every server is served."""

    added: IntArray
    """Number of units to add to each limited item, shape (R,)."""
    proved: bool
    """Whether both levels, value and number of units, are proved optimal."""


def least_expansion(
    problem: Problem,
    deadline: Deadline,
    *,
    units_first: bool,
    item: int | None = None,
    with_reserve: BoolArray | None = None,
    session: SessionFactory = highs_session,
) -> Expansion | None:
    """Return the units to add that minimise the transition cost, then their number (eq. 61), or vice versa.

    Args:
        problem: the planning problem; with `from_nothing`, the transition cost is the total cost.
        deadline: time at which the solver must end.
        units_first: whether to minimise the number of units before the transition cost (eq. 62).
        item: the only item of which units can be added; None: all.
        with_reserve: servers that must have the reserve they require, shape (S,); None: all.
        session: factory that loads a model into a solver.

    Returns:
        The expansion; None if no number of units serves every server.

    Raises:
        OutOfTimeError: the deadline passed before any solution was found.
        SolverError: the solver failed.
    """
    if not problem.to_serve.any():
        return Expansion(np.zeros(len(problem.limits), np.int64), proved=True)
    formulation, model, items = _expandable(problem)
    loaded = session(model)
    loaded.set_upper(formulation.unserved, 0.0)
    must = np.ones(len(problem.priority), np.bool_) if with_reserve is None else with_reserve
    loaded.set_upper(formulation.unreserved[must[formulation.unreserved_servers]], 0.0)
    n = len(formulation.value)
    if item is not None:
        loaded.set_upper(n + np.flatnonzero(items != item), 0.0)
    value, units = np.pad(formulation.value, (0, len(items))), np.repeat([0.0, 1.0], [n, len(items)])
    gap = gap_target(problem.options, len(formulation.columns))
    objectives = (units, value) if units_first else (value, units)
    first = _in_time(loaded, objectives[0], None, gap, deadline.left_s / 2)  # there is no initial solution
    if first.x is None:
        return None
    reached = float(objectives[0] @ first.x)
    most = np.round(reached) + INTEGER_SLACK if units_first else reached + value_slack(reached)
    loaded.add_limit(objectives[0], float(most))
    second = _in_time(loaded, objectives[1], first.x, gap, deadline.left_s)
    # Units are recomputed in integers.
    replicas = formulation.replicas(first.x if second.x is None else second.x, len(problem.table))
    return Expansion(_missing(problem, replicas), proved=first.outcome is second.outcome is RunStatus.optimal)


def _missing(problem: Problem, replicas: IntArray) -> IntArray:
    """Return the units of each addable item that a solution uses beyond the existing amount, shape (R,)."""
    limits = problem.limits
    over = np.maximum(limits.of_sources(-problem.left_by(replicas)), 0.0)
    return np.round(np.where(limits.addable & limits.own, over, 0.0)).astype(np.int64)


def fits_in_units(problem: Problem, deadline: Deadline) -> bool:
    """Return whether the existing units suffice to serve every server of a problem with its reserve.

    Raises:
        OutOfTimeError: the deadline passed before the solver decided it.
        SolverError: the solver failed.
    """
    formulation = formulate(problem)
    if not np.isin(np.flatnonzero(problem.to_serve), formulation.servers).all():
        return False
    if not len(formulation.columns):
        return True
    loaded = highs_session(formulation.model)
    loaded.set_upper(formulation.unserved, 0.0)
    loaded.set_upper(formulation.unreserved, 0.0)
    return _in_time(loaded, np.zeros(len(formulation.value)), None, 0.0, deadline.left_s).x is not None


def unit_prices(problem: Problem, deadline: Deadline) -> FloatArray | None:
    """Return the shadow price of each limited item [cents/h per unit], shape (R,) (eq. 60).

    These are the dual values of the limits in the relaxation of the value level with every server served;
    shape (R,). All candidates are included, even those that need more cards than exist.

    Returns:
        The prices; None if the relaxation does not serve every server.

    Raises:
        OutOfTimeError: the deadline passed.
        SolverError: the solver failed.
    """
    formulation, model, items = _expandable(problem)
    prices = np.zeros(len(problem.limits))
    if not len(formulation.columns):
        return prices
    relaxation = highs_session(model)
    relaxation.set_upper(formulation.unserved, 0.0)
    relaxation.set_upper(len(formulation.value) + np.arange(len(items)), 0.0)
    if deadline.passed:
        raise OutOfTimeError
    result = relaxation.relax(np.pad(formulation.value, (0, len(items))), deadline.left_s)
    if result.outcome is RunStatus.time_limit:
        raise OutOfTimeError
    if result.row_price is None or result.outcome is not RunStatus.optimal:
        return None
    rows = formulation.limits
    own_and_followers = np.maximum(-result.row_price[rows.row] / rows.divisor, 0.0)
    np.add.at(prices, problem.limits.source[rows.limit], own_and_followers)
    return prices


# --- the model in which units may be added ---------------------------------------------------------------


def _expandable(problem: Problem) -> tuple[Formulation, MilpModel, IntArray]:
    """Return the formulation with ample units, and a model in which units can be added to the existing ones.

    The last variables of the model are the added units. The item of each of these variables is also returned.
    """
    amount, addable = problem.limits.amount, problem.limits.addable
    formulation = formulate(problem.with_amounts(np.where(addable, AMPLE, amount)))
    rows = formulation.limits
    row_upper = formulation.model.row_upper.copy()
    more = np.flatnonzero(addable[rows.limit])
    row_upper[rows.row[more]] = amount[rows.limit[more]] / rows.divisor[more]
    model = replace(formulation.model, row_upper=row_upper)
    items, variable = np.unique(problem.limits.source[rows.limit[more]], return_inverse=True)
    model = model.widened(np.full(len(items), np.inf), (rows.row[more], variable, -1 / rows.divisor[more]))
    return formulation, model, items


def _in_time(
    session: Session, objective: FloatArray, start: FloatArray | None, gap: float, time_limit_s: float
) -> RunResult:
    """Minimise an objective from an initial solution, or without one until any solution is found.

    Raises:
        OutOfTimeError: no solution was found in time.
    """
    stopped = RunResult(RunStatus.time_limit, None, -np.inf, 0.0)
    result = session.minimise(objective, start, gap, time_limit_s) if time_limit_s > 0 else stopped
    if start is None and result.x is None and result.outcome is RunStatus.time_limit:
        raise OutOfTimeError
    return result
