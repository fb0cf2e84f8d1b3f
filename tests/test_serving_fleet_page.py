"""docs/scenarios/serving-fleet.md states what the program computes: every table and figure in its text."""

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from builders import Json
from doc_pages import ROOT, one_line, read_page, table

from optimizer import (
    Plan,
    Replica,
    ReplicaPerformance,
    System,
    analyze_replicas,
    find_candidates,
    load_system,
    scale_loads,
    solve,
    verify,
)
from optimizer.features.routes.streams import flows_of
from optimizer.features.routes.view import small_token_share
from optimizer.jobs.memory import MemoryQuestion, memory_of
from optimizer.profiles.catalogue import load_catalogue
from optimizer.schema import Route
from optimizer.simulation.replicas import Effort
from optimizer.studies.simulation.plans import simulate_pools
from optimizer.timing.static import longest_to_mean

PAGE = read_page("scenarios/serving-fleet.md")
TEXT = one_line(PAGE)
LARGE_USD, SMALL_USD = 30, 2
"""Prices of a million tokens that the design printed."""
BATCHES = (3, 8, 16, 32, 64)


@cache
def fleet() -> System:
    return load_system(ROOT / "specs" / "serving-fleet")


@cache
def planned() -> Plan:
    return solve(fleet())


def document() -> Json:
    return fleet().to_spec().model_dump(mode="json", by_alias=True)


def usd_per_h(plan: Plan) -> float:
    return plan.total_cost_cents_per_h / 100


def cost_usd(server: str) -> float:
    return sum(pool.cost_cents_per_h for pool in planned().allocations[server]) / 100


def without(field: str) -> Plan:
    made = document()
    for server in made["servers"]:
        server.pop(field, None)
    return solve(load_system(made))


# --- the plan --------------------------------------------------------------------------------------------


def test_the_plan_is_proved_and_verified() -> None:
    plan = planned()
    assert (plan.status, plan.gap, plan.unserved) == ("optimal", 0, ())
    assert verify(plan, fleet()) == []


def test_the_loads_of_the_parts() -> None:
    queues = {
        name: sum(member.arrival_rate_rpm for member in use.members.values()) / 60
        for name, use in planned().shared_queues.items()
    }
    routes = {name: use.arrival_rate_rpm / 60 for name, use in planned().routes.items()}
    total = 0.0
    for names, loads, _ in table(PAGE, "part"):
        for name, load in zip(names.split(", "), loads.split(", "), strict=True):
            assert (queues | routes)[name.strip("`")] == pytest.approx(float(load))
            total += float(load)
    assert total == 200
    assert "answers 200 requests per second" in TEXT
    assert fleet().options.network_ms["us"]["ap"] == 160
    targets = [
        (each.value / each.limit, name)
        for use in planned().shared_queues.values()
        for name, member in use.members.items()
        for each in member.targets
    ]
    assert max(targets)[1] == "ap-premium"


def test_what_sharing_and_residency_change() -> None:
    cost, alone = usd_per_h(planned()), usd_per_h(without("sharedQueue"))
    assert f"Sharing saves {alone - cost:.2f} USD/h.** With a queue" in TEXT
    assert f"the same fleet costs {alone:.2f} USD/h" in TEXT
    free = without("mayServeFrom")
    assert f"Data residency costs {cost - usd_per_h(free):.2f} USD/h" in TEXT
    assert {pool.accelerator for pool in free.allocations["eu-chat"]} == {"us-4xH100"}


def test_the_small_model_on_two_cards() -> None:
    listed: list[dict[str, Any]] = find_candidates(fleet()).to_wire()["candidates"]
    rate = {one["accelerator"]: one for one in listed if one["server"] == "us-assistant-8b"}
    said = []
    for name, usd in (("us-L40S", 0.80), ("us-H100", 3.00)):
        each = rate[name]["maxArrivalRatePerReplica"]
        assert fleet().accelerators[name].cost_cents_per_h == 100 * usd
        said += [f"{each:,.0f}", f"{usd / (each * 60 * 500) * 1e6:.2f}"]
    assert f"answers {said[0]} requests/min on an L40S for 0.80 USD/h, and {said[2]} on an H100 for" in TEXT
    assert f"{said[1]} against {said[3]} USD per million tokens" in TEXT


