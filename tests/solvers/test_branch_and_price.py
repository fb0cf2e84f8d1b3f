"""One pattern per server: against the compact model, exhaustive search and plain enumeration."""

import itertools
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from mixed_oracles import random_mixed_document
from slow_cases import mostly_slow

from optimizer import find_candidates, load_system, solve
from optimizer.arrays import FloatArray, IntArray
from optimizer.generate import generate_system
from optimizer.milp.highs import HighsSession
from optimizer.pipeline import solve_problem
from optimizer.solvers.branch_and_price.bounds import lagrangian_bound
from optimizer.solvers.branch_and_price.candidates import PatternCandidates, candidates_of
from optimizer.solvers.branch_and_price.master import MasterProblem
from optimizer.solvers.branch_and_price.pool import ColumnPool, PricingResult
from optimizer.solvers.branch_and_price.pricing import EnumeratedPatterns, enumerate_patterns, subproblems_of
from optimizer.solvers.branch_and_price.search import LevelSearch
from optimizer.solvers.branch_and_price.solve import solve_patterns
from optimizer.solvers.compact import solve_milp
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.exact import solve_exactly
from optimizer.solvers.levels import is_better, served, transition_value
from optimizer.solvers.problem import Problem, build_problem
from optimizer.solvers.related import RelatedSolution
from optimizer.solvers.solution import Solution, Status
from optimizer.solvers.warm_starts import best_initial_solution


@cache
def random_problem(seed: int, *, mixed: bool) -> Problem:
    system = load_system(random_mixed_document(seed)).with_options(heterogeneous=mixed, unlimited=False)
    return build_problem(find_candidates(system))


@cache
def scarce_problem(servers: int, tightness: float, *, mixed: bool) -> Problem:
    system = generate_system(servers, 10, 4, 3, tightness).with_options(heterogeneous=mixed)
    return build_problem(find_candidates(system))


def assert_equal(found: Solution, other: Solution) -> None:
    assert found.status is other.status is Status.optimal
    for mine, theirs in zip(found.levels, other.levels, strict=True):
        assert mine.value == pytest.approx(theirs.value, rel=1e-9, abs=1e-6), mine.name
        assert mine.bound == pytest.approx(theirs.bound, rel=1e-7, abs=1e-6), mine.name


# --- against other ways to the same answer ---------------------------------------------------------------


@pytest.mark.few(3)
@pytest.mark.parametrize(("seed", "mixed"), mostly_slow(itertools.product(range(540), (True, False)), 30))
def test_patterns_and_replica_counts_agree_at_every_level(seed: int, mixed: bool) -> None:  # noqa: FBT001
    problem = random_problem(seed, mixed=mixed)
    assert_equal(solve_patterns(problem), solve_milp(problem, HighsSession))


@pytest.mark.slow
@pytest.mark.parametrize("mixed", [True, False])
def test_a_scarce_fleet_has_the_same_answer_in_both_formulations(mixed: bool) -> None:  # noqa: FBT001
    problem = scarce_problem(20, 1.7, mixed=mixed)
    assert not problem.options.gap
    assert_equal(solve_patterns(problem), solve_milp(problem, HighsSession))


def first_difference(one: Solution, other: Solution) -> str | None:
    """Return the first level at which one answer is below what the other proves, if there is one."""
    for mine, theirs in zip(one.levels, other.levels, strict=True):
        slack = 1e-6 * max(1.0, abs(mine.value))
        for found, bound in ((mine, theirs), (theirs, mine)):
            if bound.bound is not None and found.value < bound.bound - slack:
                return f"{mine.name}: {found.value} is below the bound {bound.bound}"
        if abs(mine.value - theirs.value) > slack:
            return None if Status.feasible in (one.status, other.status) else f"{mine.name} differs"
    return None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_patterns_and_replica_counts_agree_on_fifty_servers(seed: int) -> None:
    source = generate_system(50, 10, 5, seed, tightness=1.1 + 0.1 * (seed % 6))
    problem = build_problem(find_candidates(source.with_options(heterogeneous=bool(seed % 2), gap=0.0)))
    priced = solve_patterns(problem, Deadline.after(20.0))  # what one of them does not prove is compared by
    counted = solve_milp(problem, HighsSession, Deadline.after(20.0))  # its bounds
    assert first_difference(priced, counted) is None


# --- the search ------------------------------------------------------------------------------------------


