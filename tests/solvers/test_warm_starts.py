"""A stopped solve is never worse than what runs, nor than the greedy plan: over all levels, in their order.

What runs is counted here by itself, server by server from the candidates; stopped solvers are HiGHS with
its answers withheld or worsened, at every one of its runs. No test looks at a clock.
"""

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
from builders import accelerator, profile, running, server, system
from mixed_oracles import random_mixed_document
from replaced_runs import Run, replaced
from slow_cases import mostly_slow, seeds

from optimizer import Plan, SolverError, System, find_candidates, load_system, solve, verify
from optimizer.arrays import IntArray
from optimizer.generate import generate_system
from optimizer.milp.highs import HighsSession
from optimizer.milp.model import MilpModel, RunResult, RunStatus
from optimizer.solvers.compact import solve_milp
from optimizer.solvers.compact_model import formulate
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.greedy import solve_greedy
from optimizer.solvers.levels import is_better, levels_of, served_in_full
from optimizer.solvers.problem import Problem, build_problem
from optimizer.solvers.solution import Solution, Status
from optimizer.solvers.warm_starts import best_initial_solution, in_columns
from optimizer.studies.load_changes import scale_loads

LONG_GONE = Deadline(0.0)


@cache
def in_operation(seed: int, *, mixed: bool, tightness: float) -> System:
    """Return a generated fleet that runs a plan which was made for slightly larger loads."""
    planned = generate_system(12, 6, 3, seed, tightness).with_options(heterogeneous=mixed)
    return scale_loads(solve(planned).applied_to(planned), 0.97)


def problem_of(source: System) -> Problem:
    return build_problem(find_candidates(source))


def what_runs(source: System) -> list[float]:
    """Return the levels at which servers stay on their accelerators, with the replicas they need there.

    Those whose replicas no longer suffice are left out. So it all fits. A server that stays costs no penalty
    (math.md, section 7).
    """
    problem = problem_of(source)
    table = problem.table
    levels: dict[str, float] = {}
    for priority in np.unique(problem.priority).tolist():
        levels |= {f"{priority} rate": 0.0, f"{priority} servers": 0.0}
    value = changes = 0.0
    for s, item in enumerate(source.servers.values()):
        mine = [
            c
            for c in np.flatnonzero(problem.on_current & problem.full & (table.server == s))
            if table.num_replicas[c] <= item.current.num_replicas
        ]
        old = item.current.cost_cents_per_h
        if not mine:
            changes += item.current.num_replicas > 0
            value += (source.options.transition_penalty - 1) * old
            levels[f"{problem.priority[s]} rate"] += problem.load_rps[s] * 60 * bool(problem.to_serve[s])
            levels[f"{problem.priority[s]} servers"] += bool(problem.to_serve[s])
            continue
        changes += int(table.num_replicas[mine[0]]) != item.current.num_replicas
        value += table.num_replicas[mine[0]] * table.cost_per_replica[mine[0]] - old
    return [*levels.values(), value, changes]


def assert_no_worse(found: Sequence[float], than: Sequence[float]) -> None:
    """Compare level by level; the first that differs decides."""
    for mine, other in itertools.zip_longest(found, than):
        if mine != pytest.approx(other, rel=1e-9, abs=1e-5):
            assert mine < other
            return


@pytest.mark.slow
@pytest.mark.parametrize("limit_s", mostly_slow([1e-6, 0.05, 0.01], 2))
@pytest.mark.parametrize("tightness", [1.0, 2.0])
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("seed", seeds(1, 3))
def test_a_stopped_plan_is_no_worse_than_current_or_greedy(
    seed: int, tightness: float, limit_s: float, *, mixed: bool
) -> None:
    source = in_operation(seed, mixed=mixed, tightness=tightness)
    plan = solve(source, time_limit_s=limit_s)
    assert verify(plan, source) == []
    found = [level.value for level in plan.levels]
    assert_no_worse(found, what_runs(source))
    problem = problem_of(source)
    greedy = levels_of(problem, solve_greedy(problem).replicas, proved=False)
    assert_no_worse(found, [level.value for level in greedy])


