"""One lexicographic solve as it stands: the best answer, what is settled, and how a level is narrowed down.

Takes a `Problem` with capacities, gives a `Solution`.
"""

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.errors import SolverError
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.formulation import served_in_full
from optimizer.solvers.known import Known, repaired
from optimizer.solvers.levels import CHANGES, VALUE, bounded_levels, served
from optimizer.solvers.patterns.answers import Incumbent
from optimizer.solvers.patterns.beside import look_beside
from optimizer.solvers.patterns.borrowed import Borrowed
from optimizer.solvers.patterns.branching import Branch, over_of
from optimizer.solvers.patterns.narrowing import MANY, Narrowing
from optimizer.solvers.patterns.parts import Parts, parts_of
from optimizer.solvers.patterns.pool import Exclusion, pool_of
from optimizer.solvers.patterns.program import Pin, Program
from optimizer.solvers.patterns.relaxation import Relaxed, relax
from optimizer.solvers.patterns.search import MOST_FOUND
from optimizer.solvers.patterns.steps import Step
from optimizer.solvers.patterns.target import Target
from optimizer.solvers.patterns.totals import divide_totals
from optimizer.solvers.problem import Problem, Solution, Status, gap_target, units_used
from optimizer.solvers.room import with_more_room
from optimizer.solvers.seeds import best_seed
from optimizer.solvers.subsets import told_by

WHOLE_TOLERANCE = 0.5
"""Slack of a pinned integer level."""
ROUNDING = 1e-9


