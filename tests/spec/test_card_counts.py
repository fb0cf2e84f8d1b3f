"""Accelerator types without a limit, and owned cards with another price for more of them."""

import copy
import json
import pickle
import random
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from builders import Json, accelerator, document, profile, refusal, server, service_class
from fastapi.testclient import TestClient

from optimizer import load_plan, load_system, make_report, solve, verify
from optimizer.candidates import find_candidates
from optimizer.cli.main import main
from optimizer.documents import UnlimitedCards
from optimizer.spec.system import System
from optimizer.stabilisation.decisions import Observation
from optimizer.stabilisation.rules import Rules
from optimizer.stabilisation.stabilise import stabilise
from optimizer.studies.explanation.explain import explain
from rest_server.app import create_app
from rest_server.settings import Settings

MANY = 10**6


def fleet(count: list[Json], rates: tuple[float, ...] = (2000.0, 3000.0, 900.0), **options: Any) -> Json:
    """Two types, of which H has slices of one and two cards at one price per card."""
    servers = [server(f"s{i}", rate, service="gold") for i, rate in enumerate(rates)]
    cards = [accelerator("H", cost=210.0), accelerator("2xH", "H", 420.0, 2), accelerator("G", cost=390.0)]
    models = [profile("m", "H"), profile("m", "2xH", alpha=7.0), profile("m", "G", alpha=8.0)]
    classes = [service_class("gold", itl=40.0, ttft=1000.0)]
    chosen = {"gap": 0.0, "transitionPenalty": 0.0} | options  # so that the value is the cost
    return document(servers, cards, {"H": 0}, models=models, classes=classes, **chosen) | {"count": count}


def counts(**cards: object) -> list[Json]:
    return [{"type": kind, "count": count} for kind, count in cards.items()]


def with_more(owned: int, price: float, **others: object) -> list[Json]:
    return [{"type": "H", "count": owned, "more": price}, *counts(**others)]


def cost(source: Json) -> float:
    system = load_system(source)
    plan = solve(system)
    assert verify(plan, system) == []
    assert plan.complete
    return plan.total_cost_cents_per_h


# --- without a limit ---------------------------------------------------------------------------------------


@pytest.mark.few(1)
@pytest.mark.parametrize("written", ["unlimited", "Unlimited", "UNLIMITED"])
@pytest.mark.parametrize("mixed", [False, True])
def test_an_unlimited_type_equals_one_with_many_cards(written: str, mixed: bool) -> None:  # noqa: FBT001  a parameter
    source = fleet(counts(H=6, G=written), heterogeneous=mixed)
    system = load_system(source)
    plan = solve(system)
    assert {use.type: use.limit for use in plan.capacity} == {"G": None, "H": 6}
    assert plan.total_cost_cents_per_h == pytest.approx(cost(fleet(counts(H=6, G=MANY), heterogeneous=mixed)))
    assert plan.total_cost_cents_per_h > cost(fleet(counts(H="unlimited", G="unlimited")))


def test_stated_limits_of_unlimited_types_are_verified() -> None:
    system = load_system(fleet(counts(H=6, G="unlimited")))
    plan = solve(system)
    use = plan.capacity[0]
    wrong = plan.model_copy(update={"capacity": (use.model_copy(update={"limit": 99}), *plan.capacity[1:])})
    assert any("capacity.0.limit" in problem for problem in verify(wrong, system))


def test_unlimited_types_are_written_as_they_were_read(tmp_path: Path) -> None:
    source = fleet([*with_more(6, 300.0), {"type": "G", "count": "unlimited"}])
    spec = load_system(source).to_spec().model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert spec["count"] == [
        {"type": "G", "count": "unlimited"}, {"type": "H", "count": 6, "more": 300.0},
    ]  # fmt: skip
    assert load_system(spec).capacity == load_system(source).capacity
    path, other = tmp_path / "a.json", tmp_path / "b.yaml"
    path.write_text(json.dumps(source))
    assert main(["convert", str(path), "-o", str(other)]) == 0
    assert load_system(other).to_spec() == load_system(path).to_spec()
    cards = load_system(source).capacity["H"]
    sent = pickle.loads(pickle.dumps(cards))  # noqa: S301  own bytes, as between worker processes
    for again in (sent, copy.deepcopy(cards)):
        assert isinstance(again, UnlimitedCards)
        assert (again.owned, again.more_cents_per_h) == (6, 300.0)
        assert again == cards
    assert cards not in (UnlimitedCards(), UnlimitedCards(6, 200.0), int(cards))


