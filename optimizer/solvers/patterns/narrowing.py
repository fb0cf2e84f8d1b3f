"""One level solved within its gap: over a core of options, then over all that leave room for better.

An answer that takes an option of reduced cost r is above the relaxation's bound by r at least. So what is
left out of a model, as its reduced cost is above some room, is in no answer below bound plus room.
Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import replace

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.highs import HighsSession
from optimizer.solvers.model import Outcome, RunResult
from optimizer.solvers.patterns.answers import Incumbent
from optimizer.solvers.patterns.branching import Branch, Tree, over_of
from optimizer.solvers.patterns.cuts import ROUNDS, tightened
from optimizer.solvers.patterns.dominance import essential
from optimizer.solvers.patterns.packing import packing_of
from optimizer.solvers.patterns.pool import Pool
from optimizer.solvers.patterns.program import Program
from optimizer.solvers.patterns.relaxation import Relaxed
from optimizer.solvers.patterns.search import MOST_FOUND
from optimizer.solvers.patterns.target import Target

CORE_SIZES = (2_000, 8_000)
"""Options beside those that the relaxation uses; the more where the fewer hold no answer, or a far one."""
GUIDED_SIZES = (3_000,)
"""The same where another measure than the level's own chooses them."""
CORE_EACH = 10
"""Of the fewer, for each server at most."""
FAR = 5.0
"""How far a value of many servers may be above its bound, in room of the core, before a larger follows."""
CORE_S = 4.0
"""Most time for the core [s]..."""
VALUE_CORE_S = 2.0
"""... and for that of the value of many servers, which boxes of totals go on with."""
SIZES = (8_000, 30_000)
"""Options of the models after the core, as far as there is room for so many."""
STEP_SHARE = 0.6
"""Part of the time left that each of these models may use, but the last."""
MOST_OPTIONS = 60_000
"""Options of a model at most."""
OPTIONS_PER_S = 25_000
"""Options of a model for each second that it may take: a solver that loads a model cannot be stopped."""
SIMPLIFIED = 10
"""Options for each server up to which a model is simplified; with more, that takes longer than the rest."""
FEW_SERVERS = 200
"""Servers up to which answers are found early: a level is divided until each server takes one pattern."""
PACKED_OPTIONS = 3_000
"""Options from which on that takes less than a model over all of them."""
CUT_OPTIONS = 500
"""Options from which on cuts are looked for first: fewer are solved as soon."""
FEW = 1_500
"""Options in which an answer can be better than the best one up to which the core is left out."""
MANY = 8_000
"""The same up to which knowing them all costs next to nothing."""
BRANCHES_SHARE = 0.7
"""Part of a level's time, once the core is solved, that the division into branches may use."""
UNKNOWN_SHARE = 0.1
"""Part of that time for a division without all options, before more of them are looked for."""
KNOWN_PER_S = 50_000
"""Options that are worth knowing for each second of it, to divide a level over these alone."""
SEARCHED_PER_S = 120_000
"""Options that are looked for, for each second that is left: what is found has to be solved as well."""
MOST_BRANCHES = 8
"""Branches whose options are told apart; of more, those of the whole level are taken."""