# --- failures --------------------------------------------------------------------------------------------


def with_replicas(count: int) -> Plan:
    """Return a plan of the queue us-chat on some number of replicas."""
    made = document()
    made["servers"] = [one for one in made["servers"] if one.get("sharedQueue") == "us-chat"]
    made["routes"] = []
    for server in made["servers"]:
        server.pop("availabilityTarget")
        server |= {"minNumReplicas": count, "maxNumReplicas": count}
    return solve(load_system(made), unlimited=True)


def failures() -> Iterator[list[str]]:
    for count in (13, 12, 11, 10):
        members = with_replicas(count).shared_queues["us-chat"].members
        found = {name.removeprefix("us-"): member.targets[1].value for name, member in members.items()}
        shown = (f"{found[name]:,.0f}" if name in found else "–" for name in ("premium", "standard", "free"))
        yield [str(count), *shown]


def test_priorities_act_when_replicas_are_missing() -> None:
    rows = list(failures())
    assert rows == table(PAGE, "replicas")
    (pool,) = planned().allocations["us-chat"]
    assert pool.num_replicas == 13
    k, a = 11, fleet().accelerators["us-4xH100"].availability
    there = [sum(math.comb(n, i) * a**i * (1 - a) ** (n - i) for i in range(k, n + 1)) for n in (12, 13)]
    assert there[0] < 0.999 <= there[1]
    assert "The load needs 11 replicas; 13 are planned" in TEXT
    assert rows[-1][-1] == "–"


# --- routing ---------------------------------------------------------------------------------------------


def saving(simple: float, miss: float, wrong: float, *, rerun: bool, length: float = 1.0) -> float:
    """Return the share of the price of all tokens at the large model that a route saves (eq. 228)."""
    easy = {"share": simple, "inTokens": 150 * length, "outTokens": 50 * length, "miss": miss}
    hard = {"share": 1 - simple, "inTokens": 150, "outTokens": 50, "wrong": wrong}
    given = {"name": "r", "small": "s", "large": "l", "arrivalRate": 60, "rerun": rerun}
    route = Route.model_validate(given | {"kinds": [easy, hard]})
    shares, tokens = [1 - miss, wrong], [200 * length, 200]
    total = simple * tokens[0] + (1 - simple) * tokens[1]
    large = sum(
        flow.large_rpm(share) / 60 * n for flow, share, n in zip(flows_of(route), shares, tokens, strict=True)
    )
    return 1 - (small_token_share(route, shares) * SMALL_USD + large / total * LARGE_USD) / LARGE_USD


def savings() -> Iterator[list[str]]:
    for simple in (0.5, 0.7, 0.8, 0.9):
        found = (
            saving(simple, 0, 0, rerun=False),
            saving(simple, 0.1, 0.05, rerun=False),
            saving(simple, 0.1, 0.05, rerun=True),
            saving(simple, 0.1, 0.05, rerun=True, length=0.5),
        )
        yield [f"{simple:.0%}".replace("%", " %"), *(f"{100 * each:.1f}" for each in found)]


def test_the_saving_by_prices_of_tokens() -> None:
    assert list(savings()) == table(PAGE, "simple share")
    each = 1 - SMALL_USD / LARGE_USD
    assert f"= {each:.3f}\\,x$" in TEXT
    assert f"**{0.6 / each * 100:.0f} to {0.7 / each * 100:.0f} % of all tokens must go there**" in TEXT
    each = 1 - 0.5 / LARGE_USD
    assert f"({0.6 / each * 100:.0f} to {0.7 / each * 100:.0f} % with a model at 0.5 USD)" in TEXT


