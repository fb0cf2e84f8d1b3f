"""The greedy baseline: against the reference's recorded solutions, a plain second writing of the algorithm,
and the exact choice, which must never be worse."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from builders import Json, accelerator, server, system
from mixed_oracles import demands, random_mixed_document
from oracles import Case, Option, read_case
from slow_cases import mostly_slow, seeds

from optimizer import Plan, System, find_candidates, load_system, solve, verify
from optimizer.generate import generate_system

CASES = [f"case{number:02d}" for number in range(30)]
POLICIES = ("None", "PriorityExhaustive", "PriorityRoundRobin", "RoundRobin")


# --- the reference's recorded solutions --------------------------------------------------------------------


@dataclass(frozen=True)
class Recorded:
    """One of the reference's systems, its answer, and the project's under the same options."""

    system: System
    plan: Plan
    theirs: Mapping[str, Json]
    their_candidates: Mapping[str, Mapping[str, Json]]
    deterministic: bool

    def placed(self, name: str) -> tuple[str, int]:
        """Return accelerator and replicas of a server in the project's plan."""
        pools = self.plan.allocations.get(name, ())
        return (pools[0].accelerator, pools[0].num_replicas) if pools else ("", 0)

    def their_placed(self, name: str) -> tuple[str, int]:
        """Return the same of the reference, which leaves out whom it gives nothing."""
        theirs = self.theirs.get(name)
        return (theirs["accelerator"], theirs["numReplicas"]) if theirs else ("", 0)

    def differing(self) -> list[str]:
        return [name for name in self.system.servers if self.placed(name) != self.their_placed(name)]

    def fraction(self, name: str) -> float:
        return next((x.served_fraction for x in self.plan.unserved if x.server == name), 1.0)

    def reason(self, name: str) -> str:
        """Name why the two answers differ in a server; empty if nothing that is known explains it."""
        ours = {
            str(row["accelerator"]): row["numReplicas"]
            for row in find_candidates(self.system).to_wire()["candidates"]
            if row["server"] == name
        }
        theirs = {acc: row["numReplicas"] for acc, row in self.their_candidates.get(name, {}).items()}
        used = {self.placed(name)[0], self.their_placed(name)[0]} - {""}
        if ours != theirs:
            # README.md, "Defects that show in these records": without a prompt the ITL is too low by γ.
            same_columns = all(ours.get(acc) == theirs.get(acc) for acc in used)
            return "" if self.system.servers[name].current.load.in_tokens or same_columns else "no prompt"
        if self.system.options.unlimited or self.system.options.saturation_policy == "None":
            return ""
        partly = [n for n in self.system.servers if 0 < self.fraction(n) < 1]
        if name in partly and self.their_placed(name)[0]:
            # The reference takes the first accelerator that fits, not the one that serves most.
            theirs_share = self.share(name, self.their_placed(name))
            return "first fit" if theirs_share < self.fraction(name) else ""
        rivals = [n for n in partly if self.priority(n) == self.priority(name)] + [name]
        waits = self.fraction(name) < 1 and {self.placed(n)[0] for n in rivals} & used
        # Within a priority as listed; the reference takes them as they ran out of candidates.
        return "order of waiting" if waits else ""

    def share(self, name: str, placed: tuple[str, int]) -> float:
        demand = demands(self.system)[name]
        rate = next(column.rate_rpm for column in demand.columns if column.accelerator == placed[0])
        return float(min(rate * placed[1] / demand.load_rpm, Fraction(1)))

    def priority(self, name: str) -> int:
        return self.system.priority(self.system.servers[name])


@cache
def recorded(path: Path) -> Recorded:
    record: dict[str, Any] = json.loads(path.read_text())
    system = load_system(record["request"])
    assert not system.options.milp_solver
    return Recorded(
        system, solve(system), record["allocations"], record["candidates"], record["deterministic"]
    )


def all_recorded(reference: Path) -> dict[str, Recorded]:
    return {name: recorded(reference / "optimizer" / f"{name}.json") for name in CASES}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", mostly_slow(CASES, 15))
