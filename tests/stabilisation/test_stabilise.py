"""From plans to what is desired: without rules the plan itself, and what each rule holds."""

from dataclasses import replace
from typing import Any

import pytest
from builders import Json, accelerator, running, server, service_class, system

from optimizer import load_system, solve
from optimizer.plan import Plan
from optimizer.spec.system import System
from optimizer.stabilisation.decisions import (
    Decisions,
    Observation,
    ReplicaStatus,
    ServerDecision,
    TargetReason,
)
from optimizer.stabilisation.rules import RECOMMENDED, Rules, StepLimit, read_rules
from optimizer.stabilisation.stabilise import denoise_loads, stabilise


def fleet(rate_rpm: float = 60.0, cost_of_a: float = 10.0) -> System:
    """Return a fleet of a server that can run on A, or on B at 20 cents/h."""
    cards = [accelerator("A", cost=cost_of_a), accelerator("B", cost=20.0)]
    classes = [service_class("gold", itl=50)]
    return system([server("s", rate_rpm)], cards, {"A": 1000, "B": 1000}, classes=classes)


(POOL,) = solve(fleet(60_000.0)).allocations["s"]
RATE_RPM = POOL.max_arrival_rate_rpm / POOL.num_replicas
"""What a replica on A takes [requests/min]."""


def after(
    last: Decisions | None, replicas: float, now_s: float, rules: Rules, seen: Observation | None = None
) -> Decisions:
    """Return the decisions after a plan for as much load as so many replicas take."""
    found = fleet(replicas * RATE_RPM)
    observed = replace(seen or Observation(now_s), now_s=now_s)
    to_plan, estimates = denoise_loads(found, rules, last, observed)
    return stabilise(solve(to_plan), found, rules, last, observed, estimates)


def number(decisions: Decisions, on: str = "A") -> int:
    return decisions.servers["s"].replicas.get(on, 0)


def reason(decisions: Decisions, on: str = "A") -> TargetReason:
    return decisions.servers["s"].targets[on].reason


def run(rules: Rules, *loads: tuple[float, float]) -> Decisions:
    """Return the decisions after plans for loads, in replicas, at times [s]."""
    decisions: Decisions | None = None
    for now_s, replicas in loads:
        decisions = after(decisions, replicas, now_s, rules)
    assert decisions is not None
    return decisions


@pytest.mark.slow
@pytest.mark.parametrize("path", ["specs/small", "specs/large"])
def test_without_rules_what_is_desired_is_the_plan(path: str) -> None:
    sample = load_system(path)
    plan, empty = solve(sample), Decisions(0.0, {})
    for last in (None, empty, stabilise(plan, sample, Rules(), None, Observation(0.0))):
        found = stabilise(plan, sample, Rules(), last, Observation(60.0))
        assert found == stabilise(plan, sample, Rules(), last, Observation(60.0))
        for name, pools in plan.allocations.items():
            assert found.servers[name].replicas == {pool.accelerator: pool.num_replicas for pool in pools}
            assert not any(target.held for target in found.servers[name].targets.values())


def test_every_change_is_counted() -> None:
    found = run(Rules(), (0, 3.5), (60, 5.5), (120, 1.5), (180, 1.5))
    assert (found.servers["s"].ups, found.servers["s"].downs) == (1, 1)
    assert reason(found) == TargetReason.unchanged


# --- from zero ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("rate_rpm", [0.1, 1.0, 300.0])
def test_from_zero_the_first_request_starts_replicas(rate_rpm: float) -> None:
    """No request arrives by chance at a rate of 0, so the first one is significant."""
    replicas = rate_rpm / RATE_RPM
    idle = run(RECOMMENDED, *((60.0 * i, 0.0) for i in range(10)))
    assert {on: target.reason for on, target in idle.servers["s"].targets.items()} == {
        "A": TargetReason.idle, "B": TargetReason.idle
    }  # fmt: skip
    first = after(idle, replicas, 600.0, RECOMMENDED)
    assert (number(first), reason(first)) == (1, TargetReason.load_increase)
    assert not first.servers["s"].targets["A"].held
    assert number(after(first, replicas, 660.0, RECOMMENDED)) == 1