@pytest.mark.slow
def test_the_current_fleet_beats_greedy_in_some_systems_only() -> None:
    """Else the test above asks for one of the two only."""
    better = set()
    for mixed, seed, tightness in itertools.product((False, True), range(4), (1.0, 2.0)):
        source = in_operation(seed, mixed=mixed, tightness=tightness)
        problem = problem_of(source)
        greedy = [level.value for level in levels_of(problem, solve_greedy(problem).replicas, proved=False)]
        better.add(bool(what_runs(source) < greedy))
    assert better == {True, False}


@cache
def small_mixed(seed: int) -> System:
    """Return a system with limits on replicas, stated costs of its own, and types without units."""
    return load_system(random_mixed_document(seed))


FLEETS = [
    partial(in_operation, seed, mixed=mixed, tightness=tightness)
    for seed, mixed, tightness in itertools.product(range(6), (False, True), (1.0, 2.0))
]
SYSTEMS = [*FLEETS, *(partial(small_mixed, seed) for seed in range(60))]


@pytest.mark.few(2)
@pytest.mark.parametrize("make", mostly_slow(SYSTEMS, 54))
def test_a_seed_is_a_point_of_the_model_with_the_same_levels(make: Callable[[], System]) -> None:
    """The rows of the model and the levels in whole numbers are two counts of the same answer."""
    problem = problem_of(make())
    formulation, replicas = formulate(problem), best_initial_solution(problem)
    if not len(formulation.columns):
        return
    answer = in_columns(formulation.columns, problem, replicas)
    point = formulation.point(answer)
    assert formulation.model.holds(point)
    assert not is_better(problem, replicas, answer)
    assert (formulation.replicas(point, len(problem.table)) == answer).all()
    assert served_in_full(problem, answer)[np.unique(problem.table.server[answer > 0])].all()
    reached = {level.name: level.value for level in levels_of(problem, answer, proved=False)}
    outside = ~np.isin(np.arange(len(problem.priority)), formulation.servers)
    offset = formulation.value_offset + float(problem.none_value[outside].sum())
    assert formulation.value @ point + offset == pytest.approx(reached["value"])
    outside_changes = float(problem.is_running[outside].sum())
    changes = formulation.changed @ point + formulation.changed_offset + outside_changes
    assert changes == pytest.approx(reached["changes"])


def test_a_point_that_breaks_a_row_bound_or_integrality_fails() -> None:
    model = MilpModel(
        lower=np.zeros(2),
        upper=np.ones(2),
        integer=np.array([True, True]),
        row_start=np.array([0, 2]),
        row_index=np.array([0, 1]),
        row_value=np.ones(2),
        row_lower=np.array([1.0]),
        row_upper=np.array([1.0]),
    )
    points = ([1.0, 0.0], [0.0, 0.0], [1.0, 1.0], [2.0, -1.0], [0.5, 0.5])
    assert [model.holds(np.array(point)) for point in points] == [True, False, False, False, False]


# --- solvers that are stopped ----------------------------------------------------------------------------


@pytest.mark.few(3)
@pytest.mark.parametrize("withheld", [False, True])
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("tightness", [1.0, 2.0])
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 4))])
def test_a_stopped_level_leaves_the_solution_unproved(
    seed: int, tightness: float, *, mixed: bool, withheld: bool
) -> None:
    problem = problem_of(in_operation(seed, mixed=mixed, tightness=tightness))

    def solved(stopped_run: int) -> tuple[Solution, int]:
        """Stop one run before it finds anything, or before it proves what it found; count the runs."""
        runs = 0

        def answer(run: Run) -> RunResult:
            nonlocal runs
            runs, result = run.number + 1, run.minimise(run.objective)
            if run.number != stopped_run:
                return result
            x = None if withheld else result.x
            return replace(result, outcome=RunStatus.time_limit, x=x, bound=-np.inf)

        return solve_milp(problem, replaced(answer)), runs

    (whole, runs), seeded = solved(-1), best_initial_solution(problem)
    assert whole.status is Status.optimal
    assert runs
    for run in range(runs):
        solution, _ = solved(run)
        # Where the seed leaves some out the first run asks whether all fit. Without its answer levels tell.
        served = served_in_full(problem, seeded if withheld else whole.replicas)
        answered = served[formulate(problem).servers].all()
        assert solution.status is (Status.feasible if run or answered else Status.optimal), run
        assert not is_better(problem, seeded, solution.replicas)