def test_the_references_own_answer_comes_out_but_for_its_defects(name: str, reference: Path) -> None:
    """Where its answer changes from run to run ties go anyhow, and only the cost is compared."""
    one = recorded(reference / "optimizer" / f"{name}.json")
    explained = {who: one.reason(who) for who in one.differing()}
    for who, theirs in one.theirs.items():
        if who in explained:
            continue
        if not theirs["numReplicas"]:
            assert one.plan.allocations[who] == ()
            continue
        pool = one.plan.allocations[who][0]
        # The reference computes in float32.
        assert pool.cost_cents_per_h == pytest.approx(theirs["cost"], rel=1e-6), who
        assert pool.max_batch == theirs["maxBatch"], who
    if not any(explained.values()):
        total = sum(theirs["cost"] for theirs in one.theirs.values())
        assert one.plan.total_cost_cents_per_h == pytest.approx(total, rel=1e-6)
    assert verify(one.plan, one.system) == []


@pytest.mark.slow
def test_against_the_reference_only_ties_and_defects_differ(reference: Path) -> None:
    """Of 198 servers in the 21 deterministic systems three differ."""
    ties, exceptions = [], {}
    for name, one in all_recorded(reference).items():
        for who in one.differing():
            if reason := one.reason(who):
                exceptions[name, who] = reason
            else:
                ties.append((one, who))
    assert exceptions == {
        # ITL without a prompt is too low there: 2 replicas of 2xAIU2 miss the target, 3 do not.
        ("case23", "Class1-llama_13b"): "no prompt",
        # Both of priority 5 and out of candidates; one of the two gets the last 60 units of AIU2.
        ("case21", "Class1-llama_70b"): "order of waiting",
        ("case21", "Class2-granite_34b"): "order of waiting",
        ("case05", "Class2-mistral_7b"): "no prompt",  # wrongly rejected everywhere there
        ("case26", "Class1-granite_34b"): "first fit",
    }
    for one, who in ties:  # another accelerator or count at the same cost
        assert not one.deterministic
        cost = sum(pool.cost_cents_per_h for pool in one.plan.allocations[who])
        assert cost == pytest.approx(one.theirs[who]["cost"], rel=1e-6), who


@pytest.mark.slow
def test_no_server_is_dropped_as_the_reference_drops_idle_ones(reference: Path) -> None:
    """A defect of the reference: a server without load vanishes from the reference's answer."""
    dropped = 0
    for one in all_recorded(reference).values():
        for name, demand in demands(one.system).items():
            if not demand.to_serve:
                dropped += name not in one.theirs
                assert one.plan.allocations[name] == ()
    assert dropped == 3  # counted in the records


