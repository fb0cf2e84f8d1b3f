"""Horizons: what to reserve and rent, against brute force, single plans and simple policies."""

import itertools
import math
from collections.abc import Sequence

import pytest
from builders import accelerator, document, profile, server, service_class
from feature_fleets import with_features
from slow_cases import mostly_slow, seeds

from optimizer import System, load_system, solve
from optimizer.generate import generate_document
from optimizer.render.horizon_sections import horizon_sections
from optimizer.spec.load_traces import LoadStep
from optimizer.spec.loads import stated_loads
from optimizer.studies.horizon.horizon import PEAK, plan_horizon
from optimizer.studies.horizon.horizon_document import Horizon, Policy
from optimizer.studies.horizon.horizon_figure import horizon_figure
from optimizer.studies.horizon.hours import hours_of
from optimizer.studies.horizon.outcomes import outcome_of

ONE_REPLICA = 540.0
"""Requests/min that a replica of the default profile carries, a little less."""


def trace(system: System, *loads: Sequence[float], hours: float = 1.0) -> list[LoadStep]:
    """Return steps in which each server, in the order of the names, has a load in replicas of the default."""
    steps = []
    for h, row in enumerate(loads):
        changed = {}
        for name, replicas in zip(system.servers, row, strict=True):
            rate = max(replicas * ONE_REPLICA - 40, 0.0)
            changed[name] = system.with_load(name, arrival_rate_rpm=rate).servers[name]
        steps.append(LoadStep.of(system, h * 3600.0 * hours, changed.values()))
    return steps


def one_type(units: int, cost: float) -> System:
    card = accelerator("L4", cost=10.0) | {"tiers": [{"units": units, "cost": cost, "committed": True}]}
    return load_system(document([server("chat", 100.0)], [card], {"L4": 99}, transitionPenalty=0))


def policies(found: Horizon) -> dict[str, Policy]:
    return {item.name: item for item in found.policies}


def total(policy: Policy) -> float:
    return policy.total_cost + policy.transition_cost


DAY = (1, 1, 2, 4, 6, 6, 5, 3)


@pytest.mark.slow
@pytest.mark.parametrize("units", [1, 3, 99])
@pytest.mark.parametrize("share", mostly_slow((0.76, 0.3, 1.0, 0.1, 0.5), 1))
def test_one_accelerator_is_reserved_up_to_where_it_pays(units: int, share: float) -> None:
    system = one_type(units, 10 * share)
    found = plan_horizon(system, trace(system, *[(load,) for load in DAY]))
    (offer,) = found.reservations
    costs = [
        len(DAY) * k * float(offer.cost_cents_per_h) + sum(10 * max(load - k, 0) for load in DAY)
        for k in range(min(offer.offered, max(DAY)) + 1)
    ]
    assert found.policies[0].total_cost == pytest.approx(min(costs))
    assert offer.reserved == costs.index(min(costs))
    busy = sum(min(load, offer.reserved) for load in DAY)
    assert offer.used_share == pytest.approx(busy / (offer.reserved * len(DAY)) if offer.reserved else 0)
    lowest = sum(
        min(load, offer.offered) * float(offer.cost_cents_per_h) + 10 * max(load - offer.offered, 0)
        for load in DAY
    )
    assert found.bound == pytest.approx(lowest)
    assert found.gap == pytest.approx(1 - lowest / min(costs))
    assert policies(found)["hour by hour on demand"].total_cost == pytest.approx(10 * sum(DAY))
    assert policies(found)["fewest cards by the hour"].unit_hours == sum(DAY)


@pytest.mark.slow
def test_startups_rented_and_reserved_cards_add_up() -> None:
    system = one_type(99, 5.0)
    found = plan_horizon(system, trace(system, *[(load,) for load in DAY], hours=0.5))
    assert found.hours == 4
    reserved = found.reservations[0].reserved
    for hour, load in zip(found.plans, DAY, strict=True):
        (use,) = hour.use
        assert (use.reserved, use.rented) == (min(load, reserved), max(load - reserved, 0))
        assert hour.cost_cents_per_h == 5 * reserved + 10 * max(load - reserved, 0)
        assert hour.served_rpm == pytest.approx(hour.load_rpm)
        assert hour.servers["chat"][0].num_replicas == load
    assert [hour.started for hour in found.plans] == [0, 0, 1, 2, 2, 0, 0, 0]
    assert found.policies[0].startups == 5
    assert found.policies[0].total_cost == sum(0.5 * hour.cost_cents_per_h for hour in found.plans)


SPARED = load_system(document([server("chat", 100.0, spareReplicas=1)], [accelerator("L4")], {"L4": 3}))


