"""The exact choice as one pattern per server: levels minimised one after the other (math.md section 18).

Takes a `Problem` with capacities, gives a `Solution`. Where the relaxation says that all servers of a
priority can be served, that is believed until no answer turns up.
"""

from dataclasses import dataclass, replace

import numpy as np

from optimizer.arrays import BoolArray, IntArray
from optimizer.errors import SolverError
from optimizer.solvers.bounds import least_values
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.formulation import served_in_full
from optimizer.solvers.known import Known, differing, repaired
from optimizer.solvers.levels import (
    CHANGES,
    VALUE,
    levels_of,
    served,
    value_of,
    value_slack,
)
from optimizer.solvers.patterns.answers import Incumbent
from optimizer.solvers.patterns.narrowing import Elsewhere, Narrowing, Target
from optimizer.solvers.patterns.options import Options
from optimizer.solvers.patterns.parts import Parts, parts_of
from optimizer.solvers.patterns.pool import Exclusion, pool_of
from optimizer.solvers.patterns.program import Measure, Pin, Program
from optimizer.solvers.patterns.relaxation import Relaxed, relax
from optimizer.solvers.problem import (
    Level,
    Problem,
    ServiceLevel,
    Solution,
    Status,
    gap_target,
    units_used,
)
from optimizer.solvers.room import with_more_room
from optimizer.solvers.seeds import best_seed

WHOLE_TOLERANCE = 0.5
"""Slack of a pinned integer level."""
LEVEL_SHARE = 0.4
"""Part of the time left that a level of service may use that others follow."""
LAST_SHARE = 0.5
"""The same for the last of them."""
FEWEST_SHARE = 0.2
"""The same for the number of servers of a priority whose rate is not proved."""
BISECTIONS = 5
"""Relaxations by which the units are found that suffice only just."""
MAX_COMBINED = 1e7
"""Largest weight of a server at a level of rate and number of servers together."""
ROUNDING = 1e-9


def solve_patterns(
    problem: Problem,
    deadline: Deadline | None = None,
    known: Known | None = None,
    *,
    serve_by: Deadline | None = None,
) -> Solution:
    """Choose one pattern per server within the capacities, level by level.

    It begins from the better of what runs now and the greedy plan; from what is known, if that is better.

    Args:
        problem: what to choose from, with capacities.
        deadline: when all levels are due; none: after the time limit of the options.
        known: the answer to a problem that differs in one thing.
        serve_by: when all levels of service have to be proved: it ends at the first that is not, and where
            there are too many options to know them all; none: it does what it can.

    Raises:
        SolverError: the solver failed, or what it returned breaks a limit.
    """
    deadline = deadline or Deadline.after(problem.options.time_limit_s)
    if not len(parts_of(problem).row):
        replicas = np.zeros(len(problem.table), np.int64)
        return Solution(replicas, Status.optimal, "milp", levels_of(problem, replicas, proved=True))
    return _Run(problem, deadline, known, serve_by).solve()


@dataclass(frozen=True, slots=True)
class _Step:
    """One objective: a level, or the two of a priority together."""

    measure: Measure
    step: float
    """By how much two answers differ at least."""
    rate: ServiceLevel | None = None
    count: ServiceLevel | None = None
    in_play: BoolArray | None = None


