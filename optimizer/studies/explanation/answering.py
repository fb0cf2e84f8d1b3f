"""Answers what-if questions about a plan: with proof if time permits, otherwise with an interval.

The remaining time is spent in this order:

1. If the plan's problem consists of blocks, they are solved (`BLOCKS_SHARE`), and questions reuse them.
2. Each question gets a short solve in this process (`FIRST_SHARE`), which proves the easy ones.
3. Two rounds solve the open questions (`ROUNDS`), in other processes if there are many. A question may take
   longer than an equal share of the time, because an interrupted solve proves nothing.
4. Questions that are still open get an interval (`DRAFT_S`).
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from optimizer.candidates import Candidates
from optimizer.parallel import in_processes, may_start_processes, start_processes, wake_processes
from optimizer.pipeline import solve_problem
from optimizer.solvers.blocks import solve_in_blocks
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.merging import merged_bounds
from optimizer.solvers.problem import Problem, build_problem, topologies_of
from optimizer.solvers.related import RelatedSolution
from optimizer.solvers.solution import Solution, Status
from optimizer.spec.streams import has_members
from optimizer.spec.system import System
from optimizer.studies.explanation.base_plan import BasePlan
from optimizer.studies.explanation.explanation_document import Effect, EffectRange
from optimizer.studies.explanation.intervals import Direction, interval_of
from optimizer.studies.explanation.outcome import PlanOutcome
from optimizer.studies.explanation.resolving import QuestionBudget, effect, no_worse, share_of
from optimizer.tolerances import ROUNDING

BLOCKS_SHARE = 0.2
"""Fraction of the remaining time for solving the plan in blocks, which questions about other blocks reuse."""
FIRST_SHARE = 0.05
"""Fraction of the remaining time for the first short solve of every question. It is small because it uses one
process only; with 0, no process would know which questions are hard.
"""
ROUNDS = ((0.8, 0.05), (1.0, 0.5))
"""For each later round: fraction of the remaining time, and minimum fraction of that for one question.

The first round gives many questions a chance. The last one gives a few questions half of the time each:
a few proved answers are worth more than many interrupted ones. Equal shares for all questions proved 8 %
fewer answers at 40 servers.
"""
SHORT_SHARE = 0.08
"""Fraction of its time limit that a question can use if recent questions were not proved, so that the time
goes to questions that are proved at once.
"""
IN_VAIN = 4
"""Number of long solves without a proof after which `SHORT_SHARE` applies."""
MANY_LEFT = 10
"""Number of open questions after the first round from which processes are started to answer them; fewer are
solved before the processes are ready.
"""
STARTING_S = 4.0
"""Minimum remaining time for which processes are started, which takes up to half of it [s]."""
MANY_SERVERS = 20
"""Number of servers in a scarce mixed fleet from which processes are started before it is planned, because it
will leave more than `MANY_LEFT` questions.
"""
MUCH_TIME_S = 10.0
"""Minimum time limit for which processes are started before the plan is found [s]; with less, the plan itself
needs the cores.
"""
DRAFT_S = 0.02
"""Time reserved for computing the interval of each question [s]."""
DRAFTS_SHARE = 0.2
"""Maximum fraction of the remaining time that is reserved for intervals, however many questions there are."""

_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class Question:
    """A what-if question: the plan of a system with one change."""

    change: Callable[[], Candidates]
    """Function that returns the candidates of the changed system."""
    may_be: Direction
    """Direction in which the change can move the optimum."""
    carries_more: bool = False
    """Whether the change only lets some candidates carry more load."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Best plan found for a what-if question, and the uncertainty of its effect."""

    outcome: PlanOutcome
    interval: EffectRange | None
    """Interval of the change of the first unproved level; None if all are proved."""


def effect_of(before: BasePlan, answer: Answer) -> Effect:
    """Return the difference between the plan that answers a question and the original plan."""
    change = effect(before.outcome, answer.outcome, before.candidates.system)
    return change.model_copy(update={"interval": answer.interval})