def every_pattern(problem: Problem, candidates: PatternCandidates, server: int) -> list[dict[int, int]]:
    """Return every multiset of replicas that serves a server, each count up to what serves it alone."""
    mine = np.flatnonzero((candidates.server == server) & candidates.divisible)
    load = 1 - 1e-9 if problem.load_rps[server] > 0 else 0.0
    least, most = int(problem.min_replicas[server]), int(problem.max_replicas[server])
    alone = [max(int(np.ceil(load / candidates.share[c])), least, 1) for c in mine]
    found = []
    for counts in itertools.product(*(range(n + 1) for n in alone)):
        carried = float(np.array(counts) @ candidates.share[mine])
        if max(least, 1) <= sum(counts) <= most and carried >= load - 1e-12:
            found.append({int(c): n for c, n in zip(mine, counts, strict=True) if n})
    return found


def weights(found: EnumeratedPatterns, each: FloatArray) -> FloatArray:
    """Return the weight of each pattern, from that of a replica of each candidate."""
    total: FloatArray = (np.where(found.candidate >= 0, each[found.candidate], 0.0) * found.count).sum(axis=1)
    return total


@pytest.mark.few(10)
@pytest.mark.parametrize("only_best", [False, True])
@pytest.mark.parametrize("seed", range(25))
def test_pricing_finds_the_cheapest_pattern_of_every_server(seed: int, *, only_best: bool) -> None:
    problem = random_problem(seed, mixed=True)
    candidates, rng = candidates_of(problem), np.random.default_rng(seed)
    subproblems = subproblems_of(problem, candidates)
    prices = rng.uniform(0, 20, len(candidates.amount)) * rng.integers(0, 2, len(candidates.amount))
    kind = candidates.row_used[:, 0]
    units = candidates.use[:, 0] * candidates.divisor[kind]
    weight = candidates.cost + prices[kind] * units
    limit = np.full(len(subproblems.server), np.inf)
    found = enumerate_patterns(candidates, subproblems, weight, limit, only_best=only_best)
    assert not found.cut.any()
    exist = candidates.amount * candidates.divisor
    best = np.full(len(problem.priority), np.inf)
    for case, part, count, cost in zip(
        found.subproblem, found.candidate, found.count, weights(found, weight), strict=True
    ):
        taken = np.bincount(kind[part], count * units[part] * (part >= 0), len(exist))
        assert (count * units[part] <= exist[kind[part]]).all()
        if (taken <= exist).all():
            best[subproblems.server[case]] = min(
                best[subproblems.server[case]], cost + subproblems.value[case]
            )
    for server in np.unique(subproblems.server):
        costs = []
        for pattern in every_pattern(problem, candidates, int(server)):
            total = np.zeros(len(exist))
            for part, count in pattern.items():
                total[kind[part]] += count * units[part]
            if (total > exist).any():
                continue
            replicas = np.zeros(len(problem.table), np.int64)
            for part, count in pattern.items():
                replicas[candidates.row[part]] = count
            alone = problem.of_servers(np.arange(len(problem.priority)) == server)
            paid = sum(units[c] * n * prices[kind[c]] for c, n in pattern.items())
            costs.append(transition_value(alone, replicas[problem.table.server == server]) + paid)
        assert best[server] == pytest.approx(min(costs, default=np.inf), abs=1e-9)


