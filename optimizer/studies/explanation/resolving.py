"""Solves a system again with one change, and compares the two plans.

Sizing is done once. A question reuses the candidates that its change does not affect: some candidates are
removed, capacities differ, or only some servers are sized again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Literal, TypeVar

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, frozen, totals
from optimizer.candidates import Candidates, CandidateTable, find_candidates
from optimizer.features.shared_cards.offers import find_patterns
from optimizer.parallel import in_threads, thread_count
from optimizer.pipeline import solve_problem
from optimizer.solvers.deadline import Deadline, OutOfTimeError
from optimizer.solvers.limit_rows import LimitItem
from optimizer.solvers.objectives import VALUE
from optimizer.solvers.problem import build_problem
from optimizer.solvers.solution import Status
from optimizer.spec.system import System
from optimizer.studies.explanation.explanation_document import Effect, ServiceChange
from optimizer.studies.explanation.outcome import PlanOutcome
from optimizer.tolerances import ROUNDING, SAME

_Key = TypeVar("_Key")
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class QuestionBudget:
    """Time limit that the questions of an explanation share, and the list of questions left unanswered."""

    def __init__(self, deadline: Deadline, unanswered: list[str] | None = None) -> None:
        self.deadline = deadline
        self.unanswered: list[str] = [] if unanswered is None else unanswered

    def part(self, share: float) -> "QuestionBudget":
        """Return a budget with a fraction of the remaining time.

        Both budgets share the list of unanswered questions.
        """
        return QuestionBudget(self.deadline.share(share), self.unanswered)

    def ask(
        self,
        work: Callable[[_Item, Deadline], _Result],
        questions: Mapping[_Key, _Item],
        words: Callable[[_Key], str],
    ) -> dict[_Key, _Result]:
        """Return the answers that are found in time, and list the other questions as unanswered.

        Args:
            work: function that answers a question by a deadline.
            questions: questions by key.
            words: function that returns the text of a question for the list.

        Raises:
            SolverError: the solver failed.
        """
        answers = self.attempt(work, questions)
        self.unanswered += [words(key) for key in questions if key not in answers]
        return answers

    def attempt(
        self,
        work: Callable[[_Item, Deadline], _Result],
        questions: Mapping[_Key, _Item],
        least_share: float = 0.0,
    ) -> dict[_Key, _Result]:
        """Return the answers that are found in time.

        Questions are solved in parallel threads, because the solver releases the GIL. Each can use up to
        twice an equal share of the remaining time, but at least `least_share` of it: a few complete answers
        are worth more than many incomplete ones.

        Raises:
            SolverError: the solver failed.
        """

        def answer(numbered: tuple[int, _Item]) -> tuple[_Result] | None:
            place, item = numbered
            if self.deadline.passed:
                return None
            try:
                share = share_of(len(questions) - place, least_share)
                return (work(item, self.deadline.share(share)),)
            except OutOfTimeError:
                return None

        answers = in_threads(answer, list(enumerate(questions.values())))
        return {key: attempts[0] for key, attempts in zip(questions, answers, strict=True) if attempts}


def share_of(waiting: int, least_share: float) -> float:
    """Return the fraction of the remaining time that a question can use if `waiting` questions remain."""
    threads = thread_count()
    return min(max(2 * threads / (waiting + threads), least_share), 1.0)


def solved(candidates: Candidates, deadline: Deadline) -> PlanOutcome:
    """Return the best plan for candidates found by the deadline.

    Args:
        deadline: time at which to stop.

    Raises:
        OutOfTimeError: the deadline has passed.
        SolverError: the solver failed.
    """
    if deadline.passed:
        raise OutOfTimeError
    problem = build_problem(candidates)
    return PlanOutcome.of_solution(candidates, problem, solve_problem(problem, deadline=deadline))


# --- changed questions -----------------------------------------------------------------------------------


def on_accelerators(
    candidates: Candidates, server: int, accelerators: Sequence[int], *, shared: bool = True
) -> Candidates:
    """Return the candidates of a system in which one server is restricted to some accelerators.

    Args:
        candidates: candidates of the plan.
        server: index of the server.
        accelerators: indices of the accelerators.
        shared: whether the server can also share cards.
    """

    def kept(table: CandidateTable) -> CandidateTable:
        return table.take((table.server != server) | np.isin(table.accelerator, accelerators))

    result = candidates.with_tables(kept)
    if shared or result.shared is None:
        return result
    others = result.shared.servers != server
    return replace(
        result,
        shared=replace(
            result.shared,
            servers=frozen(result.shared.servers[others]),
            load_rps=frozen(result.shared.load_rps[others]),
        ),
    )


def with_more(candidates: Candidates, items: Sequence[LimitItem], added: FloatArray | IntArray) -> Candidates:
    """Return the candidates of a system with changed amounts of limited items.

    Args:
        candidates: candidates of the plan.
        items: the R limited items.
        added: amount added to each item, shape (R,); negative values reduce it.
    """
    added_by_key = [(items[place].key, float(added[place])) for place in np.flatnonzero(added).tolist()]
    return replace(candidates, extra_amounts=totals([*candidates.extra_amounts.items(), *added_by_key]))


def with_targets_of(candidates: Candidates, system: System, servers: BoolArray) -> Candidates:
    """Return the candidates of a system that differs only in the targets of some servers.

    Only these servers, a mask of shape (S,), are sized again.
    """
    index = np.flatnonzero(servers)
    names = [candidates.arrays.server_names[s] for s in index]
    few = MappingProxyType({name: system.servers[name] for name in names})
    fresh = find_candidates(replace(system, servers=few))
    if candidates.shared is not None and servers[candidates.shared.servers].any():
        candidates = replace(candidates, shared=find_patterns(system, find_candidates))

    def joined(old: CandidateTable, new: CandidateTable) -> CandidateTable:
        renamed = replace(new, server=frozen(index[new.server]))
        return CandidateTable.joined([old.take(~servers[old.server]), renamed])

    # The partial service of queues is sized when it is allocated, by the targets of the system.
    return replace(candidates.with_tables(joined, fresh), system=system)


# --- how two plans differ --------------------------------------------------------------------------------


def effect(before: PlanOutcome, after: PlanOutcome, system: System) -> Effect:
    """Return the effect of a change: the difference between the plans before and after it."""
    shares = [before.served_fraction, after.served_fraction]
    changes, servers = [], system.in_plans
    for name in shares[0].keys() | shares[1].keys():
        was, is_now = shares[0].get(name, 1.0), shares[1].get(name, 1.0)
        in_full = [name not in mine for mine in shares]
        if abs(is_now - was) > ROUNDING or in_full[0] != in_full[1]:
            change = ServiceChange(
                server=name,
                priority=system.priority(servers[name]),
                load_change_rpm=after.carried_rpm.get(name, 0.0) - before.carried_rpm.get(name, 0.0),
                served_before=was,
                served_after=is_now,
                in_full_before=in_full[0],
                in_full_after=in_full[1],
            )
            changes.append(change)
    service = tuple(sorted(changes, key=lambda item: (item.priority, item.server)))
    return Effect(
        cost_change_cents_per_h=_rounded(after.total_cost_cents_per_h - before.total_cost_cents_per_h),
        value_change_cents_per_h=_rounded(after.value_cents_per_h - before.value_cents_per_h),
        serves=_verdict(before, after, service),
        service=service,
        reserves_lost=tuple(sorted(before.has_reserve & after.lacks_reserve)),
        reserves_gained=tuple(sorted(before.lacks_reserve & after.has_reserve)),
        open_cents_per_h=_open(before, after),
    )


def _verdict(
    before: PlanOutcome, after: PlanOutcome, service: Sequence[ServiceChange]
) -> Literal["same", "more", "less"]:
    """Compare the load that two plans serve: by priority, first the load served in full, then in part.

    Idle servers do not count because they have no load.
    """
    for priority in sorted({item.priority for item in service}):
        here = [item for item in service if item.priority == priority and not item.is_idle]
        turned = [(item, item.in_full_after - item.in_full_before) for item in here]
        for changes in (
            [
                sign * (after if sign > 0 else before).carried_rpm.get(item.server, 0.0)
                for item, sign in turned
            ],
            [float(sign) for _, sign in turned],
            [item.load_change_rpm for item in here],
        ):
            change = sum(changes)
            if abs(change) > ROUNDING * sum(map(abs, changes)):
                return "more" if change > 0 else "less"
    return "same"


def no_worse(before: PlanOutcome, after: PlanOutcome) -> PlanOutcome:
    """Return the plan after a change, or the plan before if that is better and still feasible.

    A solver that is stopped early can return a plan that is worse than the one before. Then the plan before
    is returned, with the bounds of the plan after.
    """
    if after.status is not Status.feasible:
        return after
    for was, is_now in zip(before.levels, after.levels, strict=True):
        if abs(is_now.value - was.value) > SAME:
            if is_now.value < was.value:
                return after
            bounded = before.with_bounds({level.name: level.bound for level in after.levels})
            return replace(bounded, status=Status.feasible)
    return after


def _rounded(difference: float) -> float:
    """Round a difference of sums to billionths of a cent, to remove rounding errors."""
    return round(difference, 9) + 0.0


def _open(*plans: PlanOutcome) -> float | None:
    """Return the sum over plans of value minus bound [cents/h]; None if a service level is unproved."""
    total = 0.0
    for level in (level for plan in plans for level in plan.levels):
        if level.bound is None or (level.gap and level.name.startswith("priority")):
            return None
        if level.name == VALUE:
            total += max(level.value - level.bound, 0.0)
    return total
