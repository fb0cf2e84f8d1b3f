"""Repairs that would serve every server with its reserve: cards to add, or a target to relax."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from optimizer.arrays import BoolArray, FloatArray
from optimizer.candidates import Candidates, Rejection
from optimizer.candidates.arrays import ALL_MEMBERS
from optimizer.pipeline import solve_problem
from optimizer.plan import Plan
from optimizer.quantities import quantity
from optimizer.queueing.roots import smallest_integer
from optimizer.solvers.deadline import Deadline, OutOfTimeError
from optimizer.solvers.expansion import Expansion, fits_in_units, least_expansion
from optimizer.solvers.levels import reserves_held, served_in_full
from optimizer.solvers.limit_rows import LimitRows
from optimizer.solvers.problem import Problem, build_problem
from optimizer.solvers.solution import Status
from optimizer.spec.streams import members_of
from optimizer.spec.system import System
from optimizer.studies.explanation.explanation_document import (
    Beyond,
    RepairOptions,
    TargetRelaxation,
    UnitRepair,
)
from optimizer.studies.explanation.outcome import PlanOutcome
from optimizer.studies.explanation.resolving import QuestionBudget, effect, solved, with_more
from optimizer.studies.explanation.targets import Target, relaxed, target_ms, target_words, targets_of_servers
from optimizer.studies.explanation.units import one_of
from optimizer.tolerances import SAME

MIN_SEARCHED_MS = 1e-6
"""Smallest value from which a search for looser targets starts [ms]."""
MAX_DOUBLINGS = 70
"""Number of doublings after which a target is as good as removed."""


def find_repair(
    candidates: Candidates, plan: Plan, budget: QuestionBudget | None = None
) -> RepairOptions | None:
    """Return the changes that would serve every server in full with its reserve; None if the plan does so.

    Without a budget, the time limit of the options applies.

    Raises:
        SolverError: the solver failed.
    """
    if plan.complete and not plan.lacks_reserve:
        return None
    budget = budget or QuestionBudget(Deadline.after(candidates.system.options.time_limit_s))
    problem = _with_servable_members(build_problem(candidates))
    omitted = _omitted_members(problem)
    short, lacking = _short(candidates, plan, problem, {*omitted})
    servable, required, reservable = _attainable(problem, ~short)
    by_units = _Goal(problem.of_servers(problem.with_partners(servable)), reservable)
    before = len(budget.unanswered)
    by_time = budget.part(0.5)
    can_help = (short & servable).any() or (lacking & reservable).any()
    units = _of_units(candidates, plan, by_units, by_time) if can_help else {}
    targets = targets_of_servers(candidates, np.flatnonzero(short | lacking).tolist())
    names = candidates.arrays.server_names
    stranded = [(names[s], s) for s in np.flatnonzero(problem.to_serve & ~servable).tolist()]
    beyond = tuple(
        Beyond(server=name, detail=_missing(candidates, problem.limits, s))
        for name, s in (*stranded, *omitted.items())
    )
    no_reserve = tuple(
        Beyond(server=names[s], detail=_missing_reserve(candidates, names[s]))
        for s in np.flatnonzero(required & servable & ~reservable)
    )
    repair_options = RepairOptions(
        summary="",
        cheapest=_cheapest(by_units.problem, units, budget),
        fewest=units.get("fewest"),
        of_one_type=tuple(repair for question, repair in units.items() if question.startswith("of ")),
        relaxations=_relaxations(candidates, plan, targets, budget.part(2 / 3)),
        common_factor=_common_factor(candidates, targets, budget),
        beyond_units=beyond,
        beyond_reserves=no_reserve,
    )
    all_answered = len(budget.unanswered) == before
    return repair_options.model_copy(update={"summary": _summary(repair_options, all_answered=all_answered)})


@dataclass(frozen=True, slots=True)
class _Goal:
    """Servers that a repair by adding units must serve, and servers that must have their reserve."""

    problem: Problem
    """Problem restricted to the servers that must be served."""
    with_reserve: BoolArray
    """Mask of the servers that must have their reserve, shape (S,)."""


def _with_servable_members(problem: Problem) -> Problem:
    """Return the problem whose queues have only the members that enough units can serve together.

    If no units can serve any, all members are kept.
    """
    if not problem.leaves_members:
        return problem
    in_full = problem.options.model_copy(update={"saturation_policy": "None"})
    endless = _with_enough_units(replace(problem, options=in_full))
    table, taken = problem.table, solve_problem(endless).replicas > 0
    members = np.full(len(problem.priority), ALL_MEMBERS)
    members[table.server[taken]] = table.members[taken]
    return problem.take(np.flatnonzero(table.members == members[table.server]))


def _omitted_members(problem: Problem) -> dict[str, int]:
    """Return the members with load that no candidate of their queue serves, with the index of the queue."""
    members, table = problem.members, problem.table
    served = np.full(len(problem.priority), ALL_MEMBERS)
    served[table.server] = table.members
    omitted = (members.load_rps > 0) & (served[members.server] >> members.place & 1 == 0)
    return {members.names[m]: int(members.server[m]) for m in np.flatnonzero(omitted)}


def _short(
    candidates: Candidates, plan: Plan, problem: Problem, omitted: set[str]
) -> tuple[BoolArray, BoolArray]:
    """Return masks of the servers not served in full, and of those without their reserve, shapes (S,).

    `omitted` members of queues do not count.
    """
    unserved, without = {item.server for item in plan.unserved} - omitted, {*plan.lacks_reserve}
    servers = candidates.system.servers.values()
    short = np.zeros((2, len(problem.priority)), np.bool_)  # shared cards have indices after the servers
    short[0, : len(servers)] = [any(m.name in unserved for m in members_of(one)) for one in servers]
    short[1, : len(servers)] = [one.name in without for one in servers]
    return short[0], short[1]


def _attainable(problem: Problem, now: BoolArray) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Return masks of the servers that enough units can serve, that require a reserve, and that can have it.

    Args:
        problem: the planning problem.
        now: mask of the servers that the plan serves, shape (S,); they count as served if the solver is
            stopped.
    """
    endless = _with_enough_units(problem)
    attainable = solve_problem(endless)
    required, has = reserves_held(endless, attainable.replicas)
    full = served_in_full(endless, attainable.replicas)
    full |= now if attainable.status is Status.feasible else False
    return problem.to_serve & full, required, has