def test_a_server_that_becomes_idle_says_so() -> None:
    rules = Rules(noise=3.5)
    decisions = run(rules, (0, 2.5), (60, 0.0), (120, 0.0))
    assert (number(decisions), reason(decisions)) == (0, TargetReason.idle)
    again = after(decisions, 0.01, 180, rules)
    assert (number(again), reason(again)) == (1, TargetReason.load_increase)


def test_an_unserved_server_without_replicas_has_its_reason() -> None:
    scarce = system(
        [server("s", 60_000.0)], [accelerator("A")], {"A": 1}, classes=[service_class("gold", itl=50)]
    )
    found = stabilise(solve(scarce), scarce, Rules(), None, Observation(0.0))
    target = found.servers["s"].targets["A"]
    assert (target.replicas, target.reason, target.held) == (0, TargetReason.unserved, False)
    assert target.detail


# --- one rule at a time -------------------------------------------------------------------------------------


def test_a_target_goes_down_to_the_largest_number_of_the_window() -> None:
    rules = Rules(scale_down_window_s=300.0)
    held = run(rules, (0, 7.5), (60, 3.5), (120, 5.5), (299, 1.5))
    assert (number(held), reason(held)) == (8, TargetReason.scale_down_window)
    assert number(after(held, 1.5, 301, rules)) == 6
    assert number(after(held, 1.5, 700, rules)) == 2
    assert number(after(held, 8.5, 301, rules)) == 9  # up at once


def test_a_partial_decrease_states_number_and_plan() -> None:
    rules = Rules(scale_down_window_s=300.0)
    target = run(rules, (0, 7.5), (60, 3.5), (120, 5.5), (299, 1.5), (301, 1.5)).servers["s"].targets["A"]
    assert (target.replicas, target.reason, target.held) == (6, TargetReason.scale_down_window, True)
    assert target.detail.startswith("from 8, where the plan has 2; ")
    later = after(run(rules, (0, 7.5), (60, 3.5)), 2.5, 90, rules).servers["s"].targets["A"]
    assert (later.replicas, "from" in later.detail) == (8, False)


def test_a_decrease_after_the_window_follows_the_sized_load() -> None:
    """The load rises a little just before, but is below that of the larger number."""
    found = run(Rules(scale_down_window_s=300.0), (0, 7.5), (60, 2.5), (290, 3.2), (310, 3.4))
    assert (number(found), reason(found)) == (4, TargetReason.load_decrease)


def test_pools_shrink_only_with_a_load_margin() -> None:
    rules = Rules(scale_down_load=1.15)
    assert number(run(rules, (0, 7.5), (60, 6.9))) == 8
    assert number(run(rules, (0, 7.5), (60, 6.0))) == 7
    assert number(run(rules, (0, 7.5), (60, 3.0))) == 4
    held = run(rules, (0, 7.5), (60, 6.9))
    assert reason(held) == TargetReason.scale_down_load
    assert held.servers["s"].targets["A"].held


def test_a_load_that_is_missing_holds_what_was_desired() -> None:
    rules = Rules(hold_missing_load=True)
    first = run(rules, (0, 3.5))
    held = after(first, 9.5, 60, rules, Observation(60, frozenset({"s"})))
    assert (number(held), reason(held)) == (4, TargetReason.load_missing)
    assert number(after(held, 9.5, 120, rules)) == 10
    assert number(after(first, 9.5, 60, Rules(), Observation(60, frozenset({"s"})))) == 10


def test_growth_and_decline_are_limited() -> None:
    rules = Rules(
        scale_up_limit=StepLimit(share=1.0, replicas=4, period_s=60.0),
        scale_down_limit=StepLimit(share=0.1, replicas=1, period_s=120.0),
    )
    up = run(rules, (0, 1.5), (60, 99.5))
    assert (number(up), reason(up)) == (6, TargetReason.scale_up_limit)
    assert number(after(up, 99.5, 90, rules)) == 6
    assert number(after(after(up, 99.5, 90, rules), 99.5, 121, rules)) == 12
    down = run(rules, (0, 39.5), (120, 1.5))
    assert (number(down), reason(down)) == (36, TargetReason.scale_down_limit)
    assert number(after(down, 1.5, 180, rules)) == 36
    assert number(after(down, 1.5, 241, rules)) == 33


