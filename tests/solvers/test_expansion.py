"""Units to add and shadow prices, against a relaxation written anew for SciPy and against brute force."""

import itertools
import random
from functools import partial

import numpy as np
import pytest
from builders import accelerator, profile, random_document, server, system
from oracles import Case, read_case
from replaced_runs import Run, replaced
from scipy.optimize import linprog
from slow_cases import seeds

from optimizer import System, find_candidates, load_system, solve
from optimizer.generate import generate_system
from optimizer.milp.model import RunResult, RunStatus
from optimizer.solvers.compact import highs_session
from optimizer.solvers.deadline import Deadline, OutOfTimeError
from optimizer.solvers.expansion import fits_in_units, least_expansion, unit_prices
from optimizer.solvers.problem import Problem, build_problem

by_value, by_units = (partial(least_expansion, units_first=first) for first in (False, True))
NO_LIMIT = Deadline.after(1e6)


def problem_of(source: System) -> Problem:
    return build_problem(find_candidates(source))


def only_servable(source: System) -> System:
    """Return the system without the servers that no number of units serves."""
    plan = solve(source, unlimited=True)
    left = {item.server for item in plan.unserved}
    servers = {name: item for name, item in source.servers.items() if name not in left}
    return load_system(
        source.to_spec().model_copy(update={"servers": tuple(servers.values())}).model_dump(by_alias=True)
    )


def relaxed_value(case: Case, kinds: list[str], units: list[float]) -> float | None:
    """Return the least value if servers may be split, every one served; none where that is impossible."""
    options = [(i, item) for i, choice in enumerate(case.choices) for item in choice.options]
    to_serve = [i for i, choice in enumerate(case.choices) if choice.to_serve]
    if not options:
        return None
    served = np.array([[float(i == s) for i, _ in options] for s in to_serve])
    used = np.array([[float(item.units * (item.kind == kind)) for _, item in options] for kind in kinds])
    found = linprog(
        [float(item.value) for _, item in options],
        A_ub=used,
        b_ub=units,
        A_eq=served,
        b_eq=np.ones(len(to_serve)),
        bounds=(0, 1),
    )
    return None if found.fun is None else float(found.fun)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", seeds(3, 13))
def test_a_price_lies_between_the_marginal_gain_and_loss(seed: int) -> None:
    """A dual value is a slope of the relaxation's value: between those to its right and to its left."""
    source = generate_system(6, 5, 3, seed, tightness=1 + seed % 2 / 4)
    problem, case = problem_of(source), read_case(source)
    kinds, little = sorted(source.capacity), 1e-3
    units = [float(source.capacity[kind]) for kind in kinds]
    now = relaxed_value(case, kinds, units)
    prices = unit_prices(problem, NO_LIMIT)
    if now is None or prices is None:
        assert (now is None) == (prices is None)
        return
    for t in range(len(kinds)):
        step = little * np.eye(len(kinds))[t]
        more, fewer = (relaxed_value(case, kinds, list(np.array(units) + sign * step)) for sign in (1, -1))
        assert more is not None
        assert prices[t] >= (now - more) / little - 1e-6
        if fewer is not None:
            assert prices[t] <= (fewer - now) / little + 1e-6


def test_some_prices_are_more_than_nothing() -> None:
    prices = [unit_prices(problem_of(generate_system(6, 5, 3, seed)), NO_LIMIT) for seed in range(4)]
    assert any(some is not None and some.max() > 0 for some in prices)


@pytest.mark.few(2)
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_everything_fits_if_and_only_if_the_plan_is_complete(seed: int, *, mixed: bool) -> None:
    source = load_system(random_document(random.Random(seed))).with_options(heterogeneous=mixed)
    assert fits_in_units(problem_of(source), NO_LIMIT) == solve(source).complete


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(12))
def test_cheapest_and_by_units_match_brute_force(seed: int) -> None:
    source = only_servable(load_system(random_document(random.Random(seed))))
    case, kinds = read_case(source), list(find_candidates(source).arrays.type_names)
    choices = [choice for choice in case.choices if choice.to_serve]
    found = []
    for taken in itertools.product(*[choice.options for choice in choices]):
        used = [sum(item.units for item in taken if item.kind == kind) for kind in kinds]
        added = [max(0, n - source.capacity.get(kind, 0)) for n, kind in zip(used, kinds, strict=True)]
        found.append((float(sum(item.value for item in taken)), added))
    problem = problem_of(source)
    cheapest = by_value(problem, NO_LIMIT)
    smallest = by_units(problem, NO_LIMIT)
    assert cheapest is not None
    assert smallest is not None
    assert cheapest.added.sum() == min((round(value, 6), sum(added)) for value, added in found)[1]
    assert smallest.added.sum() == min(sum(added) for _, added in found)
    assert any(added == list(cheapest.added) for _, added in found)
    for t in range(len(kinds)):
        alone = [added[t] for _, added in found if sum(added) == added[t]]
        of_one = by_units(problem, NO_LIMIT, item=t)
        assert (of_one is None) == (not alone)
        if of_one is not None:
            assert of_one.added[t] == of_one.added.sum() == min(alone)


def test_without_limits_nothing_has_to_be_added() -> None:
    problem = problem_of(system([server("a")], [accelerator("A0")]))
    found = by_value(problem, NO_LIMIT)
    assert found is not None
    assert (found.added.tolist(), found.proved) == ([], True)


def test_where_no_server_needs_anything_there_is_nothing_to_add() -> None:
    problem = problem_of(system([server("a", 0.0)], [accelerator("A0")], {"A0": 0}))
    for found in (
        by_value(problem, NO_LIMIT),
        by_units(problem, NO_LIMIT),
    ):
        assert found is not None
        assert (found.added.tolist(), found.proved) == ([0], True)


def test_units_do_not_serve_a_server_below_its_needed_replicas() -> None:
    """A replica carries 89.91 requests a minute, see `test_mixed`; a mixture may use the column in part."""
    problem = problem_of(
        system(
            [server("a", 240.0, maxNumReplicas=2)],
            [accelerator("A0")],
            {"A0": 1},
            models=[profile("m", "A0", maxBatchSize=1)],
            heterogeneous=True,
        )
    )
    assert by_value(problem, NO_LIMIT) is None
    assert by_units(problem, NO_LIMIT) is None
    assert not fits_in_units(problem, NO_LIMIT)


def test_without_time_there_is_no_answer_rather_than_a_no() -> None:
    problem, gone = problem_of(generate_system(6, 5, 3, 0)), Deadline(0.0)
    for ask in (by_value, by_units, fits_in_units, unit_prices):
        with pytest.raises(OutOfTimeError):
            ask(problem, gone)


@pytest.mark.parametrize("seed", range(4))
def test_an_expansion_with_a_stopped_second_level_is_unproved(seed: int) -> None:
    def answer(run: Run) -> RunResult:
        nothing = RunResult(RunStatus.time_limit, None, -np.inf, 0.0)
        return nothing if run.number else run.minimise(run.objective)

    problem = problem_of(generate_system(6, 5, 3, seed, tightness=2.0))
    whole, stopped = (
        by_value(problem, NO_LIMIT, session=session) for session in (highs_session, replaced(answer))
    )
    assert whole is not None
    assert stopped is not None
    assert (whole.proved, stopped.proved) == (True, False)
    assert stopped.added.sum() >= whole.added.sum()