class Narrowing:
    """The search for one level: what is known of its answer and bound, and what to try next."""

    def __init__(
        self,
        program: Program,
        pool: Pool,
        relaxed: Relaxed,
        incumbent: Incumbent,
        target: Target,
        most: int = MOST_FOUND,
    ) -> None:
        """Begin with what a relaxation says.

        Args:
            program: the level.
            pool: the options.
            relaxed: the relaxation of the level.
            incumbent: the best answer.
            target: how near the bound has to come.
            most: patterns that are looked for at most.
        """
        self.most = most
        self.program, self.pool = program, pool
        self.incumbent, self.target = incumbent, target
        self.small = len(program.servers) <= FEW_SERVERS
        self.bound = relaxed.bound
        self.root = Branch.whole(program, relaxed)
        self.branches = [self.root]
        """What holds every answer that is better by enough, the least bound first."""
        self.covered, self.covered_bound = np.zeros(0, np.int64), np.inf
        """Options over which the level has been solved, and what answers of these alone measure at least."""
        self.known = -np.inf
        """Up to which value the options of all answers are known."""
        self.unknown, self.unknown_most = np.inf, 0
        """From which value on they were more than so many."""
        self._extend()
        self.feasible = self._holds()
        self.value = self.incumbent.of_level(self.weight) if self.feasible else np.inf

    def _extend(self) -> None:
        """Bring weights and reduced costs up to what the pool has grown to."""
        options, program = self.pool.options, self.program
        self.weight = program.measure.of(options)
        least = np.full(len(options), np.inf)
        for branch in self.branches:
            over, _ = over_of(branch, self.pool)
            least = np.minimum(least, np.maximum(branch.relaxed.bound + over, branch.bound))
        # Without any answer all options are out of reach.
        floor = self.floor if np.isfinite(self.floor) else -np.inf
        self.reduced: FloatArray = np.maximum(least - floor, 0.0)

    @property
    def floor(self) -> float:
        """What reduced costs are above: the least bound of the branches."""
        return self.branches[0].bound

    def _holds(self) -> bool:
        """Return whether the best answer keeps what the level requires."""
        chosen, program = self.incumbent.chosen, self.program
        options = self.pool.options.take(chosen)
        mine = program.in_play[options.server]
        fits = (program.shared(options)[mine].sum(axis=0) <= program.limits + 1e-9).all()
        return bool(fits and program.allowed(options)[mine].all())

    @property
    def cutoff(self) -> float:
        """What an answer has to be below to be better by enough."""
        return self.target.cutoff(self.value)

    @property
    def proved(self) -> bool:
        """Whether value and bound are as near as they have to be."""
        return self.feasible and self.value - self.bound <= self.target.distance(self.value)

    @property
    def gap(self) -> float:
        """Relative distance of value and bound that models are solved to."""
        if not (self.feasible and self.value):
            return self.target.gap / 2
        return self.target.distance(self.value) / abs(self.value) / 2

    def core(self, deadline: Deadline, guide: Branch | None = None) -> None:
        """Solve over the options that the relaxation uses, and those that it nearly uses.

        Args:
            deadline: when to stop.
            guide: another relaxation to choose the options by.
        """
        if self.proved or deadline.passed or (self.feasible and self._few_can_be_better()):
            return
        relaxed, reduced = self.root.relaxed, self.reduced
        if guide is not None:
            over, _ = over_of(guide, self.pool)
            relaxed, reduced = guide.relaxed, np.where(self.pool.options.served, over, 0.0)
            reduced = np.where(np.isfinite(self.reduced), reduced, np.inf)
        used = np.zeros(len(self.reduced), np.bool_)
        used[relaxed.used] = True
        others = np.where(used, np.inf, reduced)
        if self.feasible and self.small:
            others[self.reduced > self._wanted()] = np.inf
        few, *more = CORE_SIZES if guide is None else GUIDED_SIZES
        for wanted in (min(few, CORE_EACH * len(self.program.servers)), *more):
            near = np.argsort(others, kind="stable")[:wanted]
            core = used.copy()
            core[near[np.isfinite(others[near])]] = True
            if len(self.covered) and np.isin(np.flatnonzero(core), self.covered).all():
                return
            of_value = self.program.measure.on_value and not self.small
            most_s = VALUE_CORE_S if of_value else CORE_S
            result = self._solve(np.flatnonzero(core), min(deadline.left_s, most_s))
            room = float(others[near[-1]]) if of_value and len(near) else np.inf
            found = self.feasible or result.outcome is not Outcome.infeasible
            if self.proved or (found and self.value - self.floor <= FAR * room):
                return

    def branch(self, start: IntArray, deadline: Deadline) -> None:
        """Divide the level by servers that its relaxation leaves out in part, and look into the best branch.

        Args:
            start: options to begin with.
            deadline: when to stop.
        """
        if self.proved or deadline.passed or not self.feasible:
            return
        tree = self._tree(start, deadline.share(BRANCHES_SHARE))
        if tree is None:
            return
        self.bound = max(self.bound, tree.bound)
        self._extend()
        if tree.branches and tree.branches[0].depth and not self.small:
            self.core(deadline, tree.found[0])
            tree.lower(self.cutoff)
            self.bound = max(self.bound, tree.bound)
        if 0 < len(tree.branches) <= MOST_BRANCHES and tree.branches != self.branches:
            self.branches, self.unknown = tree.found, np.inf
            self._extend()

    def _tree(self, start: IntArray, deadline: Deadline) -> Tree | None:
        """Divide the level, over the options alone that count if they are known; none: there was no time."""
        cutoff, options = self.cutoff, self.options_of_better(MANY)
        if options is None:
            tree = Tree(self.root, self.pool, start, cutoff)
            tree.grow(deadline.share(UNKNOWN_SHARE))
            if tree.branches and self.small:
                options = self.options_of_better(_in_time(KNOWN_PER_S, deadline))
            if options is None:
                tree.grow(deadline)
                return tree
        rounds = ROUNDS if len(options) > CUT_OPTIONS else 0
        level = tightened(self.program, self.pool, options, cutoff, deadline, rounds)
        if level is None:
            return None
        tree = Tree(level.root, level.pool, level.start, cutoff, level.options)
        tree.grow(deadline)
        return tree

    def options_of_better(self, most: int, of: BoolArray | None = None) -> IntArray | None:
        """Return all options of answers that are better by enough; none: they are too many to know them.

        Args:
            most: options from which on they are too many.
            of: servers whose options are wanted, shape (S,); none: of all.
        """
        wanted = self._wanted()
        if not self._enumerate(wanted, most, of):
            return None
        return np.flatnonzero(self.reduced <= wanted)

    def rooms(self, deadline: Deadline, *, only_whole: bool = False) -> None:
        """Solve over more and more options, until nothing better can be left out or it takes too long.

        Args:
            deadline: when to stop.
            only_whole: whether to stop where there are too many options to know them all.
        """
        if self.small and self._packed(deadline):
            return
        for size in SIZES:
            if self.proved or deadline.passed or not self.feasible:
                return
            wanted = self._wanted()
            room = min(wanted, self._room_of(size))
            if self.floor + room <= self.bound:
                continue
            complete = self._enumerate(room, _in_time(SEARCHED_PER_S, deadline))
            time_s = deadline.left_s * (STEP_SHARE if room < wanted else 1.0)
            every = self.essential(np.flatnonzero(self.reduced <= room))
            options = self._nearest(every, int(min(MOST_OPTIONS, OPTIONS_PER_S * time_s)))
            complete &= len(options) == len(every)
            if only_whole and not complete:
                return
            before = self.value
            if complete and np.isin(options, self.covered).all():
                self._cover(room)
                if self.proved or room >= wanted:
                    return
                continue
            result = self._solve(options, time_s)
            if complete:
                self._cover(room)
            if room >= wanted or (result.outcome is Outcome.time_limit and self.value >= before):
                return

    def _cover(self, room: float) -> None:
        """Raise the bound by a model over all options of at most that reduced cost (eq. 93)."""
        self.bound = max(self.bound, min(self.covered_bound, self.floor + room, self.value))

    def _room_of(self, size: int) -> float:
        """Return the reduced cost that so many options stay below, infinity if there are no more."""
        possible = self.reduced[np.isfinite(self.reduced)]
        return float(np.partition(possible, size)[size]) if size < len(possible) else np.inf

    def _nearest(self, options: IntArray, most: int) -> IntArray:
        """Return the options of least reduced cost, at most so many."""
        if len(options) <= most:
            return options
        return options[np.argsort(self.reduced[options], kind="stable")[:most]]

    def _packed(self, deadline: Deadline) -> bool:
        """Divide the level until servers take one pattern each; return whether that was the way to go on."""
        if self.proved or deadline.passed or not self.feasible:
            return True
        wanted = self._wanted()
        if not self._enumerate(wanted, _in_time(SEARCHED_PER_S, deadline)):
            return False
        options = self.essential(np.flatnonzero(self.reduced <= wanted))
        if len(options) <= PACKED_OPTIONS:
            return False
        tree = packing_of(self._cut_program(), self.pool, options, self.target, self.value, deadline)
        if tree is None:
            return True
        if tree.branches and len(tree.pool.options) <= PACKED_OPTIONS:
            self.bound, self.branches = max(self.bound, tree.bound), tree.found
            self._extend()
            return False
        tree.grow(deadline)
        if tree.chosen is not None:
            self.offer(tree.chosen)
        self.bound = max(self.bound, min(tree.bound, self.value))
        return True

    def _cut_program(self) -> Program:
        """Return the level with the cuts that its branches keep to, which hold for every answer."""
        return replace(self.program, cuts=self.branches[0].program.cuts)

    def _wanted(self) -> float:
        """Return the reduced cost up to which options can be in an answer that is better by enough."""
        wanted = self.cutoff - self.floor
        return max(wanted, 0.0) * (1 + 1e-9) + 1e-12

    def _few_can_be_better(self) -> bool:
        """Return whether the options that an answer can have that is better by enough are few, and known."""
        wanted = self._wanted()
        known = int((self.reduced <= wanted).sum())
        return known <= FEW and self._enumerate(wanted, FEW) and int((self.reduced <= wanted).sum()) <= FEW

    def _enumerate(self, room: float, most: int = MOST_FOUND, of: BoolArray | None = None) -> bool:
        """Add every pattern of at most that reduced cost, of some servers or all; return if that could be."""
        most = min(most, self.most)
        if not len(self.pool.cases.server) or self.floor + room <= self.known:
            return True
        if self.floor + room >= self.unknown and most <= self.unknown_most:
            return False
        for branch in self.branches:
            if branch.options is not None:
                continue
            _, least = over_of(branch, self.pool)
            more = self.floor + room - branch.relaxed.bound
            limit = np.where(np.isfinite(least), least + more, -np.inf)
            limit = limit if of is None else np.where(of, limit, -np.inf)
            below = self.pool.below(branch.program, branch.relaxed.prices, limit, most)
            if not below.complete:
                if of is None:
                    self.unknown, self.unknown_most = self.floor + room, most
                return False
            self.pool.add(below.options)
        if of is None:
            self.known = self.floor + room
        self._extend()
        return True

    def essential(self, options: IntArray) -> IntArray:
        """Return those of some options that no other of them matches in all that counts."""
        return options[essential(self.program, self.pool.options.take(options))]

    def _solve(self, options: IntArray, time_s: float) -> RunResult:
        """Solve over some options and those of the best answer, and take over what is better."""
        start = None
        if self.feasible:
            mine = self.program.in_play[self.pool.options.server[self.incumbent.chosen]]
            own = self.incumbent.chosen[mine]
            options = np.union1d(options, own)
            start = np.isin(options, own).astype(np.float64)
        model = self._cut_program().model(self.pool.options.take(options))
        session = HighsSession(model, lean=self.small)
        simplified = len(options) <= SIMPLIFIED * len(self.program.servers)
        result = session.solve_at_once(self.weight[options], start, self.gap, time_s, simplified=simplified)
        self.covered = options
        self.covered_bound = np.inf if result.outcome is Outcome.infeasible else result.bound
        if result.x is not None:
            self.offer(options[result.x > 0.5])
        return result

    def offer(self, chosen: IntArray) -> None:
        """Take over an answer, as one option for each server in play, if it is better."""
        value = float(self.weight[chosen].sum())
        if not self.feasible or value < self.value:
            self.take_over(self.incumbent.completed(chosen))

    def take_over(self, replicas: IntArray) -> None:
        """Take over an answer, as replicas of each candidate, shape (C,), if it is better."""
        if not self.incumbent.offer(replicas):
            return
        self._extend()
        self.feasible = self._holds()
        if self.feasible:
            self.value = self.incumbent.of_level(self.weight)


def _in_time(per_s: float, deadline: Deadline) -> int:
    """Return how many options there is time for, at so many for each second."""
    return int(np.clip(per_s * deadline.left_s, MANY, MOST_FOUND))