class _Run:
    """One lexicographic solve."""

    def __init__(
        self, problem: Problem, deadline: Deadline, known: Known | None, serve_by: Deadline | None
    ) -> None:
        self.problem, self.deadline, self.known = problem, deadline, known
        self.serve_by = serve_by
        self.parts: Parts = parts_of(problem)
        self.pool = pool_of(problem, self.parts)
        self.incumbent = Incumbent(problem, self.pool, best_seed(problem))
        if known is not None:
            self.incumbent.offer(repaired(problem, known.replicas))
        self.gap = gap_target(problem.options, len(self.parts.row))
        self.servers = len(problem.priority)
        self.service = problem.service
        self.columnless = ~np.isin(np.arange(self.servers), self.parts.server)
        self.start = np.flatnonzero(~self.pool.options.served)
        self.changed_servers = np.ones(self.servers, np.bool_)
        if known is not None and known.with_less is not None:
            self.changed_servers = differing(problem, known.with_less)
            self.carried_before = known.carried_before(problem)
        self._reset()

    def _reset(self) -> None:
        self.pins: tuple[Pin, ...] = ()
        self.to_be_served = np.zeros(self.servers, np.bool_)
        self.bounds: dict[str, float] = {level.name: 0.0 for level in self.service} | {CHANGES: 0.0}
        self.proved = True
        self.least_value = -np.inf
        """What the value is at least where nothing worse is known of the levels before."""
        self.follows = self.known is not None
        """Whether the levels so far are as the known answer has them."""
        self.pool.reset()

    def solve(self) -> Solution:
        """Minimise every level in its order."""
        if self._as_known():
            return self._solution()
        for believing in (True, False):
            self._reset()
            if self._levels(believing=believing):
                break
        return self._solution()

    # --- at the service that is known --------------------------------------------------------------------

    def _as_known(self) -> bool:
        """Minimise value and changes at the service that the known answer has; return whether it is the best.

        No answer serves more where the problem is the other's with something taken away.
        """
        known = self.known
        if known is None or not known.restricts:
            return False
        for level, floor in zip(self.service, known.levels, strict=False):
            most = float(level.weight[known.left_out].sum() - level.weight[self.columnless].sum())
            if most < 0:
                return False
            if most == 0:
                self.to_be_served |= (level.weight > 0) & ~self.columnless
            else:
                self.pins = (*self.pins, Pin(Measure(level.name, level.weight), most + WHOLE_TOLERANCE))
            self.bounds[level.name] = -np.inf if floor.bound is None else floor.bound
            self.proved &= _is_proved(floor, self.gap)
        self.least_value = next(level.bound for level in known.levels if level.name == VALUE) or -np.inf
        return self._value(believing=True) and self._changes() and self._is_as_known()

    def _is_as_known(self) -> bool:
        """Return whether the best answer has the service of the known one, at every level."""
        left = ~self.incumbent.served
        assert self.known is not None
        then = self.known.left_out
        return all(level.weight[left].sum() == level.weight[then].sum() for level in self.service)

    # --- levels ------------------------------------------------------------------------------------------

    def _levels(self, *, believing: bool) -> bool:
        """Minimise all levels; return whether what was believed held."""
        steps = self._service_steps()
        for i, step in enumerate(steps):
            share = LEVEL_SHARE if i < len(steps) - 1 else LAST_SHARE
            # Where a level without a proof ends the run, time that is kept for those after it is of no use.
            due = self.serve_by or self.deadline.share(share)
            if not self._serve(step, due, believing=believing):
                return False
            if self.serve_by is not None and not self.proved:
                self.bounds[VALUE] = self._least_value()
                return True
        if not self._value(believing=believing) or not self._changes():
            return False
        # Bounds of later levels count for answers that keep what was believed of the levels before.
        return not (self.to_be_served & ~self.incumbent.served).any()

    def _service_steps(self) -> list[_Step]:
        steps = []
        for rate, count in zip(self.service[::2], self.service[1::2], strict=True):
            mine = (rate.weight > 0) | (count.weight > 0)
            priority = self.problem.priority[mine].max(initial=-1)
            in_play = self.problem.priority <= priority
            n = count.weight[~self.columnless].sum()
            together = rate.weight * (n + 1) + count.weight
            if not mine.any():
                continue
            if together.max() <= MAX_COMBINED:
                steps.append(_Step(Measure(rate.name, together), 1.0, rate, count, in_play))
            else:
                steps.append(_Step(Measure(rate.name, rate.weight), 1.0, rate, None, in_play))
                steps.append(_Step(Measure(count.name, count.weight), 1.0, None, count, in_play))
        return steps

    def _serve(self, step: _Step, deadline: Deadline, *, believing: bool) -> bool:
        """Minimise what is unserved of one priority."""
        weight = step.measure.on_nothing * ~self.columnless
        if not weight.any():
            self._note_service(step, 0.0, 0.0)
            return True
        mine = weight > 0
        if not (mine & ~self.incumbent.served).any():
            self._note_service(step, 0.0, 0.0)
            self.to_be_served |= mine
            return True
        floor = self._floor(step)
        if self._reached(weight) <= floor:
            self._note_service(step, floor, floor)
            self.pins = (*self.pins, Pin(step.measure, floor + WHOLE_TOLERANCE))
            return True
        return self._serve_by_price(step, mine, deadline, believing=believing)

    def _floor(self, step: _Step) -> float:
        """Return what is unserved at least at a level, as it is where the problem has more to choose from."""
        known = self.known
        if known is None or not self.follows or not known.restricts:
            return 0.0
        return self._known_least(step, known)

    def _known_least(self, step: _Step, known: Known) -> float:
        """Return what the answers of the known problem leave unserved at least; 0 if that is not proved."""
        names = {level.name for level in (step.rate, step.count) if level is not None}
        if not all(_is_proved(level, 0.0) for level in known.levels if level.name in names):
            return 0.0
        weight = step.measure.on_nothing
        return max(float(weight[known.left_out].sum() - weight[self.columnless].sum()), 0.0)

    def _known_to_fail(self, mine: BoolArray) -> bool:
        """Return whether servers were left out though the relaxation served all, by what is known."""
        known = self.known
        return known is not None and bool((mine & known.left_out & ~self.columnless).any())

    def _serve_by_price(self, step: _Step, mine: BoolArray, deadline: Deadline, *, believing: bool) -> bool:
        """Minimise what is unserved of one priority, of which the best answer leaves some servers out."""
        weight = step.measure.on_nothing * ~self.columnless
        program = self._program(step)
        relaxed = relax(program, self.pool, self._start_options(), deadline)
        if relaxed is None:
            self._give_up(step, 0.0, weight)
            return True
        least = max(relaxed.bound, self._floor(step))
        hopeful = believing and not self._known_to_fail(mine)
        if hopeful and least <= ROUNDING * weight.sum() and relaxed.finished:
            self._note_service(step, 0.0, 0.0)
            self.to_be_served |= mine
            return True
        guide = self._guide(program, mine) if relaxed.bound <= ROUNDING * weight.sum() else None
        narrowing = self._narrowed(program, relaxed, step, deadline, guide)
        if not narrowing.feasible:
            return not believing
        known = self.known
        self.follows &= known is not None and narrowing.value == self._known_least(step, known)
        bound = float(np.ceil(max(narrowing.bound, 0.0) - 1e-6))
        value = float(np.round(narrowing.value))
        self._note_service(step, value, min(bound, value))
        if value == 0:
            self.to_be_served |= mine
        elif step.rate is not None and step.count is not None and bound < value and self.serve_by is None:
            return self._serve_fewest(step, narrowing, value, believing=believing)
        else:
            self.proved &= narrowing.proved
            self._pin(Pin(step.measure, value + WHOLE_TOLERANCE), narrowing)
        return True

    def _serve_fewest(self, step: _Step, narrowing: Narrowing, value: float, *, believing: bool) -> bool:
        """Settle the rate of a priority where it is, and minimise the number of servers by itself."""
        assert step.rate is not None
        assert step.count is not None
        n = float(step.count.weight[~self.columnless].sum())
        rate = value // (n + 1)
        least = np.ceil(max(narrowing.bound - n, 0.0) / (n + 1) - ROUNDING)
        self.proved &= bool(rate - least <= self.gap * rate)
        self._pin(
            Pin(Measure(step.rate.name, step.rate.weight), rate + WHOLE_TOLERANCE),
            narrowing,
            rate * (n + 1) + n,
        )
        fewest = _Step(Measure(step.count.name, step.count.weight), 1.0, None, step.count, step.in_play)
        return self._serve(fewest, self.deadline.share(FEWEST_SHARE), believing=believing)

    def _give_up(self, step: _Step, bound: float, weight: np.ndarray) -> None:
        value = self._reached(weight)
        self.proved = self.follows = False
        self._note_service(step, value, min(bound, value))
        self.pins = (*self.pins, Pin(step.measure, value + WHOLE_TOLERANCE))

    def _reached(self, weight: np.ndarray) -> float:
        return float(weight[~self.incumbent.served].sum())

    def _value(self, *, believing: bool) -> bool:
        """Minimise the value."""
        program = self._program(_Step(Measure(VALUE, np.zeros(self.servers), on_value=1.0), 0.0))
        deadline = self.deadline.share(2 / 3 if self._changes_vary else 1.0)
        relaxed = relax(program, self.pool, self._start_options(), deadline)
        if relaxed is None:
            value, bound = self.incumbent.of_level(program.measure.of(self.pool.options)), -np.inf
            self.proved = False
        else:
            narrowing = self._narrowed(program, relaxed, _Step(program.measure, 0.0), deadline)
            if not narrowing.feasible:
                return not believing
            value, bound = narrowing.value, narrowing.bound
            self.proved &= narrowing.proved
            self._pin(Pin(program.measure, value + value_slack(value)), narrowing)
        reached = value_of(self.problem, self.incumbent.replicas)
        bound = max(bound, max(self._least_value(), self.least_value) - (reached - value))
        if value - bound <= ROUNDING * max(1.0, abs(value)):
            bound = value
        self.bounds[VALUE] = bound + (reached - value)
        return True

    @property
    def _changes_vary(self) -> bool:
        """Whether there is something to do at the last level."""
        return bool(np.ptp(self.pool.options.changed) > 0)

    def _least_value(self) -> float:
        all_served = bool(self.to_be_served[self.parts.servers].all())
        least = least_values(self.problem, self.parts.row, all_served=all_served)
        return float(least.sum()) + float(self.problem.none_value[self.columnless].sum())

    def _changes(self) -> bool:
        """Minimise the number of changed servers."""
        program = self._program(_Step(Measure(CHANGES, np.zeros(self.servers), on_changes=1.0), 1.0))
        weight = program.measure.of(self.pool.options)
        value, bound = self.incumbent.of_level(weight), self._least_changes(program)
        if bound < value:
            relaxed = relax(program, self.pool, self._start_options(), self.deadline)
            if relaxed is None:
                self.proved = False
            else:
                narrowing = self._narrowed(program, relaxed, _Step(program.measure, 1.0), self.deadline)
                bound = max(bound, float(np.ceil(narrowing.bound - 1e-6)))
                value = narrowing.value
                self.proved &= narrowing.proved
        outside = float(self.problem.none_changed[self.columnless].sum())
        self.bounds[CHANGES] = min(bound, value) + outside
        return True

    def _least_changes(self, program: Program) -> float:
        """Return how many servers change at least, whatever they take."""
        least = np.full(self.servers, np.inf)
        options = self.pool.options
        allowed = program.allowed(options) & ~self.pool.gone
        np.minimum.at(least, options.server[allowed], options.changed[allowed])
        return float(least[np.isfinite(least)].sum()) + self._least_served(allowed & ~options.served)

    def _least_served(self, nothing: BoolArray) -> float:
        """Return how many servers change at least that can have nothing, as not all of them can.

        These run nothing now, so that having nothing is no change, and anything else is one.
        """
        options = self.pool.options
        mine = np.zeros(self.servers, np.bool_)
        mine[options.server[nothing & (options.changed == 0)]] = True
        mine[options.server[options.served & (options.changed == 0)]] = False
        served = 0.0
        for level in self.service[1::2]:
            weight = level.weight * mine
            most = float(level.weight[~self.incumbent.served & ~self.columnless].sum())
            settled = self.bounds[level.name] >= level.measure[~self.incumbent.served].sum() * (1 - ROUNDING)
            if settled and weight.any():
                served += max(float(weight.sum()) - most, 0.0)
        return served

    # --- steps of a level --------------------------------------------------------------------------------

    def _program(self, step: _Step) -> Program:
        in_play = np.ones(self.servers, np.bool_) if step.in_play is None else step.in_play
        return Program(self.parts, step.measure, self.pins, in_play, self.to_be_served)

    def _start_options(self) -> IntArray:
        return np.union1d(self.start, self.incumbent.chosen)

    def _guide(self, program: Program, mine: BoolArray) -> Relaxed | None:
        """Return the relaxation with as much less of every type as leaves some servers out, if only just.

        A relaxation that serves all of them at no price does not tell which units are scarce.
        """
        guide, low, high = None, 0.0, 1.0
        deadline = self.deadline.share(0.2)
        total = float(program.measure.on_nothing[mine].sum())
        for _ in range(BISECTIONS):
            part = (low + high) / 2 if low else high - (1.05 - high)
            parts = replace(self.parts, limit=np.floor(self.parts.limit * part))
            found = relax(replace(program, parts=parts), self.pool, self._start_options(), deadline)
            if found is None:
                break
            if found.bound > ROUNDING * total:
                guide, low = found, part
            else:
                high = part
        return guide

    def _narrowed(
        self,
        program: Program,
        relaxed: Relaxed,
        step: _Step,
        deadline: Deadline,
        guide: Relaxed | None = None,
    ) -> Narrowing:
        narrowing = Narrowing(program, self.pool, relaxed, self.incumbent, Target(self.gap, step.step))
        if step.rate is not None or step.count is not None:
            narrowing.bound = max(narrowing.bound, self._floor(step))
        elsewhere = self._elsewhere(step)
        if elsewhere is not None:
            narrowing.beside(elsewhere, deadline)
        narrowing.core(deadline, guide)
        narrowing.rooms(deadline, only_whole=self.serve_by is not None)
        self.start = np.union1d(self.start, np.flatnonzero(relaxed.used))
        return narrowing

    def _elsewhere(self, step: _Step) -> Elsewhere | None:
        """Return what is known of a level from a problem with less to choose from; none: nothing."""
        known = self.known
        if known is None or known.with_less is None or not self.follows:
            return None
        if step.measure.name == VALUE:
            bound = next(level.bound for level in known.levels if level.name == VALUE)
            outside = float(self.problem.none_value[self.columnless].sum())
            floor = -np.inf if bound is None else bound - outside
        elif step.rate is not None or step.count is not None:
            floor = self._known_least(step, known)
        else:
            return None
        return Elsewhere(floor, self.changed_servers, self._is_new)

    def _is_new(self, options: Options) -> BoolArray:
        """Return which options the known problem does not have, shape (P,)."""
        used, row = options.part >= 0, self.parts.row[np.maximum(options.part, 0)]
        carried = (options.count * np.where(used, self.carried_before[row], 0.0)).sum(axis=1)
        mine = options.served & self.changed_servers[options.server]
        return np.asarray(mine & (carried < self.problem.load_rps[options.server]), np.bool_)

    def _pin(self, pin: Pin, narrowing: Narrowing, most: float | None = None) -> None:
        """Hold a level, and drop the options that no answer can take that holds it.

        Args:
            pin: what to hold.
            narrowing: what was found out about the level.
            most: what its measure can be then at most; none: as the pin says.
        """
        self.pins = (*self.pins, pin)
        most = pin.most if most is None else most
        room = most + ROUNDING * abs(most) - narrowing.relaxed.bound
        program = narrowing.program
        least = np.where(program.in_play & np.isfinite(narrowing.least), narrowing.least, np.inf)
        gone = (narrowing.reduced > room) & program.in_play[self.pool.options.server]
        self.pool.settle(Exclusion(program, narrowing.relaxed.prices, least + max(room, 0.0)), gone)

    def _note_service(self, step: _Step, value: float, bound: float) -> None:
        """Note the bounds of a priority's levels, those of both where they were minimised together."""
        if step.rate is not None and step.count is not None:
            n = float(step.count.weight[~self.columnless].sum())
            rate, least_rate = value // (n + 1), np.ceil(max(bound - n, 0.0) / (n + 1))
            self._note(step.rate, float(least_rate))
            self._note(step.count, max(bound - rate * (n + 1), 0.0))
        elif step.rate is not None:
            self._note(step.rate, bound)
        elif step.count is not None:
            self._note(step.count, bound)

    def _note(self, level: ServiceLevel, bound: float) -> None:
        lost = float(level.weight[self.columnless].sum())
        self.bounds[level.name] = (bound + lost) * level.unit

    # --- the answer --------------------------------------------------------------------------------------

    def _solution(self) -> Solution:
        """Count the answer again in integers."""
        problem = self.problem
        replicas = with_more_room(problem, self.incumbent.replicas)
        over = problem.capacity is not None and bool(
            (units_used(problem, replicas, len(problem.capacity)) > problem.capacity).any()
        )
        if over or (served(problem, replicas) & ~served_in_full(problem, replicas)).any():
            raise SolverError("the solver's answer breaks a limit; please report this with the input")
        reached = levels_of(problem, replicas, proved=True)
        levels = tuple(
            Level(level.name, level.value, min(self.bounds.get(level.name, -np.inf), level.value))
            for level in reached
        )
        proved = self.proved or all((level.gap or 0.0) <= max(self.gap, ROUNDING) for level in levels)
        status = Status.optimal if proved else Status.feasible
        return Solution(replicas, status, "milp", levels)


def _is_proved(level: Level, gap: float) -> bool:
    return level.gap is not None and level.gap <= max(gap, ROUNDING)