def test_hours_state_which_servers_lack_their_reserve() -> None:
    """Three cards carry the largest load without a spare."""
    found = plan_horizon(SPARED, trace(SPARED, (1,), (3,), (2,), (4,)))
    assert [hour.reserves for hour in found.plans] == [1] * 4
    assert [hour.lacks_reserve for hour in found.plans] == [(), ("chat",), (), ("chat",)]
    assert {policy.lack_reserve for policy in found.policies} == {("chat",)}
    tables = {section.name: section for section in horizon_sections(found)}
    columns = [column.name for column in tables["hours"].columns]
    lacking = columns.index("lack reserve")
    assert [row[lacking : lacking + 2] for row in tables["hours"].rows] == [
        (0, None),
        (1, "chat"),
        (0, None),
        (1, "chat"),
    ]
    assert {column.name for column in tables["policies"].columns} >= {
        "lack reserve",
        "servers without reserve",
    }


@pytest.mark.slow
def test_one_plan_for_the_peak_keeps_all_reserves() -> None:
    """It is no policy if the cards do not suffice for them."""
    assert PEAK in policies(plan_horizon(SPARED, trace(SPARED, (1,), (2,))))
    assert PEAK not in policies(plan_horizon(SPARED, trace(SPARED, (1,), (3,))))


def test_reserves_come_before_cost() -> None:
    hours = hours_of(SPARED, trace(SPARED, (1,), (1,)))
    with_spare, without = (
        outcome_of(hours, [solve(hours[0].system.with_capacity({"L4": cards}))] * 2, {"L4": ()})
        for cards in (2, 1)
    )
    assert with_spare.cost > without.cost
    assert with_spare.beats(without)
    assert not without.beats(with_spare)


@pytest.mark.slow
def test_a_flat_day_without_tiers_is_the_single_plan() -> None:
    source = generate_document(8, 5, 4, seed=2)
    system = load_system(source).with_options(transition_penalty=0.0)
    plan = solve(system)
    steps = [LoadStep.of(system, h * 3600.0, stated_loads(system)) for h in range(24)]
    found = plan_horizon(system, steps)
    assert found.policies[0].total_cost == pytest.approx(24 * plan.total_cost_cents_per_h)
    assert found.policies[0].startups == found.policies[0].transitions == 0
    for hour in found.plans:
        assert {
            name: [(pool.accelerator, pool.num_replicas) for pool in pools]
            for name, pools in plan.allocations.items()
        } == {
            name: [(pool.accelerator, pool.num_replicas) for pool in pools]
            for name, pools in hour.servers.items()
        }
    assert found.gap == pytest.approx(0, abs=1e-9)


def tiered_fleet(seed: int, hours: int, penalty: float) -> tuple[System, list[LoadStep]]:
    source = generate_document(6, 4, 3, seed=seed, tightness=0.8)
    for item in source["accelerators"]:
        item["tiers"] = [{"units": 1 + seed % 4, "cost": 0.6 * item["cost"], "committed": True}]
    system = load_system(source).with_options(transition_penalty=penalty)
    steps = []
    for h in range(hours):
        changed = {}
        for i, (name, mine) in enumerate(system.servers.items()):
            factor = 0.3 + 0.7 * math.sin(math.pi * (h + i) / hours) ** 2
            rate = mine.current.load.arrival_rate_rpm * factor
            changed[name] = system.with_load(name, arrival_rate_rpm=rate).servers[name]
        steps.append(LoadStep.of(system, h * 3600.0, changed.values()))
    return system, steps


@pytest.mark.slow
@pytest.mark.parametrize("penalty", [0.0, 0.1])
@pytest.mark.parametrize("seed", seeds(1, 5))
def test_the_plan_is_never_worse_than_a_simple_policy(seed: int, penalty: float) -> None:
    found = plan_horizon(*tiered_fleet(seed, 6, penalty))
    first, *others = found.policies
    for other in others:
        assert first.unserved <= other.unserved + 1e-3
        if first.unserved >= other.unserved - 1e-3:
            assert total(first) <= total(other) + 1e-6 * total(other)
    assert found.bound is not None
    assert total(first) >= found.bound * (1 - 1e-9)