@pytest.mark.few(4)
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_a_point_that_ties_and_is_worse_later_is_not_taken(seed: int, *, mixed: bool) -> None:
    problem = problem_of(in_operation(seed, mixed=mixed, tightness=2.0))
    formulation = formulate(problem)

    def dearest_of_the_best(run: Run) -> RunResult:
        best = run.minimise(run.objective)
        if best.x is None:
            return best
        run.session.add_limit(run.objective, float(run.objective @ best.x) + 1e-4)
        return replace(run.minimise(-formulation.value), outcome=RunStatus.time_limit, bound=-np.inf)

    solution = solve_milp(problem, replaced(dearest_of_the_best))
    assert not is_better(problem, best_initial_solution(problem), solution.replicas)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("seed", "tightness", "wrong"),
    # Where all servers are served at once the first run is that of the value.
    [
        (1, 0.8, 0),
        (1, 0.9, 0),
        (3, 0.9, 0),
        *((seed, 1.6, wrong) for seed in (1, 2) for wrong in (1, 2, 3)),
        (3, 1.6, 2),
    ],
)
def test_a_false_infeasible_status_proves_nothing(seed: int, tightness: float, wrong: int) -> None:
    """CBC 2.10.3 has called a level infeasible when its cuts were wrong."""
    problem = problem_of(generate_system(8, 4, 2, seed, tightness))
    true, runs = solve_milp(problem, HighsSession), []

    def answer(run: Run) -> RunResult:
        runs.append(run.number)
        if run.number == wrong:
            return RunResult(RunStatus.infeasible, None, np.inf, 0.0)
        return run.minimise(run.objective)

    found = solve_milp(problem, replaced(answer))
    assert len(runs) > wrong
    assert (true.status, found.status) == (Status.optimal, Status.feasible)
    assert not is_better(problem, best_initial_solution(problem), found.replicas)
    for theirs, mine in zip(found.levels, true.levels, strict=True):
        assert theirs.bound is None or theirs.bound <= mine.value
        if theirs.value > mine.value:
            break


def answering(problem: Problem, replicas: IntArray) -> Callable[[MilpModel], HighsSession]:
    """Return sessions that answer with one point, whatever the limits."""
    point = formulate(problem).point(replicas)
    return replaced(lambda _: RunResult(RunStatus.optimal, point, -np.inf, 0.0))


def test_a_solution_over_capacity_is_refused() -> None:
    problem = problem_of(
        system(
            [server("a", replicas=1), server("b", replicas=1)],
            [accelerator("A", cost=1.0), accelerator("B", cost=9.0)],
            {"A": 1, "B": 1},
        )
    )
    on_a = np.where(problem.table.accelerator == 0, problem.table.num_replicas, 0)
    assert served_in_full(problem, on_a).all()
    with pytest.raises(SolverError, match="violates a limit"):
        solve_milp(problem, answering(problem, on_a))


def test_partial_service_is_refused_if_units_suffice() -> None:
    problem = problem_of(
        system(
            [server("a", 240.0)],
            [accelerator("A")],
            {"A": 9},
            models=[profile("m", "A", maxBatchSize=1)],
            heterogeneous=True,
        )
    )
    one = np.ones(1, np.int64)
    assert len(problem.limits)
    assert (problem.left_by(one) >= 0).all()
    with pytest.raises(SolverError, match="violates a limit"):
        solve_milp(problem, answering(problem, one))


# --- worked by hand ----------------------------------------------------------------------------------------


