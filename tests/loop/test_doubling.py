"""A load that really doubles: it is followed as soon as samples cover the window, with and without holes."""

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from recorded_samples import Series, answering, sampled, without
from simulated_fleet import DISCOVERY, SimulatedFleet, chat_system
from slow_cases import mostly_slow, seeds
from test_cycles import PERIOD_S, Loop, planned_at, workload

from optimizer import solve
from rest_server.loop.config import LoopConfig, PrometheusSource
from rest_server.loop.controller import Controller
from rest_server.loop.fetching import SourceError
from rest_server.loop.loads import EstimatedLoad, with_measured_loads
from rest_server.loop.prometheus import PrometheusReader

SYSTEM = chat_system()
STEP_S, END_S, WINDOW_S = 300, 600, 60
RATE_RPS = 9.0
"""Rate of all replicas before the step [requests/s]; twice this after it."""
NAMES = ("a", "b", "c")


def recorded(seed: int, failing: float) -> Series:
    """Return samples every 5 s of replicas whose load doubles, without those of failing scrapes."""
    each = RATE_RPS / len(NAMES)
    times = [*np.arange(0.0, STEP_S, 1 / each), *np.arange(STEP_S, END_S, 0.5 / each)]
    series = sampled(dict.fromkeys(NAMES, times), 0.0, END_S, 5.0)
    rng = random.Random(seed)
    scrapes = sorted({(name, at_s) for (name, _), found in series.items() for at_s, _ in found})
    gone = {scrape for scrape in scrapes if rng.random() < failing}
    return without(series, lambda name, at_s: (name, at_s) in gone)


def decided(series: Series) -> list[dict[str, Any]]:
    """Return the records of a loop that reads Prometheus and decides, but scales nothing."""
    source = {"kind": "prometheus", "url": "http://prometheus"}
    given = {"system": "fleet", "source": source, "period": PERIOD_S, "forecast": "none"}
    config = LoopConfig.model_validate(given)
    reader = PrometheusReader(answering(series), PrometheusSource.model_validate(source), WINDOW_S)
    fleet, records = SimulatedFleet(SYSTEM, len(NAMES)), list[dict[str, Any]]()
    loop = Controller(SYSTEM, config, reader, fleet, records.append, dry_run=True)
    for now_s in range(75, END_S + 1, PERIOD_S):
        loop.cycle(float(now_s))
    return records


def known(rate_rps: float) -> int:
    """Return the replicas that a plan for a known rate has, with the lengths of the document."""
    load = EstimatedLoad(rate_rps, rate_rps, 0.0)
    pools = solve(with_measured_loads(SYSTEM, {"talk": load}, variation=True)).allocations["talk"]
    return sum(pool.num_replicas for pool in pools)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failing", "seed"), mostly_slow([(0.0, 0), *((0.05, seed) for seed in range(20))], 4)
)
def test_twice_the_load_gets_the_plan_of_twice_the_load(failing: float, seed: int) -> None:
    """Two cycles after the window has only samples of the doubled load, or the next cycle that counts."""
    records = decided(recorded(seed, failing))
    now = [record["inputs"]["now_s"] for record in records]
    counted = [(at_s, record) for at_s, record in zip(now, records, strict=True) if not record["holds"]]
    assert len(counted) >= 0.9 * len(records)
    before = [workload(record)["replicas"] for at_s, record in counted if at_s <= STEP_S]
    assert set(before) == {known(RATE_RPS)}
    rising = [workload(record)["replicas"] for _, record in counted]
    assert all(after >= earlier for earlier, after in pairwise(rising))
    assert known(2 * RATE_RPS) > known(RATE_RPS)
    followed = next(at_s for at_s, record in counted if workload(record)["replicas"] == known(2 * RATE_RPS))
    in_time = [at_s for at_s, _ in counted if at_s >= STEP_S + WINDOW_S][1]
    assert followed <= in_time <= STEP_S + WINDOW_S + 4 * PERIOD_S
    assert rising[-1] == known(2 * RATE_RPS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, 4))
def test_a_fleet_whose_load_doubles_is_scaled_for_it(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random arrivals; one read of twenty fails, and new replicas appear in the window."""
    loop, rng = Loop(replicas=3), random.Random(seed)
    fetch = loop.fleet.fetch

    def fetch_or_fail(url: str) -> str:
        if url != DISCOVERY and rng.random() < 0.05:
            raise SourceError(f"{url}: nothing answers")
        return fetch(url)

    monkeypatch.setattr(loop.controller.source, "_fetch", fetch_or_fail)
    records = loop.run(lambda t: 6 if t < 240 else 12, 420, seed=seed)
    assert planned_at(12.0) == 2 * planned_at(6.0) == 4
    for record in records[(240 + WINDOW_S + 2 * PERIOD_S) // PERIOD_S :]:
        assert record["loads"]["talk"]["offered_rps"] == pytest.approx(12, rel=0.15)
        assert abs(record["planned"]["talk"]["for_rate"] - 4) <= 1
        assert workload(record)["replicas"] >= record["planned"]["talk"]["for_rate"]