def all_answers(
    before: BasePlan, questions: Mapping[_Key, Question], budget: QuestionBudget
) -> dict[_Key, Answer]:
    """Answer all questions: solved if there is time, otherwise bounded without a solve.

    Raises:
        SolverError: the solver failed.
    """
    asked = {key: _OpenQuestion(before, question) for key, question in questions.items()}
    before.find_blocks(_choose, budget.deadline.share(BLOCKS_SHARE))
    started = len(asked) >= MANY_LEFT and _expects_many(before.candidates.system) and may_start_processes()
    if not started:
        _time_beside_intervals(budget, len(asked)).part(FIRST_SHARE).attempt(_OpenQuestion.solve, asked)
    for share, least in ROUNDS:
        left = _unproved(asked)
        solving = _time_beside_intervals(budget, len(left))
        if (
            not started
            and before.blocks is None
            and len(left) >= MANY_LEFT
            and solving.deadline.left_s >= STARTING_S
        ):
            started = may_start_processes()
        if started:
            wake_processes(_wake)
            _solve_in_processes(list(left.values()), solving.deadline.share(share), least)
        else:
            solving.part(share).attempt(_OpenQuestion.solve, left, least)
    left = {key: item for key, item in asked.items() if item.interval is not None or item.outcome is None}
    if left:
        before.find_multipliers(budget.deadline)
    for item in left.values():
        item.bound(budget.deadline)
    return {key: item.answer for key, item in asked.items()}


def _unproved(asked: Mapping[_Key, "_OpenQuestion"]) -> dict[_Key, "_OpenQuestion"]:
    """Return the unproved questions: those with the fewest attempts first, easy ones first among equals."""
    left = [(key, item) for key, item in asked.items() if not item.proved]
    return dict(sorted(left, key=lambda each: (each[1].attempts, not each[1].easy)))


def _time_beside_intervals(budget: QuestionBudget, questions: int) -> QuestionBudget:
    """Return the budget for solving, which leaves time to compute the intervals of all questions."""
    kept_s = min(DRAFT_S * questions, DRAFTS_SHARE * budget.deadline.left_s)
    return QuestionBudget(budget.deadline.later(-kept_s))


def expect_questions(system: System) -> None:
    """Start processes before the plan is found, if many questions about it are expected."""
    if _expects_many(system):
        start_processes(_wake)


def _expects_many(system: System) -> bool:
    """Return whether a fleet has many questions that cannot be answered immediately."""
    options = system.options
    scarce = options.heterogeneous and not options.unlimited and not _in_blocks(system)
    return scarce and len(system.servers) >= MANY_SERVERS and options.time_limit_s >= MUCH_TIME_S


def _in_blocks(system: System) -> bool:
    """Return whether what-if questions about a system are solved in blocks."""
    return bool(topologies_of(system)) or any(map(has_members, system.servers.values()))


def _choose(problem: Problem, deadline: Deadline) -> Solution:
    return solve_problem(problem, deadline=deadline)


def _wake(_: int) -> None:
    """Do nothing; calling this in another process makes it import this module."""


@dataclass(frozen=True, slots=True)
class _Task:
    """A what-if question in the form in which it is sent to another process."""

    problem: Problem
    related: RelatedSolution | None
    deadline: Deadline
    """Deadline of all tasks of a round."""
    limit_s: float
    """Time limit of this task, if that much time remains [s]."""

    def solve(self) -> Solution | None:
        """Solve the question, and return the solution; None if no time is left."""
        if self.deadline.passed:
            return None
        due = self.deadline.sooner(Deadline.after(self.limit_s))
        return solve_problem(self.problem, deadline=due, related=self.related)

    def timed(self) -> tuple[Solution | None, float]:
        """Solve the question, and return the solution and the solve time [s]."""
        begin = time.perf_counter()
        return self.solve(), time.perf_counter() - begin


def _solve_in_processes(items: Sequence["_OpenQuestion"], deadline: Deadline, least_share: float) -> None:
    """Solve questions by a deadline in parallel processes."""
    sent: list[_OpenQuestion] = []
    pace = _Pace(deadline.left_s * share_of(len(items), least_share))

    def tasks() -> Iterator[_Task]:
        for item in items:
            if not deadline.passed and not item.settle_unchanged():
                sent.append(item)
                yield item.task(deadline, pace.limit_s)

    for place, (solution, took_s) in enumerate(in_processes(_Task.timed, tasks())):
        if solution is not None:
            sent[place].take(solution)
            pace.note(took_s, proved=sent[place].proved)