def test_other_words_and_negative_numbers_are_refused() -> None:
    for wrong in ("many", -1, 2.5, None):
        assert refusal(lambda wrong=wrong: load_system(fleet(counts(H=wrong)))).startswith("count[0].count: ")  # type: ignore[misc]


def test_the_loop_takes_any_number_of_an_unlimited_type() -> None:
    system = load_system(fleet(counts(H=2, G="unlimited")))
    plan = solve(system)
    found = stabilise(plan, system, Rules(), None, Observation(0.0))
    for name, pools in plan.allocations.items():
        assert found.servers[name].replicas == {pool.accelerator: pool.num_replicas for pool in pools}


# --- owned cards, and more -------------------------------------------------------------------------------


@pytest.mark.few(1)
@pytest.mark.parametrize("owned", [0, 3, 7, 50])
@pytest.mark.parametrize("mixed", [False, True])
def test_one_slice_with_more_equals_a_tier_of_that_slice(owned: int, mixed: bool) -> None:  # noqa: FBT001  a parameter
    mine = fleet(with_more(owned, 330.0, G="unlimited"), heterogeneous=mixed)
    tiered = fleet(counts(H="unlimited", G="unlimited"), heterogeneous=mixed)
    for source in (mine, tiered):
        del source["accelerators"][1]
        del source["models"][1]
    if owned:
        tiered["accelerators"][0]["tiers"] = [{"units": owned, "cost": 210.0}]
    tiered["accelerators"][0]["cost"] = 330.0
    assert cost(mine) == pytest.approx(cost(tiered))


def paid(system: System, chosen: tuple[int, ...]) -> float:
    """Return the cost of a candidate for each server, by the definition of the price for more cards."""
    table, cards = find_candidates(system).table, system.capacity["H"]
    assert isinstance(cards, UnlimitedCards)
    used = sum(int(table.units[c]) for c in chosen if int(table.type[c]) == 1)
    extra = max(used - (cards.owned or 0), 0) * (cards.more_cents_per_h - 210.0)
    return float(sum(table.cost_cents_per_h[c] for c in chosen)) + extra


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_slices_of_a_type_share_the_owned_cards(seed: int) -> None:
    """The optimum equals that of all combinations of one accelerator for each server."""
    rng = random.Random(seed)
    rates = tuple(rng.choice([300.0, 900.0, 2000.0, 3500.0]) for _ in range(3))
    source = fleet(with_more(rng.randint(0, 20), rng.choice([210.0, 300.0, 395.0]), G="unlimited"), rates)
    source["accelerators"][2]["cost"] = rng.choice([230.0, 390.0])
    system = load_system(source)
    table = find_candidates(system).table
    of_server = [[c for c in range(len(table)) if int(table.server[c]) == s] for s in range(3)]
    assert cost(source) == pytest.approx(min(paid(system, chosen) for chosen in product(*of_server)))


@pytest.mark.slow
def test_a_plan_states_what_more_cards_cost() -> None:
    system = load_system(fleet(with_more(4, 300.0)))
    plan = solve(system)
    (use,) = plan.tiers
    assert (use.type, use.accelerator, use.used) == ("H", None, plan.capacity[1].used)
    assert use.difference_cents_per_h == pytest.approx((use.used - 4) * 90.0)
    assert plan.total_cost_cents_per_h == pytest.approx(use.used * 210.0 + use.difference_cents_per_h)
    wrong = plan.model_copy(update={"tiers": (use.model_copy(update={"difference_cents_per_h": 0.0}),)})
    assert any("tiers.0.difference" in problem for problem in verify(wrong, system))
    assert explain(system).plan.tiers[0].name == "cards of H"
    assert make_report(system).plan.total_cost_cents_per_h == plan.total_cost_cents_per_h


