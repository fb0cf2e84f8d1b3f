"""The figures of the page about the multi-model service."""

import copy
from collections.abc import Callable
from functools import cache
from math import ceil
from typing import Any

import yaml
from doc_pages import ROOT
from scipy.special import bdtrc

from optimizer import Plan, System, load_system, solve
from optimizer.kinds.batch_servers.rows import BatchRow, BatchSizing
from optimizer.queueing.bulk.model import SteadyState

SPEC = ROOT / "specs" / "multi-model-service"
TARGETS = ((50, 100), (99, 500))
"""Percentiles of the latency and their limits [ms]."""
RATE_RPS = 1000
ENOUGH = 0.999
Document = dict[str, Any]


def document() -> Document:
    read: Document = yaml.safe_load((SPEC / "service.yaml").read_text(encoding="utf-8"))
    return read


def t4(max_batch: int = 5, window_ms: float = 10, **more: Any) -> BatchRow:
    """Return a T4 that serves sentiment or embeddings."""
    server = {"batchParms": {"base": 37.5, "slope": 2.5}, "maxBatchSize": max_batch, "window": window_ms}
    return BatchRow.model_validate(server | more)


def steady(rate_rps: float, window_ms: float = 10) -> SteadyState:
    """Return the steady state of a T4 at a rate."""
    return t4(window_ms=window_ms).queues().row_at(0, rate_rps)


@cache
def sized(
    targets: tuple[tuple[float, float], ...] = TARGETS,
    max_batch: int = 5,
    window_ms: float = 10,
    hits: float = 0.0,
) -> BatchSizing:
    """Return the largest rate of misses of a T4 at which all requests meet their targets (eq. 188)."""
    of_misses = [(100 - (100 - percentile) / (1 - hits), ms) for percentile, ms in targets]
    latency = [{"percentile": percentile, "ms": ms} for percentile, ms in of_misses if percentile > 0]
    return t4(max_batch, window_ms, latency=latency).size()


def gpus(max_batch: int, hits: float) -> int:
    """Return the T4s for 1,000 requests/s of one model."""
    return ceil(RATE_RPS * (1 - hits) / sized(max_batch=max_batch, hits=hits).offered_rps)


def fleet(needed: int, availability: float) -> int:
    """Return the fewest replicas of which enough are there with a probability of 99.9 %, by counting up."""
    count = needed
    while bdtrc(needed - 1, count, availability) < ENOUGH:
        count += 1
    return count


def share(needed: int, availability: float) -> float:
    """Return the load of a fleet as a share of full batches, if the replicas that it needs are full."""
    return sized().offered_rps / 100 * needed / fleet(needed, availability)


# --- variants of the system ----------------------------------------------------------------------------


def without(*fields: str) -> Callable[[Document], None]:
    """Return a change that removes fields of all servers."""

    def change(given: Document) -> None:
        for server in given["servers"]:
            for field in fields:
                server.pop(field, None)

    return change


def without_offline_work(given: Document) -> None:
    """Remove the servers with a deadline."""
    given["servers"] = [server for server in given["servers"] if "deadline" not in server]


def without_batches(given: Document) -> None:
    """Serve one request at a time, with more cards than there are."""
    for model in given["models"]:
        if "batchParms" in model:
            model["maxBatchSize"] = 1
    without("batchTimeout")(given)
    for item in given["count"]:
        item["count"] = 60


VARIANTS: dict[str, Callable[[Document], None]] = {
    "as specified": lambda _: None,
    "without 99.9% availability": without("availabilityTarget"),
    "without cards for updates": without("surge"),
    "one version of the chat": without("split"),
    "separate cards for the small models": without("sharedCard"),
    "without offline work": without_offline_work,
    "without caches": without("cacheHitRate"),
    "without batches": without_batches,
}


@cache
def planned(variant: str = "as specified") -> tuple[System, Plan]:
    given = copy.deepcopy(document())
    VARIANTS[variant](given)
    system = load_system(given)
    return system, solve(system)


# --- tables --------------------------------------------------------------------------------------------


def rates() -> list[str]:
    rows = [
        "| target | largest rate [requests/s] | p50 then [ms] | p99 then [ms] |",
        "|---|---:|---:|---:|",
    ]
    for targets in (TARGETS, TARGETS[1:], ((99, 200),)):
        rate = sized(targets).offered_rps
        found = steady(rate)
        text = " and ".join(f"p{percentile} within {ms} ms" for percentile, ms in targets)
        rows.append(f"| {text} | {rate:.1f} | {found.quantile_ms(0.5):.0f} | {found.quantile_ms(0.99):.0f} |")
    return rows


def cached() -> list[str]:
    rows = [f"| {size} | {gpus(size, 0)} | {gpus(size, 0.3)} | {gpus(size, 0.5)} |" for size in (5, 8, 16)]
    return ["| largest batch | no cache | 30% hits | 50% hits |", "|---:|---:|---:|---:|", *rows]


def costs() -> list[str]:
    """Return the table of what requirements cost."""
    rows = ["| plan | USD/h | against the plan |", "|---|---:|---:|"]
    base = planned()[1].total_cost_cents_per_h / 100
    for name in VARIANTS:
        cost = planned(name)[1].total_cost_cents_per_h / 100
        against = f"{cost - base:+.2f}" if name != "as specified" else ""
        rows.append(f"| {name} | {cost:.2f} | {against} |")
    return rows


def loads() -> list[str]:
    """Return the table of the two meanings of utilisation, of one T4."""
    rows = [
        "| load of one T4 [requests/s] | share of full batches | busy | p99 [ms] |",
        "|---:|---:|---:|---:|",
    ]
    for rate in (10, 25, 30, 40, 80):
        found = steady(rate)
        rows.append(f"| {rate} | {rate}% | {found.busy:.0%} | {found.quantile_ms(0.99):.0f} |")
    return rows


def fleets() -> list[str]:
    rows = [
        "| T4s for the load | availability 0.99 | load | availability 0.995 | load |",
        "|---:|---:|---:|---:|---:|",
    ]
    for needed in (1, 2, 4, 8, 11, 16, 32):
        parts = (f"{fleet(needed, a)} | {share(needed, a):.0%}" for a in (0.99, 0.995))
        rows.append(f"| {needed} | " + " | ".join(parts) + " |")
    return rows


TABLES = rates, cached, costs, loads, fleets