@cache
def routed(per_second: float, max_loss: float) -> Plan:
    """Return a plan of the assistant of us alone, with any number of cards."""
    made = document()
    made["servers"] = [one for one in made["servers"] if one["name"].startswith("us-assistant")]
    (route,) = (one for one in made["routes"] if one["name"] == "us-assistant")
    made["routes"] = [route | {"arrivalRate": per_second * 60, "maxLoss": max_loss}]
    return solve(load_system(made), unlimited=True)


def on(plan: Plan) -> str:
    pools = [pool for _, pools in sorted(plan.allocations.items()) for pool in pools]
    return " + ".join(f"{pool.num_replicas} × {pool.accelerator}" for pool in pools)


def routes() -> Iterator[list[str]]:
    for rate in (1, 10, 100):
        plan = routed(rate, 0.01)
        use = plan.routes["us-assistant"]
        everything = f"{(use.all_large_cents_per_h or 0) / 100:.2f} USD/h"
        here = f"{on(plan)}, {use.cost_cents_per_h / 100:.2f} USD/h"
        yield [str(rate), everything, here, f"{100 * (use.saving or 0):.1f} %"]


def test_the_saving_in_whole_replicas() -> None:
    assert list(routes()) == table(PAGE, "requests/s | all large")
    (route,) = (one for one in fleet().routes.values() if one.name == "us-assistant")
    simple, hard = route.kinds
    assert (simple.share, hard.share, hard.wrong, hard.loss, route.max_loss) == (0.7, 0.3, 0.05, 0.3, 0.01)
    assert f"{100 * hard.share * hard.wrong * hard.loss:.2f} % of all answers are worse" in TEXT
    assert f"add up to {100 * simple.share * (1 - simple.miss) * simple.loss:.2f} %" in TEXT
    tight = routed(100, 0.005).routes["us-assistant"].saving
    assert (
        f"limit of 0.5 % instead of 1 %, the route saves only {100 * (tight or 0):.1f} % at 100 requests/s"
        in TEXT
    )


# --- cost per million tokens -------------------------------------------------------------------------------


def token_rows() -> Iterator[list[str]]:
    plan = planned()
    for name, pools in sorted(plan.allocations.items()):
        load = fleet().servers[name].current.load
        per_h = sum(pool.arrival_rate_rpm for pool in pools) * 60
        both, out = (
            cost_usd(name) / (per_h * tokens) * 1e6
            for tokens in (load.in_tokens + load.out_tokens, load.out_tokens)
        )
        yield [f"`{name}`", f"{both:.2f}", f"{out:.2f}"]


def test_the_cost_of_tokens() -> None:
    assert list(token_rows()) == table(PAGE, "server")
    assert pytest.approx(30, rel=1e-2) == 24 / (222 * 3600) * 1e6
    assert pytest.approx(2, rel=1e-3) == 12 / (1667 * 3600) * 1e6
    assert pytest.approx(0.5, rel=1e-2) == 0.70 / (390 * 3600) * 1e6
    out = sum(pool.arrival_rate_rpm for pool in planned().allocations["us-chat"]) / 60 * 200
    assert f"`us-chat` generates {out:,.0f} tokens/s for {cost_usd('us-chat'):.2f} USD/h" in TEXT


@cache
def five_times() -> Plan:
    return solve(scale_loads(fleet(), 5), unlimited=True)


def cards(plan: Plan) -> str:
    """Return the cards of a plan in words."""
    used = [f"{use.used} {use.type}" for use in plan.capacity if use.used]
    return f"{', '.join(used[:-1])} and {used[-1]}"


def test_five_times_the_load() -> None:
    plan = five_times()
    cost = usd_per_h(plan)
    assert plan.status == "optimal"
    assert f"five times the load, cost {cost:,.2f} USD/h" in TEXT
    assert f"{cost / usd_per_h(planned()):.1f} times as much: {cards(plan)}" in TEXT


# --- batching, memory, autoscaling -------------------------------------------------------------------------


def longest(batch: int, beyond: Any, top: float) -> float:
    """Return the mean of the longest of a batch over the mean, by the probabilities of exceeding lengths."""
    lengths = np.linspace(0, top, 400_001)
    return float(np.trapezoid(1 - (1 - beyond(lengths)) ** batch, lengths))


