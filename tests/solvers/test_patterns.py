"""One pattern per server: against the compact model, exhaustive search and plain enumeration."""

import itertools
from functools import cache

import numpy as np
import pytest
from mixed_oracles import mixed_brute_force, random_mixed_document

from optimizer import find_candidates, load_system, solve
from optimizer.arrays import FloatArray
from optimizer.generate import generate_system
from optimizer.pipeline import choose
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.exact import solve_exactly
from optimizer.solvers.highs import HighsSession
from optimizer.solvers.known import Known
from optimizer.solvers.levels import is_better, served, value_of
from optimizer.solvers.milp import solve_milp
from optimizer.solvers.model import RunResult
from optimizer.solvers.patterns.bounds import bound_of
from optimizer.solvers.patterns.parts import Parts, parts_of
from optimizer.solvers.patterns.pool import pool_of
from optimizer.solvers.patterns.program import Measure, Program
from optimizer.solvers.patterns.relaxation import relax
from optimizer.solvers.patterns.search import cases_of, search
from optimizer.solvers.patterns.solve import solve_patterns
from optimizer.solvers.problem import Problem, Solution, Status, build_problem
from optimizer.solvers.seeds import best_seed

SEEDS = range(40)
MORE_SEEDS = range(40, 540)


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
        assert mine.value == pytest.approx(theirs.value, rel=1e-8, abs=1e-6), mine.name
        assert mine.bound == pytest.approx(theirs.bound, rel=1e-7, abs=1e-6), mine.name


# --- against other ways to the same answer ---------------------------------------------------------------