def _with_enough_units(problem: Problem) -> Problem:
    """Return the problem with unlimited amounts of addable items.

    It is a single-accelerator problem if no other limits exist, because that is easier.
    """
    endless = _endless(problem)
    mixed = problem.options.heterogeneous and bool(np.isfinite(endless.limits.amount).any())
    return replace(endless, options=problem.options.model_copy(update={"heterogeneous": mixed}))


def _endless(problem: Problem) -> Problem:
    """Return the problem with unlimited amounts of addable items."""
    return problem.with_amounts(np.where(problem.limits.addable, np.inf, problem.limits.amount))


# --- units -----------------------------------------------------------------------------------------------


_Ask = Callable[[_Goal, Deadline], Expansion | None]


def _of_units(
    candidates: Candidates, plan: Plan, goal: _Goal, budget: QuestionBudget
) -> dict[str, UnitRepair]:
    """Return the repairs of least transition cost, of least total cost, and of fewest units.

    Units can be of all types, or of one type; each of these has its own repair.
    """
    problem = goal.problem
    items, addable = problem.limits.items, problem.limits.addable & problem.limits.own
    cheapest, fewest = (partial(_least_of, units_first=first) for first in (False, True))
    questions: dict[str, tuple[str, _Ask, BoolArray]] = {
        "least value": ("the repair of least value", cheapest, addable),
        "fewest": ("the repair with the fewest cards", fewest, addable),
    }
    if _moves_cost(problem):
        questions["least cost"] = (
            "the repair of least cost",
            lambda short, due: cheapest(replace(short, problem=short.problem.from_nothing()), due),
            addable,
        )
    used = np.unique(problem.limits.row[problem.limits.use > 0])
    for place in used[addable[used]].tolist():
        words = f"the fewest {items[place].limit.unit}s of {items[place].item} that repair"
        questions[f"of {place}"] = (words, partial(fewest, item=place), one_of(place, len(items)) > 0)

    def repaired(question: tuple[str, _Ask, BoolArray], deadline: Deadline) -> UnitRepair | None:
        return _unit_repair(candidates, plan, goal, *question[1:], deadline)

    repairs = budget.ask(repaired, questions, lambda key: questions[key][0])
    return {key: repair for key, repair in repairs.items() if repair is not None}


