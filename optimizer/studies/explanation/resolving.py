"""Solving again: the plans of a system with one thing changed, and how two plans differ.

Sizing is done once. A changed question takes over the candidates that the change leaves as they are: with
rows left out, with other capacities, or with the rows of some servers sized anew.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Literal, TypeVar

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, frozen
from optimizer.candidates import Candidates, CandidateTable, find_candidates
from optimizer.parallel import in_threads, thread_count
from optimizer.pipeline import choose
from optimizer.plan import Plan, make_plan
from optimizer.solvers.deadline import Deadline, OutOfTimeError
from optimizer.solvers.limit_rows import LimitItem
from optimizer.solvers.objectives import VALUE
from optimizer.solvers.problem import build_problem
from optimizer.spec.caches import replica_load
from optimizer.spec.system import System
from optimizer.studies.explanation.before import with_bound
from optimizer.studies.explanation.document import Effect, ServiceChange

MIN_SHARE_CHANGE = 1e-9
"""Smaller differences of a served share are rounding."""
MIN_LEVEL_CHANGE = 1e-6
"""Smaller differences of served load [requests/min] or of numbers of servers are rounding."""

_Key = TypeVar("_Key")
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Inquiry:
    """The time for the questions of an explanation, and those that it left without an answer."""

    def __init__(self, deadline: Deadline, unanswered: list[str] | None = None) -> None:
        self.deadline = deadline
        self.unanswered: list[str] = [] if unanswered is None else unanswered

    def part(self, share: float) -> "Inquiry":
        """Return an inquiry that may use a share of the time left; what it leaves open is known to both."""
        return Inquiry(self.deadline.share(share), self.unanswered)

    def ask(
        self,
        work: Callable[[_Item, Deadline], _Result],
        questions: Mapping[_Key, _Item],
        words: Callable[[_Key], str],
    ) -> dict[_Key, _Result]:
        """Return the answers to those questions that are answered in time; the words are for the others.

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
        """Return the answers to those questions that are answered in time.

        Several are worked on at a time: the solver lets other threads run meanwhile. Each may take up to
        twice an equal share of the time left, or the least share of it where that is more: few answers are
        worth more than many beginnings.

        Raises:
            SolverError: the solver failed.
        """

        def answer(numbered: tuple[int, _Item]) -> tuple[_Result] | None:
            place, item = numbered
            try:
                share = share_of(len(questions) - place, least_share)
                return (work(item, self._in_time(share)),)
            except OutOfTimeError:
                return None

        answers = in_threads(answer, list(enumerate(questions.values())))
        return {key: found[0] for key, found in zip(questions, answers, strict=True) if found}

    def _in_time(self, share: float) -> Deadline:
        if self.deadline.passed:
            raise OutOfTimeError
        return self.deadline.share(share)


def share_of(waiting: int, least_share: float) -> float:
    """Return the part of the time left that a question may take, of several that wait with it."""
    threads = thread_count()
    return min(max(2 * threads / (waiting + threads), least_share), 1.0)


def plan_of(candidates: Candidates, deadline: Deadline) -> Plan:
    """Return the best plan that candidates allow, as far as it is found by the deadline.

    Args:
        candidates: what to choose from.
        deadline: when to stop.

    Raises:
        OutOfTimeError: the deadline has passed.
        SolverError: the solver failed.
    """
    if deadline.passed:
        raise OutOfTimeError
    problem = build_problem(candidates)
    return make_plan(candidates, problem, choose(problem, deadline=deadline))


# --- changed questions -----------------------------------------------------------------------------------


def on_accelerators(candidates: Candidates, server: int, accelerators: Sequence[int]) -> Candidates:
    """Return the candidates with those of one server only on the given accelerators."""

    def kept(table: CandidateTable) -> CandidateTable:
        return table.take((table.server != server) | np.isin(table.accelerator, accelerators))

    return candidates.with_tables(kept)


def with_more(candidates: Candidates, items: Sequence[LimitItem], added: FloatArray | IntArray) -> Candidates:
    """Return the candidates with other amounts of what is limited.

    Args:
        candidates: of the plan.
        items: what is limited, R items.
        added: what is added to each of them, shape (R,); below zero: taken away.
    """
    more = dict(candidates.more)
    for place in np.flatnonzero(added).tolist():
        key = items[place].key
        more[key] = more.get(key, 0.0) + float(added[place])
    return replace(candidates, more=more)