def batching() -> Iterator[list[str]]:
    """Yield E[max]/E[O] by integration; lognormal ones by the program."""
    third = (0.5, 1.0, 1.5)
    drawn = [
        sum(third[i] * ((i + 1) ** batch - i**batch) / 3**batch for i in range(len(third)))
        for batch in BATCHES
    ]
    yield ["equal", *("1.00" for _ in BATCHES)]
    yield ["50, 100 or 150", *(f"{each:.2f}" for each in drawn)]
    uniform = (longest(batch, lambda x: np.clip(1 - x / 2, 0, 1), 2) for batch in BATCHES)
    yield ["uniform", *(f"{each:.2f}" for each in uniform)]
    geometric = (longest(batch, lambda x: np.exp(-x), 40) for batch in BATCHES)
    yield ["geometric", *(f"{each:.2f}" for each in geometric)]
    for cv in (1, 2):
        found = longest_to_mean(np.full(len(BATCHES), float(cv)), np.array(BATCHES, np.float64))
        yield [f"lognormal, CV {cv}", *(f"{each:.2f}" for each in found)]


def test_the_longest_output_of_a_batch() -> None:
    assert list(batching()) == table(PAGE, "output lengths")
    assert "gains a factor of 1.5" in TEXT
    assert 150 / np.mean([50, 100, 150]) == 1.5
    harmonic = {batch: sum(1 / i for i in range(1, batch + 1)) for batch in range(1, 20)}
    assert [batch for batch, each in harmonic.items() if 2 <= each <= 3] == list(range(4, 11))
    assert "gain a factor of 2 to 3 in batches of 4 to 10; uniform ones never do" in TEXT


def static_rows() -> Iterator[list[str]]:
    rates = {}
    for name in ("continuous", "static", "padded"):
        own = {} if name == "continuous" else {"batching": name, "outTokensCV": 1}
        row = {
            "decodeParms": {"alpha": 8, "beta": 0.4}, "prefillParms": {"gamma": 5, "delta": 0.1},
            "inTokens": 500, "outTokens": 100, "maxBatch": 32,
        }  # fmt: skip
        (found,) = analyze_replicas([Replica.model_validate(row | own)], [1.0])
        assert isinstance(found, ReplicaPerformance)
        rates[name] = found.stable_rate_rps
    for name, rate in rates.items():
        yield [name, f"{rate:.2f}", f"{rates['continuous'] / rate:.2f} times"]


def test_the_gain_of_continuous_batching() -> None:
    assert list(static_rows()) == table(PAGE, "batching")


def memory() -> Iterator[list[str]]:
    for card in ("L4", "A10", "A30", "A100-40", "A100-80"):
        asked = MemoryQuestion(model="llama-3.1-8b", accelerators=(card,), in_tokens=500, out_tokens=200)
        (device,) = memory_of(asked).devices
        sold = load_catalogue().accelerator(card).memory_gb
        yield [card, f"{sold:g}", f"{device.requests.paged:,}"]


def test_the_cards_of_24_gb() -> None:
    assert list(memory()) == table(PAGE, "card")


def test_speculation_and_starting_pods() -> None:
    tokens = (1 - 0.7**6) / (1 - 0.7)
    assert f"= {tokens:.2f} tokens per pass" in TEXT
    assert f"decoding is {tokens / (1 + 5 * 2 / 30):.1f} times as fast" in TEXT
    assert 2 * 150 / 15 == 20
    assert "20 pods are added before the first is ready" in TEXT


# --- simulation --------------------------------------------------------------------------------------------


@pytest.mark.slow  # thirteen servers, 20,000 requests each
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_simulated_target_is_missed_by_a_tenth(seed: int) -> None:
    for pool in simulate_pools(fleet(), planned(), Effort(requests=20_000, seed=seed)).pools:
        for check in pool.targets:
            assert check.simulated.value <= 1.1 * check.limit, (pool.server, check.target)