@pytest.mark.parametrize("mixed", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_patterns_and_replica_counts_agree_at_every_level(seed: int, mixed: bool) -> None:  # noqa: FBT001
    problem = random_problem(seed, mixed=mixed)
    assert_equal(solve_patterns(problem), solve_milp(problem, HighsSession))


@pytest.mark.slow
@pytest.mark.parametrize("mixed", [True, False])
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_patterns_and_replica_counts_agree_on_many_more_systems(seed: int, mixed: bool) -> None:  # noqa: FBT001
    problem = random_problem(seed, mixed=mixed)
    assert_equal(solve_patterns(problem), solve_milp(problem, HighsSession))


@pytest.mark.parametrize("seed", range(15))
def test_patterns_equal_exhaustive_search(seed: int) -> None:
    system = load_system(random_mixed_document(seed)).with_options(heterogeneous=True, unlimited=False)
    best, found = mixed_brute_force(system), solve_patterns(random_problem(seed, mixed=True))
    for level in found.levels:
        assert level.value == pytest.approx(float(best[level.name]), rel=0, abs=1e-6), level.name


@pytest.mark.parametrize("mixed", [True, False])
def test_a_scarce_fleet_has_the_same_answer_in_both_formulations(mixed: bool) -> None:  # noqa: FBT001
    problem = scarce_problem(20, 1.7, mixed=mixed)
    assert not problem.options.gap
    assert_equal(solve_patterns(problem), solve_milp(problem, HighsSession))


# --- the search ------------------------------------------------------------------------------------------


def every_pattern(problem: Problem, parts: Parts, server: int) -> list[dict[int, int]]:
    """Return every multiset of replicas that serves a server, each count up to what serves it alone."""
    mine = np.flatnonzero((parts.server == server) & parts.divisible)
    load = 1 - 1e-9 if problem.load_rps[server] > 0 else 0.0
    least, most = int(problem.min_replicas[server]), int(problem.max_replicas[server])
    alone = [max(int(np.ceil(load / parts.share[c])), least, 1) for c in mine]
    found = []
    for counts in itertools.product(*(range(n + 1) for n in alone)):
        carried = float(np.array(counts) @ parts.share[mine])
        if max(least, 1) <= sum(counts) <= most and carried >= load - 1e-12:
            found.append({int(c): n for c, n in zip(mine, counts, strict=True) if n})
    return found


@pytest.mark.parametrize("seed", range(25))
def test_the_search_finds_the_cheapest_pattern_of_every_server_at_any_prices(seed: int) -> None:
    problem = random_problem(seed, mixed=True)
    parts, rng = parts_of(problem), np.random.default_rng(seed)
    cases = cases_of(problem, parts)
    prices = rng.uniform(0, 20, len(parts.limit)) * rng.integers(0, 2, len(parts.limit))
    weight = parts.cost + prices[parts.kind] * parts.units
    found = search(parts, cases, weight, np.full(len(cases.server), np.inf))
    assert not found.cut.any()
    exist = parts.limit * parts.divisor
    best = np.full(len(problem.priority), np.inf)
    for case, part, count, cost in zip(found.case, found.part, found.count, found.weight, strict=True):
        taken = np.bincount(parts.kind[part], count * parts.units[part] * (part >= 0), len(exist))
        assert (count * parts.units[part] <= exist[parts.kind[part]]).all()
        if (taken <= exist).all():
            best[cases.server[case]] = min(best[cases.server[case]], cost + cases.value[case])
    for server in np.unique(cases.server):
        costs = []
        for pattern in every_pattern(problem, parts, int(server)):
            total = np.zeros(len(exist))
            for part, count in pattern.items():
                total[parts.kind[part]] += count * parts.units[part]
            if (total > exist).any():
                continue
            replicas = np.zeros(len(problem.table), np.int64)
            for part, count in pattern.items():
                replicas[parts.row[part]] = count
            alone = problem.of_servers(np.arange(len(problem.priority)) == server)
            units = sum(parts.units[c] * n * prices[parts.kind[c]] for c, n in pattern.items())
            costs.append(value_of(alone, replicas[problem.table.server == server]) + units)
        assert best[server] == pytest.approx(min(costs, default=np.inf), abs=1e-9)


def test_a_search_that_is_too_large_says_what_it_left_out_and_what_that_costs_at_least(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = scarce_problem(20, 1.7, mixed=True)
    parts, cases = parts_of(problem), cases_of(problem, parts_of(problem))
    limit = np.full(len(cases.server), np.inf)
    every = search(parts, cases, parts.cost, limit)
    monkeypatch.setattr("optimizer.solvers.patterns.search.MOST_NODES", 200)
    cut = search(parts, cases, parts.cost, limit)
    assert not every.cut.any()
    assert cut.cut.any()
    least = np.full(len(cases.server), np.inf)
    np.minimum.at(least, every.case, every.weight)
    assert (cut.least <= least + 1e-9).all()


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_search_whose_time_is_over_says_what_it_left_out_and_what_that_costs_at_least(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = scarce_problem(20, 1.7, mixed=True)
    parts, cases = parts_of(problem), cases_of(problem, parts_of(problem))
    limit = np.full(len(cases.server), np.inf)
    every = search(parts, cases, parts.cost, limit)
    looks = itertools.count()
    monkeypatch.setattr(Deadline, "passed", property(lambda _: next(looks) >= steps))
    cut = search(parts, cases, parts.cost, limit, due=Deadline.after(3600))
    assert cut.cut.any()
    assert next(looks) == steps + 1
    found, whole = (np.bincount(x.case, minlength=len(limit)) for x in (cut, every))
    assert (found[~cut.cut] == whole[~cut.cut]).all()
    assert found.sum() < whole.sum()
    least = np.full(len(cases.server), np.inf)
    np.minimum.at(least, every.case, every.weight)
    assert (cut.least <= least + 1e-9).all()


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("enough", [0, 3])
def test_a_search_for_lighter_ones_alone_finds_the_lightest_of_every_case(seed: int, enough: int) -> None:
    problem = scarce_problem(10 + seed, 1.7, mixed=True)
    parts, rng = parts_of(problem), np.random.default_rng(seed)
    cases = cases_of(problem, parts)
    weight = parts.cost + rng.uniform(0, 20, len(parts.limit))[parts.kind] * parts.units
    limit = np.full(len(cases.server), np.inf)
    every, few = search(parts, cases, weight, limit), search(parts, cases, weight, limit, enough=enough)
    lightest, found = np.full((2, len(limit)), np.inf)
    np.minimum.at(lightest, every.case, every.weight)
    np.minimum.at(found, few.case, few.weight)
    assert (found == lightest).all()
    assert len(few.case) < len(every.case)
    left_out = np.bincount(few.case, minlength=len(limit)) < np.bincount(every.case, minlength=len(limit))
    assert (few.best[left_out] == lightest[left_out]).all()
    assert (every.best == np.inf).all()


# --- bounds ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mixed", [True, False])
def test_the_bound_of_a_relaxation_is_below_the_best_answer_and_above_the_compact_relaxation(
    mixed: bool,  # noqa: FBT001
) -> None:
    problem = scarce_problem(40, 1.0, mixed=mixed)
    parts = parts_of(problem)
    pool = pool_of(problem, parts)
    everyone = np.ones(len(problem.priority), np.bool_)
    measure = Measure("value", np.zeros(len(problem.priority)), on_value=1.0)
    program = Program(parts, measure, (), everyone, to_be_served=everyone, left_out=~everyone)
    relaxed = relax(program, pool, np.flatnonzero(pool.options.served), Deadline.after(3600))
    best = solve_milp(problem, HighsSession)
    assert best.levels[0].value == 0
    assert relaxed is not None
    assert relaxed.finished
    assert relaxed.bound <= best.level("value").value
    assert relaxed.bound == pytest.approx(relaxed.value, rel=1e-7)


def test_no_answer_is_below_any_bound_where_a_server_has_no_option() -> None:
    problem = scarce_problem(6, 1.0, mixed=True)
    everyone = np.ones(len(problem.priority), np.bool_)
    measure = Measure("value", np.zeros(len(problem.priority)), on_value=1.0)
    program = Program(parts_of(problem), measure, (), everyone, everyone, left_out=~everyone)
    pool = pool_of(problem, program.parts)
    relaxed = relax(program, pool, np.flatnonzero(pool.options.served), Deadline.after(3600))
    assert relaxed is not None
    assert bound_of(program, relaxed.prices, np.array([*[1.0] * 5, np.inf])) == np.inf


# --- stopped solves --------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit_s", [0.0, 0.02, 0.2])
@pytest.mark.parametrize("mixed", [True, False])
def test_a_stopped_solve_is_never_worse_than_its_seed_and_its_bounds_hold(
    limit_s: float,
    mixed: bool,  # noqa: FBT001
) -> None:
    problem = scarce_problem(40, 1.9, mixed=mixed)
    found = solve_patterns(problem, Deadline.after(limit_s))
    assert not is_better(problem, best_seed(problem), found.replicas)
    for level in found.levels:
        assert level.bound is not None
        assert level.bound <= level.value


@pytest.mark.parametrize("limit_s", [0.0, 0.3])
def test_a_mixed_plan_that_starts_from_a_single_one_is_not_worse(limit_s: float) -> None:
    mixed = scarce_problem(40, 1.9, mixed=True)
    plain = solve_patterns(scarce_problem(40, 1.9, mixed=False))
    known = Known(plain.replicas, ~served(mixed, plain.replicas), plain.levels)
    found = solve_patterns(mixed, Deadline.after(limit_s), known)
    assert not is_better(mixed, plain.replicas, found.replicas)


@pytest.mark.parametrize("limit_s", [0.01, 0.5])
def test_a_stopped_mixed_plan_of_many_servers_gives_way_to_a_better_single_one(
    limit_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("optimizer.solvers.exact.REPLICAS_TO_SERVERS", 0)
    problem = scarce_problem(40, 1.9, mixed=True)
    found = solve_exactly(problem, HighsSession, Deadline.after(limit_s), with_patterns=True)
    assert not is_better(problem, best_seed(problem), found.replicas)
    assert all(level.bound is not None and level.bound <= level.value for level in found.levels)


@pytest.mark.parametrize("columns_share", [0.0, 0.5])
def test_columns_and_then_patterns_prove_the_same_single_plan(
    columns_share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any time for columns, patterns answer; with half of it, columns do."""
    monkeypatch.setattr("optimizer.solvers.exact.PATTERNS_FROM_COLUMNS", 0)
    monkeypatch.setattr("optimizer.solvers.exact.COLUMNS_SHARE", columns_share)
    for seed in range(4):
        system = generate_system(30, 8, 4, seed, 1.7).with_options(gap=0.0)
        problem = build_problem(find_candidates(system))
        found = solve_exactly(problem, HighsSession, Deadline.after(3600), with_patterns=True)
        true = solve_milp(problem, HighsSession, Deadline.after(3600))
        assert found.status is true.status is Status.optimal
        for mine, theirs in zip(found.levels, true.levels, strict=True):
            assert mine.value == pytest.approx(theirs.value, rel=1e-9, abs=1e-6)


def test_patterns_without_time_keep_the_answer_that_they_begin_from() -> None:
    problem = build_problem(find_candidates(generate_system(30, 8, 4, 1, 1.7)))
    best = solve_milp(problem, HighsSession, Deadline.after(3600))
    assert is_better(problem, best.replicas, best_seed(problem))
    found = solve_patterns(problem, Deadline(0.0), start=best.replicas)
    assert not is_better(problem, best.replicas, found.replicas)


def test_columns_that_are_to_prove_something_may_take_all_the_time_for_one_level() -> None:
    limits: list[float] = []

    class Watched(HighsSession):
        def minimise(
            self, objective: FloatArray, start: FloatArray | None, gap: float, time_limit_s: float
        ) -> RunResult:
            limits.append(time_limit_s)
            return super().minimise(objective, start, gap, time_limit_s)

    problem = build_problem(find_candidates(generate_system(12, 6, 3, 1, 1.7)))
    for to_prove, least_s in ((False, 0.0), (True, 0.99e6)):
        limits.clear()
        solve_milp(problem, Watched, Deadline.after(1e6), to_prove=to_prove)
        assert least_s < limits[0] < (0.6e6 if not to_prove else 1e6)


@pytest.mark.parametrize(("seed", "running"), [(1, False), (2, True)])
def test_a_mixed_plan_is_never_worse_than_a_single_one_of_less_time(
    seed: int,
    running: bool,  # noqa: FBT001
) -> None:
    """Of 250 servers, which patterns alone answer; the single plan that it looks at gets more time."""
    system = generate_system(250, 15, 6, seed, 1.2 + 0.5 * seed)
    if running:
        system = solve(system, milp_solver=False).applied_to(system)
    single = choose(build_problem(find_candidates(system)), deadline=Deadline.after(0.05))
    mixed = build_problem(find_candidates(system.with_options(heterogeneous=True)))
    for limit_s in (0.2, 0.4):
        found = choose(mixed, deadline=Deadline.after(limit_s))
        assert not is_better(mixed, single.replicas, found.replicas)
        assert not is_better(mixed, best_seed(mixed), found.replicas)
        for level in found.levels:
            assert level.bound is None or level.bound <= level.value