@pytest.mark.slow
def test_a_budget_pays_for_more_cards() -> None:
    free = cost(fleet(with_more(4, 300.0)))
    system = load_system(fleet(with_more(4, 300.0), budget=free - 1.0))
    plan = solve(system)
    assert not plan.complete
    assert plan.total_cost_cents_per_h <= free - 1.0
    assert verify(plan, system) == []
    assert cost(fleet(with_more(4, 300.0), budget=free + 1e-6)) == pytest.approx(free)


def test_another_number_keeps_the_price_for_more() -> None:
    system = load_system(fleet(with_more(4, 300.0)))
    changed = solve(system.with_capacity({"H": 8})).total_cost_cents_per_h
    assert changed == pytest.approx(cost(fleet(with_more(8, 300.0))))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            lambda s: s["count"][0].update(more=100),
            "count[0].more: 100 cents/h is below the price of the first",
        ),
        (
            lambda s: s["count"][0].update(count="unlimited"),
            "more: the price of cards beyond count, which is unlimited; remove one of the two",
        ),
        (
            lambda s: s["accelerators"][1].update(cost=400),
            "count[0].more: a card costs 200 cents/h in 2xH and",
        ),
        (
            lambda s: s["accelerators"][0].update(tiers=[{"units": 1, "cost": 100}]),
            "count[0].more: H has tiers, which state a price by number too",
        ),
        (lambda s: s["count"][0].update(more="3 USD/h"), "a price in USD"),
    ],
)
def test_contradicting_prices_are_refused(change: Any, problem: str) -> None:
    source = fleet(with_more(4, 300.0))
    source["accelerators"][0]["cost"], source["accelerators"][1]["cost"] = 210.0, 420.0
    if "USD" in problem:
        source["accelerators"][2]["cost"] = "3.90 EUR/h"
        problem = "give all prices in one currency"
    change(source)
    assert problem in refusal(lambda: load_system(source))


# --- the service -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_stateful_service_keeps_both_over_a_restart(tmp_path: Path) -> None:
    settings = Settings(stateful=True, state=tmp_path / "fleet.db")
    source = fleet([*with_more(4, 300.0), *counts(G="unlimited")])
    with TestClient(create_app(settings), "http://localhost") as service:
        assert service.put("/v1/fleet", json=source).status_code == 200
        plan = service.post("/v1/loads", json={"s0": {"arrivalRate": 2500}}).json()
        assert {use["type"]: use.get("limit") for use in plan["capacity"]} == {"G": None, "H": None}
    with TestClient(create_app(settings), "http://localhost") as service:
        shown = service.get("/v1/capacity").json()["count"]
        assert sorted(shown, key=lambda item: item["type"]) == [
            {"type": "G", "count": "unlimited"}, {"type": "H", "count": 4, "more": 300.0},
        ]  # fmt: skip
        assert service.put("/v1/capacity/G", json={"type": "G", "count": 3}).status_code == 200
        assert service.get("/v1/capacity/G").json()["count"] == 3
        wire = {item["type"]: item["count"] for item in service.get("/getCapacities").json()["count"]}
        assert all(type(number) is int for number in wire.values())
        assert service.post("/setCapacity", json={"type": "G", "count": "unlimited"}).status_code == 400
        assert service.post("/v1/loads", json={}).status_code == 200


@pytest.mark.slow
def test_the_command_line_solves_verifies_and_sweeps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, plan = tmp_path / "s.json", tmp_path / "p.json"
    path.write_text(json.dumps(fleet([*with_more(4, 300.0), *counts(G="unlimited")])))
    assert main(["solve", str(path), "-o", str(plan)]) == 0
    assert load_plan(plan).complete
    assert main(["verify", str(plan), str(path)]) == 0
    assert main(["sweep", str(path), "--vary", "count:H=2,4,8", "--json"]) == 0
    capsys.readouterr()
    for arguments in (
        ["explain"],
        ["compare"],
        ["horizon", "--factors", "0.5,1"],
        ["solve", "--solver", "greedy"],
    ):
        assert main([arguments[0], str(path), *arguments[1:]]) == 0