@pytest.mark.parametrize(("most", "only_best"), [(200, False), (2, True)])
def test_an_oversized_search_reports_the_omitted_and_their_bound(most: int, *, only_best: bool) -> None:
    problem = scarce_problem(20, 1.7, mixed=True)
    candidates, subproblems = candidates_of(problem), subproblems_of(problem, candidates_of(problem))
    limit = np.full(len(subproblems.server), np.inf)
    every = enumerate_patterns(candidates, subproblems, candidates.cost, limit)
    cut = enumerate_patterns(candidates, subproblems, candidates.cost, limit, most, only_best=only_best)
    assert not every.cut.any()
    assert cut.cut.any()
    least = np.full(len(subproblems.server), np.inf)
    np.minimum.at(least, every.subproblem, weights(every, candidates.cost))
    assert (cut.least <= least + 1e-9).all()


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_timed_out_search_reports_the_omitted_and_their_bound(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = scarce_problem(20, 1.7, mixed=True)
    candidates, subproblems = candidates_of(problem), subproblems_of(problem, candidates_of(problem))
    limit = np.full(len(subproblems.server), np.inf)
    every = enumerate_patterns(candidates, subproblems, candidates.cost, limit)
    looks = itertools.count()
    monkeypatch.setattr(Deadline, "passed", property(lambda _: next(looks) >= steps))
    cut = enumerate_patterns(candidates, subproblems, candidates.cost, limit, due=Deadline.after(3600))
    assert cut.cut.any()
    assert next(looks) == steps + 1
    found, whole = (np.bincount(x.subproblem, minlength=len(limit)) for x in (cut, every))
    assert (found[~cut.cut] == whole[~cut.cut]).all()
    assert found.sum() < whole.sum()
    least = np.full(len(subproblems.server), np.inf)
    np.minimum.at(least, every.subproblem, weights(every, candidates.cost))
    assert (cut.least <= least + 1e-9).all()


def test_there_is_no_solution_if_a_server_has_no_column() -> None:
    problem = scarce_problem(6, 1.0, mixed=True)
    pool, everyone = ColumnPool.of(problem), np.ones(len(problem.priority), np.bool_)
    master = MasterProblem(pool.candidates, problem.objectives[-2], (), everyone, ~everyone)
    duals = np.zeros(len(master.limits))
    assert np.isfinite(lagrangian_bound(master, duals, np.ones(6)))
    assert lagrangian_bound(master, duals, np.array([*[1.0] * 5, np.inf])) == np.inf


# --- stopped solves --------------------------------------------------------------------------------------


def assert_no_worse(problem: Problem, found: Solution, *others: IntArray) -> None:
    """Compare with other answers, and check that every level has a bound."""
    assert not any(is_better(problem, other, found.replicas) for other in others)
    assert all(level.bound is not None and level.bound <= level.value for level in found.levels)


@pytest.mark.few(1)
@pytest.mark.parametrize("limit_s", [0.0, 0.02, 0.2])
@pytest.mark.parametrize("mixed", [True, False])
def test_a_stopped_solve_is_no_worse_than_its_seed_and_bounded(
    limit_s: float,
    mixed: bool,  # noqa: FBT001
) -> None:
    problem = scarce_problem(40, 1.9, mixed=mixed)
    assert_no_worse(problem, solve_patterns(problem, Deadline.after(limit_s)), best_initial_solution(problem))


@pytest.mark.slow
@pytest.mark.parametrize("limit_s", [0.0, 0.3])
def test_a_mixed_plan_that_starts_from_a_single_one_is_not_worse(limit_s: float) -> None:
    mixed = scarce_problem(40, 1.9, mixed=True)
    plain = solve_patterns(scarce_problem(40, 1.9, mixed=False))
    known = RelatedSolution(plain.replicas, ~served(mixed, plain.replicas), plain.levels)
    assert_no_worse(mixed, solve_patterns(mixed, Deadline.after(limit_s), known), plain.replicas)


@pytest.mark.parametrize("limit_s", [0.01, 0.5])
def test_a_stopped_mixed_plan_yields_to_a_better_single_one(
    limit_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("optimizer.solvers.exact.COMPACT_TO_SERVERS", 0)
    problem = scarce_problem(40, 1.9, mixed=True)
    found = solve_exactly(problem, HighsSession, Deadline.after(limit_s), with_patterns=True)
    assert_no_worse(problem, found, best_initial_solution(problem))


@pytest.mark.slow
def test_column_generation_proves_the_same_single_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optimizer.solvers.exact.PATTERNS_FROM_COLUMNS", 0)
    for seed in range(4):
        system = generate_system(30, 8, 4, seed, 1.7).with_options(gap=0.0)
        problem = build_problem(find_candidates(system))
        found = solve_exactly(problem, HighsSession, Deadline.after(3600), with_patterns=True)
        true = solve_milp(problem, HighsSession, Deadline.after(3600))
        assert_equal(found, true)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "running"), mostly_slow([(2, True), (1, False)], 1))
def test_a_mixed_plan_is_never_worse_than_a_faster_single_one(
    seed: int,
    running: bool,  # noqa: FBT001
) -> None:
    """Of 250 servers, which patterns alone answer; the single plan that it looks at gets more time."""
    system = generate_system(250, 15, 6, seed, 1.2 + 0.5 * seed)
    if running:
        system = solve(system, milp_solver=False).applied_to(system)
    single = solve_problem(build_problem(find_candidates(system)), deadline=Deadline.after(0.05))
    mixed = build_problem(find_candidates(system.with_options(heterogeneous=True)))
    for limit_s in (0.5, 1.0):
        found = solve_problem(mixed, deadline=Deadline.after(limit_s))
        assert_no_worse(mixed, found, single.replicas, best_initial_solution(mixed))


@pytest.mark.slow
def test_columns_of_an_enumeration_that_breaks_off_are_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    """With several open nodes the first can add columns before the second has too many."""
    problem = scarce_problem(30, 2.0, mixed=True)
    priced, calls = ColumnPool.price_columns, itertools.count()

    def cut_short(*arguments: Any, only_best: bool = False) -> PricingResult:
        found = priced(*arguments, only_best=only_best)
        enumerates = len(arguments) == 5 and not only_best
        return replace(found, floor=np.zeros_like(found.floor)) if enumerates and next(calls) % 2 else found

    monkeypatch.setattr(ColumnPool, "price_columns", cut_short)
    monkeypatch.setattr(LevelSearch, "branch", lambda self, _: self.nodes.append(self.root))
    solution = solve_patterns(problem)
    assert next(calls) > 2
    assert served(problem, solution.replicas).any()