def test_long_pending_replicas_block_growth_and_can_be_removed() -> None:
    rules = Rules(pending_limit_s=600.0, scale_down_window_s=300.0)
    pending = Observation(0.0, replicas={"s": {"A": ReplicaStatus(3, 2)}})
    found = after(after(None, 4.5, 0, rules, pending), 4.5, 60, rules, pending)
    assert number(after(found, 6.5, 300, rules, pending)) == 7
    stuck = after(found, 6.5, 700, rules, pending)
    assert (number(stuck), reason(stuck)) == (5, TargetReason.pending)
    assert (
        number(after(stuck, 6.5, 760, rules, Observation(760, replicas={"s": {"A": ReplicaStatus(5)}}))) == 7
    )
    assert number(after(found, 0.5, 120, rules, pending)) == 3  # of five, two are not there yet


def moved(
    rules: Rules, now_s: float, last: Decisions, dear: float, seen: Observation | None = None
) -> Decisions:
    """Return the decisions after a plan in which A costs so much that B may be cheaper."""
    found = fleet(3.5 * RATE_RPM, dear)
    targets = {
        name: replace(item, targets={on: replace(t, cost_cents_per_h=dear if on == "A" else 20.0)
                                     for on, t in item.targets.items()})
        for name, item in last.servers.items()
    }  # fmt: skip
    observed = replace(seen or Observation(now_s), now_s=now_s)
    return stabilise(solve(found), found, rules, replace(last, servers=targets), observed)


def test_a_move_must_be_worth_it() -> None:
    rules = Rules(min_saving=0.02)
    first = run(rules, (0, 3.5))
    small = moved(rules, 60, first, 20.2)
    assert small.servers["s"].replicas == {"A": 4}
    kept = small.servers["s"].targets["A"]
    assert kept.reason == TargetReason.small_saving
    # Four replicas cost 80.8 cents/h on A, and 80 on B, as planned.
    assert kept.detail == "moving would save 1.00% of the cost of the fleet, less than minSaving (0.02)"
    assert moved(rules, 60, first, 30.0).servers["s"].staying.keys() == {"B"}
    both = moved(Rules(), 60, first, 20.2)
    assert both.servers["s"].replicas == {"A": 4, "B": 4}
    there = Observation(0.0, replicas={"s": {"A": ReplicaStatus(4), "B": ReplicaStatus(4)}})
    assert moved(Rules(), 120, both, 20.2, there).servers["s"].replicas == {"B": 4}


def test_servers_dwell_and_old_pools_wait_for_new_ones() -> None:
    rules = Rules(switch_dwell_s=1800.0, switch_saving=0.1)
    first = run(rules, (0, 3.5))
    early = moved(rules, 600, first, 30.0)
    assert (early.servers["s"].replicas, reason(early)) == ({"A": 4}, TargetReason.dwell)
    assert moved(rules, 2000, first, 21.0).servers["s"].replicas == {"A": 4}  # too little is saved
    there = Observation(0.0, replicas={"s": {"A": ReplicaStatus(4)}})
    both = moved(rules, 2000, first, 30.0, there)
    assert both.servers["s"].replicas == {"A": 4, "B": 4}
    assert (reason(both), reason(both, "B")) == (TargetReason.waits_for_new_pool, TargetReason.switch)
    starting = Observation(0.0, replicas={"s": {"A": ReplicaStatus(4), "B": ReplicaStatus(3, 1)}})
    assert moved(rules, 2060, both, 30.0, starting).servers["s"].replicas == {"A": 4, "B": 4}
    ready = Observation(0.0, replicas={"s": {"A": ReplicaStatus(4), "B": ReplicaStatus(4)}})
    assert moved(rules, 2120, both, 30.0, ready).servers["s"].replicas == {"B": 4}