@pytest.mark.slow
def test_partial_service_is_quoted_at_its_own_load(reference: Path) -> None:
    """A defect of the reference: the latencies quoted are those of an allocation in full."""
    compared = 0
    for one in all_recorded(reference).values():
        for name in one.theirs.keys() & one.plan.allocations.keys():
            if not 0 < one.fraction(name) < 1 or one.placed(name) != one.their_placed(name):
                continue
            pool = one.plan.allocations[name][0]
            assert pool.arrival_rate_rpm == pytest.approx(pool.max_arrival_rate_rpm), name
            full = one.their_candidates[name][pool.accelerator]
            assert one.theirs[name]["itlAverage"] == pytest.approx(full["itlAverage"], rel=1e-6), name
            compared += 1
    assert compared >= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "total_cost", "left_out"),
    [
        ("small", 43_819.0, 0),  # shared/reference/README.md, "Known answers": reference greedy
        ("large", 19_208.0, 1),  # the reference's own answer, recorded: only 26 of 27 servers are served
    ],
)
def test_the_sample_systems_have_the_references_greedy_answers(
    name: str, total_cost: float, left_out: int, specs: Path
) -> None:
    plan = solve(load_system(specs / name), milp_solver=False, saturation_policy="None")
    assert plan.total_cost_cents_per_h == pytest.approx(total_cost)
    assert len(plan.unserved) == left_out
    assert (plan.status, plan.solver, plan.bound, plan.gap) == ("heuristic", "greedy", None, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "delayed", "allocated"),
    [  # the reference's own answers at a quarter of the capacity, recorded: of 15 servers
        ("None", False, 9),
        ("PriorityExhaustive", False, 14),
        ("RoundRobin", True, 15),
    ],
)
def test_a_quarter_of_capacity_serves_as_many_as_the_reference(
    policy: str, allocated: int, specs: Path, *, delayed: bool
) -> None:
    source = load_system(specs / "small")
    units = {kind: count // 4 for kind, count in source.capacity.items()}
    plan = solve(
        source.with_capacity(units),
        milp_solver=False,
        saturation_policy=policy,
        delayed_best_effort=delayed,
    )
    assert sum(bool(pools) for pools in plan.allocations.values()) == allocated
    if policy == "None":
        assert plan.total_cost_cents_per_h == pytest.approx(9_047.75)  # the same line


# --- a second writing of the algorithm ---------------------------------------------------------------------


def plain_greedy(case: Case) -> dict[str, tuple[str, int]]:
    """Return accelerator and replicas by server: the reference's way line by line. Ties by room, name."""
    left = None if case.units is None else dict(case.units)
    open_options = {
        choice.name: sorted(choice.options, key=lambda o: (o.value, o.changed, -o.room, o.accelerator))
        for choice in case.choices
        if choice.options
    }
    priority = {choice.name: choice.priority for choice in case.choices}

    def urgency(name: str) -> tuple[int, float, float, str]:
        best, *rest = open_options[name]
        regret = float(rest[0].value - best.value) if rest else float("inf")
        return priority[name], -regret, -float(best.value), name

    taken: dict[str, tuple[str, int]] = {}
    while open_options:
        name = min(open_options, key=urgency)
        best: Option = open_options[name].pop(0)
        if left is None or left.get(best.kind, 0) >= best.units:
            taken[name] = best.accelerator, best.replicas
            if left is not None:
                left[best.kind] = left.get(best.kind, 0) - best.units
        if name in taken or not open_options[name]:
            del open_options[name]
    return taken


def placed(plan: Plan) -> dict[str, tuple[str, int]]:
    return {
        name: (pools[0].accelerator, pools[0].num_replicas)
        for name, pools in plan.allocations.items()
        if pools
    }


@pytest.mark.parametrize("seed", seeds(7, 53))
def test_greedy_equals_a_plain_second_writing_on_random_systems(seed: int) -> None:
    source = load_system(random_mixed_document(seed)).with_options(heterogeneous=False, unlimited=False)
    plan = solve(source, milp_solver=False)
    assert placed(plan) == plain_greedy(read_case(source))
    assert (plan.status, plan.solver) == ("heuristic", "greedy")


# --- worked by hand ----------------------------------------------------------------------------------------


def greedy(servers: list[Json], cards: list[Json], units: dict[str, int], **more: Any) -> Plan:
    return solve(system(servers, cards, units, milpSolver=False, **more))


def test_the_server_that_would_lose_most_chooses_first() -> None:
    # One replica of A for 10; without it `a` pays 12 on B, `b`, which may not use B, 40 on C.
    plan = greedy(
        [
            server("a", replicas=1, accelerators=["A", "B"]),
            server("b", replicas=1, accelerators=["A", "C"]),
        ],
        [accelerator("A", cost=10.0), accelerator("B", cost=12.0), accelerator("C", cost=40.0)],
        {"A": 1, "B": 1, "C": 1},
    )
    assert placed(plan) == {"a": ("B", 1), "b": ("A", 1)}


def test_a_server_whose_best_does_not_fit_waits_with_its_next() -> None:
    # a goes first (it would lose 41.8 from A to C), but two replicas do not fit on A. It waits with C, where
    # it would lose 22 to D, and goes first again: one C is too few, too. So b gets it.
    plan = greedy(
        [
            server("a", replicas=2, accelerators=["A", "C", "D"]),
            server("b", replicas=1, accelerators=["C", "D"]),
        ],
        [accelerator("A", cost=1.0), accelerator("C", cost=20.0), accelerator("D", cost=30.0)],
        {"A": 1, "C": 1, "D": 2},
    )
    assert placed(plan) == {"a": ("D", 2), "b": ("C", 1)}


def test_greedy_leaves_out_a_server_that_the_exact_choice_serves() -> None:
    # a would lose 5.5 from A to B, b nothing from A to A2, which are of one type: a goes first and takes the
    # only unit of it.
    source = system(
        [
            server("a", replicas=1, accelerators=["A", "B"]),
            server("b", replicas=1, accelerators=["A", "A2"]),
        ],
        [
            accelerator("A", "T", cost=10.0),
            accelerator("A2", "T", cost=10.0),
            accelerator("B", "U", cost=15.0),
        ],
        {"T": 1, "U": 1},
    )
    baseline, best = solve(source, milp_solver=False), solve(source)
    assert placed(baseline) == {"a": ("A", 1)}
    assert [item.server for item in baseline.unserved] == ["b"]
    assert placed(best) == {"a": ("B", 1), "b": ("A", 1)}


# --- the exact choice is never worse -----------------------------------------------------------------------


def service(plan: Plan, source: System) -> list[Fraction]:
    """Return, from the highest priority down, the load and the number of servers that are served in full."""
    asked = demands(source)
    left_out = {item.server for item in plan.unserved}
    vector = []
    for priority in sorted({demand.priority for demand in asked.values()}):
        served = [d for d in asked.values() if d.priority == priority and d.name not in left_out]
        vector += [sum((d.load_rpm for d in served), Fraction(0)), Fraction(len(served))]
    return vector


def assert_exact_is_no_worse(source: System) -> bool:
    """Compare like with like: the same policy, the same `delayedBestEffort`.

    Without delay the exact choice settles a priority at least value, not with the most units to spare: below
    the first priority that it cannot serve in full, greedy may then have more to choose from, and serve more.
    What is compared there is the service up to that priority.

    Returns:
        Whether greedy is strictly worse.
    """
    source = source.with_options(unlimited=False, heterogeneous=False, time_limit_s=120.0)
    best, baseline = solve(source, milp_solver=True), solve(source, milp_solver=False)
    ours, theirs = service(best, source), service(baseline, source)
    options = source.options
    if options.saturation_policy != "None" and not options.delayed_best_effort and best.unserved:
        priorities = sorted({demand.priority for demand in demands(source).values()})
        settled = 2 * priorities.index(min(item.priority for item in best.unserved)) + 2
        ours, theirs = ours[:settled], theirs[:settled]
        assert ours >= theirs
        return ours > theirs
    assert ours >= theirs
    partly = any(item.served_fraction for plan in (best, baseline) for item in plan.unserved)
    if ours == theirs and not partly:
        # Partial service costs too, and follows from a procedure: with it a value is not minimal.
        assert best.objective <= baseline.objective + 1e-6 * max(1.0, abs(baseline.objective))
    return ours > theirs or best.objective < baseline.objective - 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(CASES, 4))