def two_of_which_one_runs(**options: object) -> System:
    """Return two servers of one replica each; `a` runs on the dear accelerator, and nothing else exists."""
    return system(
        [server("a", 60.0, current=running("B", 1, 25.0)), server("b", 60.0)],
        [accelerator("A", cost=10.0), accelerator("B", cost=25.0)],
        {"A": 1, "B": 1},
        models=[profile("m", "A", maxBatchSize=1), profile("m", "B", maxBatchSize=1)],
        **options,
    )


@pytest.mark.parametrize("mixed", [False, True])
def test_without_time_running_servers_stay_and_greedy_adds(*, mixed: bool) -> None:
    plan: Plan = solve(two_of_which_one_runs(heterogeneous=mixed), deadline=LONG_GONE)
    assert plan.status == "feasible"
    placed = {
        name: [(pool.accelerator, pool.num_replicas) for pool in pools]
        for name, pools in plan.allocations.items()
    }
    assert placed == {"a": [("B", 1)], "b": [("A", 1)]}
    assert plan.objective == pytest.approx(11.0)  # 10 for b, and a tenth of it for the start


def test_what_runs_goes_before_what_would_have_to_grow() -> None:
    """`a` now needs both units, `b` runs on one of them and has the larger load: greedy serves `a`."""
    source = system(
        [
            server("a", 60.0, replicas=2, current=running("A", 1, 10.0)),
            server("b", 80.0, current=running("A", 1, 10.0)),
        ],
        [accelerator("A", cost=10.0)],
        {"A": 2},
        models=[profile("m", "A", maxBatchSize=1)],
    )
    problem = problem_of(source)
    greedy = solve_greedy(problem).replicas
    assert greedy[problem.table.server == 1].tolist() == [0]
    assert best_initial_solution(problem)[problem.table.server == 1].tolist() == [1]
    assert [item.server for item in solve(source, deadline=LONG_GONE).unserved] == ["a"]


@pytest.mark.few(1)
@pytest.mark.parametrize("policy", ["PriorityExhaustive", "RoundRobin"])
@pytest.mark.parametrize("delayed", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_what_runs_is_kept_under_saturation_policies_too(seed: int, policy: str, *, delayed: bool) -> None:
    source = in_operation(seed, mixed=False, tightness=2.0)
    plan = solve(source, deadline=LONG_GONE, saturation_policy=policy, delayed_best_effort=delayed)
    assert verify(plan, source.with_options(saturation_policy=policy, delayed_best_effort=delayed)) == []
    assert plan.status == "feasible"
    found = [level.value for level in plan.levels if level.name.startswith("priority")]
    if not delayed:  # what is left goes to the first priority that is short before any later one is solved
        short = next((i for i, value in enumerate(found) if value), len(found))
        found = found[: short + 1]
    assert_no_worse(found, what_runs(source)[: len(found)])


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", seeds(4, 36))
def test_bounds_of_plain_arithmetic_are_below_what_is_reached(seed: int) -> None:
    """Unlimited mixed plans without any time, against those with all of it."""
    rng = random.Random(seed)
    document = random_mixed_document(seed)
    if rng.random() < 0.3:
        document["accelerators"][0]["cost"] = 0
    source = load_system(document).with_options(unlimited=True)
    stopped, best = solve(source, deadline=LONG_GONE), solve(source)
    assert verify(stopped, source) == []
    assert best.status == "optimal"
    for level, proved in zip(stopped.levels, best.levels, strict=True):
        assert level.bound is not None
        if level.name != "changes":  # of the answers of least value, which the stopped plan need not reach
            assert level.bound <= proved.value + 1e-6
            assert level.value >= proved.value - 1e-6
    limited = source.with_options(unlimited=False)
    stopped, best = solve(limited, deadline=LONG_GONE), solve(limited)
    for level, proved in zip(stopped.levels, best.levels, strict=True):
        assert level.bound is not None
        assert level.bound <= proved.value + 1e-6
        if level.value > proved.value + 1e-6:
            break