@pytest.mark.slow
def test_tiny_horizons_match_brute_force() -> None:
    """Two servers on two accelerators over three hours: all reservations, and all places in each hour."""
    loads = ((1, 3), (2, 1), (4, 2))
    for prices in ((10.0, 6.0, 14.0, 8.0), (10.0, 9.0, 11.0, 5.0), (10.0, 4.0, 10.0, 7.0)):
        (a, ra, b, rb) = prices
        cards = [
            accelerator("A", cost=a) | {"tiers": [{"units": 3, "cost": ra, "committed": True}]},
            accelerator("B", cost=b) | {"tiers": [{"units": 3, "cost": rb, "committed": True}]},
        ]
        servers = [server("x", 100.0), server("y", 100.0)]
        system = load_system(document(servers, cards, {"A": 99, "B": 99}, transitionPenalty=0))
        found = plan_horizon(system, trace(system, *loads))
        best = math.inf
        for kept in itertools.product(range(4), repeat=2):
            cost = 3 * (kept[0] * ra + kept[1] * rb)
            for hour in loads:
                cost += min(
                    sum(
                        price * max(sum(n for n, at in zip(hour, place, strict=True) if at == k) - kept[k], 0)
                        for k, price in enumerate((a, b))
                    )
                    for place in itertools.product((0, 1), repeat=2)
                )
            best = min(best, cost)
        assert found.bound is not None
        assert found.bound <= best + 1e-9
        assert total(found.policies[0]) == pytest.approx(best)


@pytest.mark.slow
def test_moving_between_hours_costs_the_transition_penalty() -> None:
    """B is cheap for one replica (it carries more), A for many of them: with a penalty nothing moves."""
    models = [profile("m", "A"), profile("m", "B", alpha=10.0)]
    cards = [accelerator("A", cost=10.0), accelerator("B", cost=9.0)]

    def system(penalty: float) -> System:
        return load_system(
            document(
                [server("chat", 100.0)], cards, {"A": 9, "B": 2}, models=models, transitionPenalty=penalty
            )
        )

    free, dear = system(0.0), system(5.0)
    moved = plan_horizon(free, trace(free, (1,), (3,), (1,))).policies[0]
    assert (moved.transitions, moved.transition_cost) == (2, 0)
    assert moved.total_cost == 9 + 30 + 9
    stayed = plan_horizon(dear, trace(dear, (1,), (3,), (1,))).policies[0]
    assert (stayed.transitions, stayed.transition_cost) == (0, 0)
    assert stayed.total_cost == 50


def test_every_policy_pays_for_moves_at_list_price() -> None:
    """The fewest cards for 1, 3 and 1 replicas: two of B carry what four of A do, three replicas need A."""
    cards = [accelerator("A", cost=10.0), accelerator("B", cost=40.0, multiplicity=1)]
    models = [profile("m", "A", count=2), profile("m", "B")]
    source = document([server("chat", 100.0)], cards, {"A": 9, "B": 2}, models=models, transitionPenalty=0.5)
    system = load_system(source)
    found = policies(plan_horizon(system, trace(system, (1,), (3,), (1,))))["fewest cards by the hour"]
    assert (found.transitions, found.unit_hours) == (2, 1 + 6 + 1)
    assert found.total_cost == 40 + 60 + 40
    assert found.transition_cost == 2 * 0.5 * (40 + 60)


def test_unserved_load_is_shown_and_served_by_priority() -> None:
    source = document(
        [server("chat", 100.0), server("code", 100.0, service="tin")],
        [accelerator("L4", cost=10.0)],
        {"L4": 3},
        classes=[service_class("gold"), service_class("tin", 2)],
        transitionPenalty=0,
    )
    system = load_system(source)
    found = plan_horizon(system, trace(system, (1, 1), (3, 2)))
    assert found.policies[0].unserved == pytest.approx(60 * (2 * ONE_REPLICA - 40))
    assert found.plans[1].served_rpm == pytest.approx(3 * ONE_REPLICA - 40)
    assert "one plan for the peak" not in policies(found)


def test_the_figure_shows_every_hour() -> None:
    system = one_type(3, 5.0)
    figure = horizon_figure(plan_horizon(system, trace(system, (1,), (4,))))
    assert [panel.title for panel in figure.panels][:2] == ["Load", "Cards in use"]
    cards = figure.panels[1]
    assert cards.kind == "curves"
    assert [item.y for item in cards.series] == [(1, 1, 1, 1), (1, 1, 4, 4)]
    assert cards.series[1].base == cards.series[0].y  # rented cards are above the reserved ones
    assert [item.name for item in cards.series] == ["reserved and in use", "rented"]
    assert [(item.name, item.value) for item in cards.guides] == [("reserved", 1)]


def test_an_external_service_uses_no_accelerators() -> None:
    system = load_system(with_features(2, {"external"}))
    plan = solve(system)
    assert {item.server for item in plan.rented} == {"s0", "s1"}
    found = plan_horizon(system, [LoadStep.of(system, 3600.0 * h, stated_loads(system)) for h in range(2)])
    assert [item.accelerator for item in found.plans[1].use] == ["A0"]
    assert found.plans[1].cost_cents_per_h == pytest.approx(plan.total_cost_cents_per_h)
