"""The tables of docs/scenarios/serving-fleet.md, by their first headings."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from builders import Json  # noqa: E402

from optimizer import (  # noqa: E402
    Plan,
    System,
    load_system,
    solve,
)
from optimizer.features.routes.streams import flows_of  # noqa: E402
from optimizer.features.routes.view import small_token_share  # noqa: E402
from optimizer.schema import Route  # noqa: E402

LARGE_USD, SMALL_USD = 30, 2
"""Prices of a million tokens that the design printed."""


@cache
def fleet() -> System:
    return load_system(ROOT / "specs" / "serving-fleet")


@cache
def planned() -> Plan:
    return solve(fleet())


def document() -> Json:
    return fleet().to_spec().model_dump(mode="json", by_alias=True)


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
        yield [f"{simple:.0%}", *(f"{100 * each:.1f}" for each in found)]


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
        yield [str(rate), everything, here, f"{100 * (use.saving or 0):.1f}%"]


ROWS: Mapping[str, Callable[[], Iterable[list[str]]]] = {
    "replicas": failures,
    "simple share": savings,
    "requests/s | all large": routes,
}