def _least_of(
    goal: _Goal, deadline: Deadline, *, units_first: bool, item: int | None = None
) -> Expansion | None:
    return least_expansion(
        goal.problem, deadline, units_first=units_first, item=item, with_reserve=goal.with_reserve
    )


def _moves_cost(problem: Problem) -> bool:
    """Return whether the plan of least transition cost can cost more than necessary.

    It can if servers are running, because moving them has a price.
    """
    return bool((problem.current_replicas >= 0).any())


def _cheapest(problem: Problem, units: Mapping[str, UnitRepair], budget: QuestionBudget) -> UnitRepair | None:
    """Return the repair with the minimum total cost, then with the fewest units.

    If moving has a cost, the plan with the cheapest units can keep servers in place and cost more than
    necessary. With reserves, it can also use units for these. So the cheapest of all repairs is returned. It
    is proved if its cost equals the lower bound.
    """
    if not units:
        return None
    cheapest = min(units.values(), key=lambda item: (round(item.total_cost_cents_per_h, 9), item.units))
    if not _moves_cost(problem):
        unit_repair = units.get("least value")
        if (
            unit_repair is None
            or unit_repair.total_cost_cents_per_h <= cheapest.total_cost_cents_per_h + SAME
        ):
            return unit_repair
        return cheapest.model_copy(update={"proved": False})
    best = solve_problem(_endless(problem.from_nothing()), deadline=budget.deadline)
    least = float((best.replicas * problem.table.cost_per_replica).sum())
    reached = best.status is Status.optimal and cheapest.total_cost_cents_per_h <= least * (1 + 1e-9)
    fewest = "least cost" in units and cheapest.units == units["least cost"].units
    proved = reached and fewest and units["least cost"].proved
    return cheapest.model_copy(update={"proved": proved})


def _unit_repair(
    candidates: Candidates, plan: Plan, goal: _Goal, ask: _Ask, addable: BoolArray, deadline: Deadline
) -> UnitRepair | None:
    """Return the requested repair, after checking that it serves the servers of the goal with their reserves.

    If levels are solved in stages, it can fail this check at first: a server that no number of units can
    serve in full can use some of them before lower priorities are solved. Then units for that server are
    added.

    Returns:
        The repair; None if units of the addable types do not suffice.
    """
    unit_repair = ask(goal, deadline)
    if unit_repair is None:
        return None
    problem = goal.problem
    items = problem.limits.items
    repaired = solved(with_more(candidates, items, unit_repair.added), deadline)
    if repaired.status is Status.optimal and not _serves(repaired, candidates, goal):
        ahead = _taken_ahead(candidates, problem, addable, deadline)
        less = problem.with_amounts(problem.limits.amount - ahead)
        unit_repair = ask(replace(goal, problem=less), deadline)
        if unit_repair is None:
            return None
        unit_repair = replace(unit_repair, proved=False)
        repaired = solved(with_more(candidates, items, unit_repair.added), deadline)
        if not _serves(repaired, candidates, goal):
            return None
    return UnitRepair(
        added={
            items[place].item: int(unit_repair.added[place]) for place in np.flatnonzero(unit_repair.added)
        },
        units=int(unit_repair.added.sum()),
        total_cost_cents_per_h=repaired.total_cost_cents_per_h,
        effect=effect(PlanOutcome.of_plan(plan), repaired, candidates.system),
        proved=unit_repair.proved,
    )


def _serves(outcome: PlanOutcome, candidates: Candidates, goal: _Goal) -> bool:
    """Return whether a plan serves every server of a goal in full, with its reserve if that is required."""
    names, serve = candidates.arrays.server_names, goal.problem.to_serve
    lacking = outcome.lacks_reserve
    return not any(names[s] in outcome.served_fraction for s in np.flatnonzero(serve)) and not any(
        names[s] in lacking for s in np.flatnonzero(serve & goal.with_reserve)
    )