def with_targets_of(candidates: Candidates, system: System, servers: BoolArray) -> Candidates:
    """Return the candidates of a system that differs in the targets of some servers, shape (S,), only.

    Only these are sized again.
    """
    index = np.flatnonzero(servers)
    names = [candidates.arrays.server_names[s] for s in index]
    few = MappingProxyType({name: system.servers[name] for name in names})
    fresh = find_candidates(replace(system, servers=few))

    def joined(old: CandidateTable, new: CandidateTable) -> CandidateTable:
        renamed = replace(new, server=frozen(index[new.server]))
        return CandidateTable.joined([old.take(~servers[old.server]), renamed])

    return candidates.with_tables(joined, fresh)


# --- how two plans differ --------------------------------------------------------------------------------


def effect(before: Plan, after: Plan, system: System) -> Effect:
    """Return the difference between the plans before and after a change."""
    shares = [{item.server: item.served_fraction for item in plan.unserved} for plan in (before, after)]
    changes, named = [], system.named
    for name in shares[0].keys() | shares[1].keys():
        was, is_now = shares[0].get(name, 1.0), shares[1].get(name, 1.0)
        in_full = [name not in mine for mine in shares]
        if abs(is_now - was) > MIN_SHARE_CHANGE or in_full[0] != in_full[1]:
            change = ServiceChange(
                server=name,
                priority=system.priority(named[name]),
                load_change_rpm=carried_rpm(after, name) - carried_rpm(before, name),
                served_before=was,
                served_after=is_now,
                in_full_before=in_full[0],
                in_full_after=in_full[1],
            )
            changes.append(change)
    service = tuple(sorted(changes, key=lambda item: (item.priority, item.server)))
    return Effect(
        cost_change_cents_per_h=_rounded(after.total_cost_cents_per_h - before.total_cost_cents_per_h),
        value_change_cents_per_h=_rounded(after.objective - before.objective),
        serves=_verdict(before, after, service),
        service=service,
        without_reserve_change_rpm=_without_reserve(after, system) - _without_reserve(before, system),
        open_cents_per_h=_open(before, after),
    )


def _verdict(before: Plan, after: Plan, service: Sequence[ServiceChange]) -> Literal["same", "more", "less"]:
    """Compare the load that two plans serve: by priority, first in full, then in part.

    Idle servers do not count because they have no load.
    """
    for priority in sorted({item.priority for item in service}):
        here = [item for item in service if item.priority == priority and not item.is_idle]
        turned = [(item, item.in_full_after - item.in_full_before) for item in here]
        for changes in (
            [sign * carried_rpm(after if sign > 0 else before, item.server) for item, sign in turned],
            [float(sign) for _, sign in turned],
            [item.load_change_rpm for item in here],
        ):
            change = sum(changes)
            if abs(change) > MIN_SHARE_CHANGE * sum(map(abs, changes)):
                return "more" if change > 0 else "less"
    return "same"


def no_worse(before: Plan, after: Plan) -> Plan:
    """Return the plan after a change under which the plan before is possible, too.

    A solver that stopped early may have found less than that: then nothing changes, with the bounds of the
    plan after.
    """
    if after.status != "feasible":
        return after
    for was, is_now in zip(before.levels, after.levels, strict=True):
        if abs(is_now.value - was.value) > MIN_LEVEL_CHANGE:
            if is_now.value < was.value:
                return after
            levels = zip(before.levels, after.levels, strict=True)
            bounded = tuple(with_bound(kept, new.bound) for kept, new in levels)
            return before.model_copy(update={"levels": bounded, "status": "feasible"})
    return after


def carried_rpm(plan: Plan, server: str) -> float:
    """Return the load that a plan serves of a server."""
    rented = sum(item.arrival_rate_rpm for item in plan.rented if item.server == server)
    rented += sum(rates.get(server, 0.0) for rates in plan.served_in_queues_rpm.values())
    return sum(pool.arrival_rate_rpm for pool in plan.pools_of(server)) + rented


def _without_reserve(plan: Plan, system: System) -> float:
    """Return the load that a plan serves in full without its reserve [requests/min]."""
    lacking = [item.server for item in plan.reserves if not item.has_reserve]
    return float(sum(replica_load(system.servers[name]).arrival_rate_rpm for name in lacking))


def _rounded(difference: float) -> float:
    """Return a difference of sums without what rounding left of it: integer billionths of a cent."""
    return round(difference, 9) + 0.0


def _open(*plans: Plan) -> float | None:
    """Return the sum of the unproved values of some plans, None if service is not proved."""
    total = 0.0
    for level in (level for plan in plans for level in plan.levels):
        if level.bound is None or (level.gap and level.name.startswith("priority")):
            return None
        if level.name == VALUE:
            total += max(level.value - level.bound, 0.0)
    return total