def test_exact_is_no_worse_than_greedy_on_reference_systems(name: str, reference: Path) -> None:
    """Under the request's own policy, also within the capacities where the request says unlimited."""
    assert_exact_is_no_worse(recorded(reference / "optimizer" / f"{name}.json").system)


UNDER_ANY_POLICY = [(policy, delayed) for policy in POLICIES for delayed in (False, True)]


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "delayed"), UNDER_ANY_POLICY)
@pytest.mark.parametrize("name", CASES)
def test_exact_is_no_worse_under_any_policy_on_reference_systems(
    name: str, policy: str, reference: Path, *, delayed: bool
) -> None:
    source = recorded(reference / "optimizer" / f"{name}.json").system
    assert_exact_is_no_worse(source.with_options(saturation_policy=policy, delayed_best_effort=delayed))


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "delayed"), UNDER_ANY_POLICY)
@pytest.mark.parametrize(
    ("seed", "tightness"), mostly_slow([(0, 3.0), (0, 1.5), *product(range(1, 12), (1.2, 2.0, 3.0))], 1)
)
def test_exact_is_no_worse_than_greedy_on_random_fleets(
    seed: int, tightness: float, policy: str, *, delayed: bool
) -> None:
    source = generate_system(servers=20, accelerators=9, types=3, seed=seed, tightness=tightness)
    assert_exact_is_no_worse(source.with_options(saturation_policy=policy, delayed_best_effort=delayed))


@pytest.mark.slow
@pytest.mark.parametrize("divisor", mostly_slow([1, 2, 4], 2))
@pytest.mark.parametrize("name", ["small", "large"])
def test_the_exact_choice_is_better_than_greedy_on_the_samples(name: str, divisor: int, specs: Path) -> None:
    source = load_system(specs / name).with_options(saturation_policy="None")
    units = {kind: count // divisor for kind, count in source.capacity.items()}
    assert assert_exact_is_no_worse(source.with_capacity(units))