def _taken_ahead(
    candidates: Candidates, problem: Problem, addable: BoolArray, deadline: Deadline
) -> FloatArray:
    """Return the units that servers of higher priority use if some items are unlimited, shape (R,).

    These servers have a priority above the lowest one of the problem, and are not part of the problem.
    """
    every = build_problem(candidates)
    all_of_them = every.limits.of_sources(every.limits.used(every.table.num_replicas))
    ample = np.where(addable, np.ceil(all_of_them), 0.0)
    every = build_problem(with_more(candidates, every.limits.items, ample))
    ahead = ~problem.to_serve & (problem.priority < problem.priority[problem.to_serve].max())
    taken = np.where(ahead[every.table.server], solve_problem(every, deadline=deadline).replicas, 0)
    return every.limits.used(taken)


# --- targets ---------------------------------------------------------------------------------------------


def _relaxations(
    candidates: Candidates, plan: Plan, targets: Sequence[Target], budget: QuestionBudget
) -> tuple[TargetRelaxation, ...]:
    """Return the targets whose relaxation alone would serve everything with all reserves."""
    before = PlanOutcome.of_plan(plan)

    def relaxation(target: Target, deadline: Deadline) -> TargetRelaxation | None:
        value = _needed_ms(candidates, target, deadline)
        if value is None:
            return None
        return TargetRelaxation(
            service_class=target[0],
            model=target[1],
            metric=target[2],
            target_ms=target_ms(candidates, target),
            needed_ms=value,
            effect=effect(before, solved(relaxed(candidates, {target: value}), deadline), candidates.system),
        )

    questions = {target: target for target in targets}
    relaxations = budget.ask(
        relaxation, questions, lambda target: f"{target_words(target)} at which all is served"
    )
    return tuple(item for item in relaxations.values() if item is not None)


def _needed_ms(candidates: Candidates, target: Target, deadline: Deadline) -> float | None:
    """Return the smallest value of a target at which everything is served, to four digits [ms].

    None if no value suffices.
    """
    now = target_ms(candidates, target)
    return _least(now, 0.0, lambda value: _all_fits(candidates, {target: value}, deadline))


def _common_factor(candidates: Candidates, targets: Sequence[Target], budget: QuestionBudget) -> float | None:
    """Return the smallest common factor on targets at which everything is served; None if there is none."""
    now = {target: target_ms(candidates, target) for target in targets}
    if not now:
        return None

    def factor(_: None, deadline: Deadline) -> float | None:
        def enough(factor: float) -> bool:
            return _all_fits(candidates, {key: value * factor for key, value in now.items()}, deadline)

        return _least(1.0, 1e-3, enough)

    return budget.ask(factor, {"": None}, lambda _: "the common factor of the latency targets").get("")


def _all_fits(candidates: Candidates, values_ms: Mapping[Target, float], deadline: Deadline) -> bool:
    if deadline.passed:  # checked before the candidates are sized again
        raise OutOfTimeError
    problem = build_problem(relaxed(candidates, values_ms)).serving_all_members()
    return fits_in_units(problem, deadline)


def _least(low: float, step: float, enough: Callable[[float], bool]) -> float | None:
    """Return the smallest sufficient value above `low`, to four digits and in multiples of `step`.

    Looser targets serve more load, except with chunk-count jumps or optimised batches. In these cases the
    value is sufficient, but not necessarily the smallest.

    Returns:
        The value; None if even 0, which means no target, does not suffice.
    """
    if not enough(0.0):
        return None
    low = max(low, MIN_SEARCHED_MS)
    high = next((low * 2**n for n in range(1, MAX_DOUBLINGS + 1) if enough(low * 2**n)), None)
    if high is None:
        return None
    low = high / 2
    step = max(step, 10.0 ** (math.floor(math.log10(low)) - 3))
    below, above = math.floor(low / step * (1 + 1e-12)), math.ceil(high / step * (1 - 1e-12))
    return _written(smallest_integer(lambda count: enough(_written(count, step)), below, above), step)


def _written(count: int, step: float) -> float:
    """Return `count` times `step` as a number with a short decimal form."""
    return float(f"{count * step:.12g}")


# --- words -----------------------------------------------------------------------------------------------