class Run:
    """One lexicographic solve."""

    def __init__(
        self, problem: Problem, deadline: Deadline, known: Known | None, serve_by: Deadline | None
    ) -> None:
        self.problem, self.deadline, self.known = problem, deadline, known
        self.serve_by = serve_by
        self.hurried = serve_by is not None and known is not None and known.by_replicas
        """Whether levels of service with many patterns are left to numbers of replicas."""
        self.parts: Parts = parts_of(problem)
        self.pool = pool_of(problem, self.parts, deadline)
        self.incumbent = Incumbent(problem, self.pool, best_seed(problem))
        if known is not None:
            self.incumbent.offer(repaired(problem, known.replicas))
        self.gap = gap_target(problem.options, len(self.parts.row))
        self.servers = len(problem.priority)
        self.proved_before: dict[str, float] = {}
        """Bounds of levels from an attempt that ended at a level after them."""
        self.start = np.flatnonzero(~self.pool.options.served)
        self.borrowed = Borrowed(problem, self.parts, known)
        self.columnless = self.borrowed.columnless
        self.reset()

    def reset(self) -> None:
        """Begin with the first level again."""
        self.pins: tuple[Pin, ...] = ()
        self.to_be_served, self.left_out = np.zeros((2, self.servers), np.bool_)
        self.bounds = dict.fromkeys((level.name for level in self.problem.service), 0.0) | {
            VALUE: -np.inf,
            CHANGES: 0.0,
        }
        """By the name of the level, those of service in steps."""
        self.proved = True
        self.least_value = -np.inf
        """What the value is at least where nothing worse is known of the levels before."""
        self.borrowed.reset()
        self.pool.reset()

    def weight_of(self, step: Step) -> FloatArray:
        """Return what leaving out a server that has a candidate adds to a level of service, shape (S,)."""
        return step.measure.on_nothing * ~self.columnless

    def unserved(self, weight: FloatArray) -> float:
        """Return the sum of a weight of servers, shape (S,), that the best answer does not serve."""
        return float(weight[~self.incumbent.served].sum())

    @property
    def holds(self) -> bool:
        """Whether the best answer serves all that was believed to be served."""
        return not (self.to_be_served & ~self.incumbent.served).any()

    def program(self, step: Step) -> Program:
        """Return an objective as a level to be minimised."""
        in_play = np.ones(self.servers, np.bool_) if step.in_play is None else step.in_play
        return Program(self.parts, step.measure, self.pins, in_play, self.to_be_served, self.left_out)

    def relaxed(self, program: Program, deadline: Deadline) -> Relaxed | None:
        """Solve the relaxation of a level; none if the time did not suffice."""
        return relax(program, self.pool, self.start_options, deadline)

    @property
    def start_options(self) -> IntArray:
        """Options for a relaxation to begin with."""
        return np.union1d(self.start, self.incumbent.chosen)

    def narrowed(
        self,
        program: Program,
        relaxed: Relaxed,
        step: Step,
        deadline: Deadline,
        guide: Branch | None = None,
    ) -> Narrowing:
        """Search for the best answer of a level, as far as its relaxation leaves it open."""
        target = Target(self.gap, step.step, step.multiple)
        most = MANY if self.hurried and step.is_service else MOST_FOUND
        narrowing = Narrowing(program, self.pool, relaxed, self.incumbent, target, most)
        narrowing.bound = max(narrowing.bound, self.proved_before.get(step.measure.name, -np.inf))
        if step.is_service:
            narrowing.bound = max(narrowing.bound, self.borrowed.floor(step))
        if step.measure.name == VALUE:
            outside = float(self.problem.none_value[self.columnless].sum())
            narrowing.bound = max(narrowing.bound, self.least_value - outside)
        elsewhere = self.borrowed.elsewhere(step)
        if elsewhere is not None:
            look_beside(narrowing, elsewhere, self.start_options, deadline)
        narrowing.core(deadline, guide)
        narrowing.branch(self.start_options, deadline)
        if not narrowing.small:
            divide_totals(narrowing, deadline)
        narrowing.rooms(deadline, only_whole=self.serve_by is not None)
        self.start = np.union1d(self.start, relaxed.used)
        if narrowing.feasible:
            # An answer holds what was believed of the levels before: then the bound is one without belief.
            self.proved_before[step.measure.name] = narrowing.bound
        return narrowing

    def pin(self, pin: Pin, root: Branch, most: float | None = None) -> None:
        """Hold a level, and drop the options that no answer can take that holds it.

        Args:
            pin: what to hold.
            root: the level with its relaxation.
            most: what its measure can be then at most; none: as the pin says.
        """
        self._exclude(root, pin.most if most is None else most)
        self.hold(pin)

    def _exclude(self, root: Branch, most: float) -> None:
        """Drop the options that no answer can take of which a level comes to so much at most."""
        room = most + ROUNDING * abs(most) - root.relaxed.bound
        program = root.program
        over, least = over_of(root, self.pool)
        least = np.where(program.in_play & np.isfinite(least), least, np.inf)
        gone = (over > room) & program.in_play[self.pool.options.server]
        self.pool.settle(Exclusion(program, root.relaxed.prices, least + max(room, 0.0)), gone)

    def settle(self, step: Step, value: float, root: Branch | None) -> None:
        """Hold a level of service at its optimum, and the servers that it tells to be served or left out.

        Args:
            step: the level.
            value: what it is, without the servers that can have nothing.
            root: the level with its relaxation; none: there was no time for one.
        """
        weight, most = self.weight_of(step), value + WHOLE_TOLERANCE
        if root is not None:
            self._exclude(root, most)
        served, left_out = told_by(weight, value)
        self.serve(served)
        self.left_out = self.left_out | left_out
        if not (served | left_out)[weight > 0].all():
            self.hold(Pin(step.measure, most))

    def hold(self, pin: Pin) -> None:
        """Hold a level of which no more is known than that."""
        self.pins = (*self.pins, pin)

    def serve(self, mine: BoolArray) -> None:
        """Have some servers, shape (S,), served from now on."""
        self.to_be_served = self.to_be_served | mine

    def note(self, step: Step, value: float, bound: float) -> None:
        """Note what a level of service came to, and its bounds."""
        self.borrowed.note(step, value)
        self.bounds |= step.bounds(value, bound, self.columnless)

    def solution(self) -> Solution:
        """Return the best answer, counted again in integers."""
        problem = self.problem
        replicas = with_more_room(problem, self.incumbent.replicas)
        over = problem.capacity is not None and bool(
            (units_used(problem, replicas, len(problem.capacity)) > problem.capacity).any()
        )
        if over or (served(problem, replicas) & ~served_in_full(problem, replicas)).any():
            raise SolverError("the solver's answer breaks a limit; please report this with the input")
        levels = bounded_levels(problem, replicas, self.bounds)
        proved = self.proved or all(level.is_proved(self.gap) for level in levels)
        status = Status.optimal if proved else Status.feasible
        return Solution(replicas, status, "milp", levels)