def test_unreported_replicas_are_ready_after_the_startup_time() -> None:
    rules = Rules(switch_dwell_s=60.0, startup_s=300.0)
    both = moved(rules, 100, run(rules, (0, 3.5)), 30.0)
    assert moved(rules, 390, both, 30.0).servers["s"].replicas == {"A": 4, "B": 4}
    assert moved(rules, 400, both, 30.0).servers["s"].replicas == {"B": 4}


def test_an_idle_server_goes_down_and_comes_back_at_once() -> None:
    rules = Rules(scale_down_window_s=300.0)
    idle = run(rules, (0, 3.5), (60, 0.0))
    assert number(idle) == 4
    gone = after(idle, 0.0, 400, rules)
    assert number(gone) == 0
    assert number(after(gone, 2.5, 460, rules)) == 3


# --- what cannot be served, and what does not fit -----------------------------------------------------------


def scarce(*servers: Json, units: int) -> tuple[System, Plan]:
    found = system(servers, [accelerator("A")], {"A": units})
    return found, solve(found)


def test_a_server_that_cannot_be_served_keeps_what_it_runs() -> None:
    classes = [service_class("gold", itl=0.001)]
    fast = system([server("s", current=running("A", 2))], [accelerator("A")], {"A": 9}, classes=classes)
    plan = solve(fast)
    assert plan.unserved
    found = stabilise(plan, fast, Rules(), None, Observation(0.0))
    target = found.servers["s"].targets["A"]
    assert (target.replicas, target.held, target.reason) == (2, True, TargetReason.unserved)
    seen = Observation(60.0, replicas={"s": {"A": ReplicaStatus(1, 2)}})
    assert stabilise(plan, fast, Rules(), found, seen).servers["s"].replicas == {"A": 3}


def test_what_is_kept_for_want_of_units_is_what_is_left_of_them() -> None:
    fleet_of_two, plan = scarce(
        server("first", 60.0, replicas=3), server("other", replicas=4, current=running("A", 3)), units=4
    )
    assert [item.server for item in plan.unserved] == ["other"]
    found = stabilise(plan, fleet_of_two, Rules(), None, Observation(0.0))
    assert found.servers["first"].replicas == {"A": 3}
    assert found.servers["other"].replicas == {"A": 1}


def test_nothing_is_held_that_does_not_fit() -> None:
    rules = Rules(scale_down_window_s=300.0)

    def planned(first: int, other: int, last: Decisions | None, now_s: float) -> Decisions:
        both, plan = scarce(server("a", 60.0, replicas=first), server("b", 60.0, replicas=other), units=10)
        assert plan.complete
        return stabilise(plan, both, rules, last, Observation(now_s))

    before = planned(8, 2, None, 0)
    found = planned(4, 6, before, 60)
    total = sum(sum(item.replicas.values()) for item in found.servers.values())
    assert total <= 10
    assert found.servers["b"].replicas == {"A": 6}
    assert planned(4, 3, before, 60).servers["a"].replicas == {"A": 4}  # of eight held, seven would fit
    assert planned(4, 2, before, 60).servers["a"].replicas == {"A": 8}


def test_a_server_that_the_plan_does_not_know_keeps_its_decision() -> None:
    one, plan = scarce(server("s"), units=9)
    other = ServerDecision({}, 0.0)
    found = stabilise(plan, one, Rules(), Decisions(0.0, {"gone": other}), Observation(0.0))
    assert set(found.servers) == {"s"}


def test_rules_are_read_from_a_file_and_are_off_by_default(tmp_path: Any) -> None:
    assert Rules() == Rules.model_validate({})
    assert not any(
        value for name, value in Rules() if name not in {"load_window_s", "startup_s", "switch_saving"}
    )
    path = tmp_path / "rules.yaml"
    path.write_text("scaleDownWindow: 5 min\nscaleUpLimit: {share: 1, replicas: 4, period: 60}\n")
    rules = read_rules(path)
    assert (rules.scale_down_window_s, rules.scale_up_limit) == (
        300.0,
        StepLimit(share=1, replicas=4, period_s=60),
    )
    path.write_text("scaleDownWindo: 5\n")
    with pytest.raises(Exception, match="scaleDownWindow"):
        read_rules(path)