class _Pace:
    """Time limit of a question, adapted to the outcomes of earlier questions.

    If hardly any earlier question was proved, the next ones get a short limit, which suffices for those that
    are proved at once.
    """

    def __init__(self, most_s: float) -> None:
        self.most_s, self.short_s = most_s, most_s * SHORT_SHARE
        self.proved = self.stopped = 0

    def note(self, took_s: float, *, proved: bool) -> None:
        """Record whether a question was proved, and the time that it took [s]."""
        if took_s > self.short_s:
            self.proved += proved
            self.stopped += not proved

    @property
    def limit_s(self) -> float:
        """Time limit of the next question [s]."""
        in_vain = self.stopped >= IN_VAIN and self.stopped > 2 * self.proved
        return self.short_s if in_vain else self.most_s


class _OpenQuestion:
    """A what-if question and the best answer known so far."""

    def __init__(self, before: BasePlan, question: Question) -> None:
        self.before, self.question = before, question
        self.outcome: PlanOutcome | None = None
        self.attempts = 0
        """Number of solves of this question, proved or not."""

    @cached_property
    def candidates(self) -> Candidates:
        """Candidates of the changed system, created on first use."""
        return self.question.change()

    @cached_property
    def easy(self) -> bool:
        """Whether service is known without a solve, because the plan does not use the removed item."""
        return self.restricts and self.before.still_serves(build_problem(self.candidates))

    @property
    def restricts(self) -> bool:
        """Whether the change only removes something from the system."""
        return self.question.may_be == "worse"

    @property
    def interval(self) -> EffectRange | None:
        """Interval of the first unproved change; None if all are proved."""
        if self.outcome is None:
            return None
        return interval_of(self.before.outcome, self.outcome, self.question.may_be, self.before.ordered)

    @property
    def proved(self) -> bool:
        """Whether another solve cannot improve the answer."""
        known = self.outcome
        return known is not None and (known.status is Status.optimal or self.interval is None)

    @property
    def answer(self) -> Answer:
        """The best answer known so far."""
        assert self.outcome is not None
        return Answer(self.outcome, self.interval)

    def solve(self, deadline: Deadline) -> None:
        """Solve the question by a deadline, and keep improvements of the answer."""
        if not self.settle_unchanged():
            solution = self._solution(deadline)
            if solution is not None:
                self.take(solution)

    def _solution(self, deadline: Deadline) -> Solution | None:
        if self.before.blocks is None or deadline.passed:
            return self.task(deadline, deadline.left_s).solve()
        return solve_in_blocks(build_problem(self.candidates), _choose, deadline, self.before.blocks).solution

    def settle_unchanged(self) -> bool:
        """Take the plan as the answer if the change affects no choice; return whether that is so."""
        same = self.before.unchanged(self.candidates)
        if same:
            self.outcome = self.before.outcome
        return same

    def task(self, deadline: Deadline, limit_s: float) -> _Task:
        """Return the task that solves the question in another process."""
        problem = build_problem(self.candidates)
        related = self.before.related(
            problem, restricts=self.restricts, carries_more=self.question.carries_more
        )
        return _Task(problem, related, deadline, limit_s)

    def take(self, solution: Solution) -> None:
        """Replace the answer by a solution if that is better or proves more."""
        self.attempts += 1
        self._take(PlanOutcome.of_solution(self.candidates, build_problem(self.candidates), solution))

    def bound(self, deadline: Deadline) -> None:
        """Bound the answer without a solve; after the deadline, use bounds that hold for any solution."""
        if deadline.passed and not self.restricts:
            self._take(self.before.unexamined())
        else:
            self._take(self.before.draft(self.candidates, restricts=self.restricts))

    def _take(self, outcome: PlanOutcome) -> None:
        """Keep the proved plan, or else the better of the known and the new one, with the better bounds."""
        known = None if outcome.status is Status.optimal else self.outcome
        best = outcome if known is None else _joined(known, outcome)
        self.outcome = best if self.restricts else no_worse(self.before.outcome, best)


def _joined(first: PlanOutcome, second: PlanOutcome) -> PlanOutcome:
    """Return the better of two plans, the first if they are equal, with the better bound of each level."""
    best, other = (second, first) if _is_better(second, first) else (first, second)
    bounds = merged_bounds(best.levels, other.levels)
    return best.with_bounds({level.name: bound for level, bound in zip(best.levels, bounds, strict=True)})


def _is_better(one: PlanOutcome, other: PlanOutcome) -> bool:
    for mine, theirs in zip(one.levels, other.levels, strict=True):
        if not _equal(mine.value, theirs.value):
            return mine.value < theirs.value
    return False


def _equal(one: float, other: float) -> bool:
    return abs(one - other) <= ROUNDING * max(1.0, abs(one))