_MISSING = {
    "slo_unattainable": "a looser target ({accelerator}: {detail})",
    "simulation_missed": "a looser target ({accelerator}: {detail})",
    "does_not_fit": "a larger kvCapacity ({accelerator}: {detail})",
    "replica_limit": "a higher maxNumReplicas ({accelerator}: {detail})",
    "batch_limit": "a smaller batch ({accelerator}: {detail})",
    "no_target": "a target ({detail})",
    "no_work": "token times ({accelerator}: {detail})",
    "no_profile": "a profile ({detail})",
    "place": "a nearer accelerator, or another place in mayServeFrom ({accelerator}: {detail})",
    "not_allowed": "another accelerator ({accelerator}: {detail})",
}
"""Changes that would remove a rejection reason, by reason, the easiest first."""


def _missing(candidates: Candidates, limits: LimitRows, s: int) -> str:
    """Describe the shortfalls of a server that more cards cannot fix: another limit, or the nearest pairs."""
    fixed = ~limits.addable & np.isfinite(limits.amount)
    labels = [
        item.limit.label(item.item) for item, is_fixed in zip(limits.items, fixed, strict=True) if is_fixed
    ]
    if labels and (candidates.table.server == s).any():
        return f"with enough cards for the others it needs more of another limit ({', '.join(labels)})"
    nearest: dict[str, Rejection] = {}
    for item in candidates.rejections(s):
        if item.reason not in nearest or _factor(item) < _factor(nearest[item.reason]):
            nearest[item.reason] = item
    if (candidates.table.server == s).any() and not nearest:
        if candidates.arrays.servers.is_queue[s]:
            return "no accelerator meets the targets of all servers of the queue together"
        return "it needs several pools, and none meet the targets together"
    phrases = [
        text.format(accelerator=nearest[reason].accelerator, detail=nearest[reason].detail)
        for reason, text in _MISSING.items()
        if reason in nearest
    ]
    return "it needs " + ", or ".join(phrases) if phrases else "the system has no accelerator"


def _missing_reserve(candidates: Candidates, name: str) -> str:
    """Describe the changes without which no number of cards gives a server its reserve."""
    server, parts = candidates.system.servers[name], []
    if server.max_num_replicas is not None:
        parts.append(f"a higher maxNumReplicas than {server.max_num_replicas:,}")
    if server.availability_target is not None:
        parts.append(f"an availabilityTarget below {server.availability_target:.8g}")
    limits = [limit for limit in ("budget", "maxPower") if _is_limited(candidates.system, limit)]
    if limits:
        parts.append(f"a higher {' or '.join(limits)}")
    return f"it needs {', or '.join(parts)}" if parts else "a target or a limit on rollouts prevents it"


def _is_limited(system: System, option: str) -> bool:
    """Return whether a system states the budget or the maximum power."""
    values = {"budget": system.options.budget_cents_per_h, "maxPower": system.options.max_power_w}
    return values[option] is not None


def _factor(item: Rejection) -> float:
    return math.inf if item.factor is None else item.factor


def _summary(repair: RepairOptions, *, all_answered: bool) -> str:
    if repair.cheapest is not None and not repair.cheapest.added:
        return "the cards that exist are enough, but the solver stopped too early; give it more time"
    ways = list(dict.fromkeys(_ways(repair)))
    gone = ", ".join(item.server for item in repair.beyond_units)
    lack = ", ".join(item.server for item in repair.beyond_reserves)
    parts = [*([f"serves {gone}"] if gone else []), *([f"gives {lack} the required reserve"] if lack else [])]
    beyond = " or ".join(parts)
    if not ways and not all_answered:
        return "no repair was found within the time limit; give it more time"
    if not ways and not beyond:
        return "no repair was found"
    if not ways:
        return f"no number of cards and no single target {beyond}"
    return ", or ".join(ways) + (
        f"; no number of cards {beyond}" if beyond and not repair.relaxations else ""
    )


def _ways(repair: RepairOptions) -> Iterator[str]:
    for units in (repair.cheapest, repair.fewest, *repair.of_one_type):
        if units is not None and units.added:
            yield " ".join(f"+{count:,} {name}" for name, count in units.added.items())
    for item in repair.relaxations:
        needed = quantity(item.needed_ms, 10)
        yield f"relax {item.service_class}/{item.model} {item.metric.upper()} to {needed} ms"
