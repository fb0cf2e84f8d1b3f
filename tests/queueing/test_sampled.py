"""Simulated batch servers: what they draw is drawn once, also for several at a time."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from optimizer.parallel import thread_count
from optimizer.queueing.bulk import simulated as module
from optimizer.queueing.bulk.simulated import simulate_steady_state
from optimizer.simulation.batches import BatchServer
from optimizer.simulation.tandem import Station, Tandem

CACHES = (module._unit_arrivals, module._stage_times)
REQUESTS = 20_000


def line(stage_ms: float, size: int = 4) -> Tandem:
    stage = Station(before=True, mean_ms=stage_ms, cv=1.0, workers=4)
    return Tandem(BatchServer(size, 0.0, 10.0, 1.0), (stage,))


@pytest.mark.skipif(thread_count() < 2, reason="one core works on one server at a time")
def test_threads_share_drawn_times() -> None:
    turn = threading.Barrier(2)
    for cache in CACHES:
        cache.cache_clear()

    def sized(one: int) -> None:
        for rate in (0.1, 0.15, 0.2):
            turn.wait(30)
            simulate_steady_state(line(5.0 + one), rate, 0.5 + one, REQUESTS)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(sized, range(2)))
    assert [cache.cache_info().misses for cache in CACHES] == [2] * 2
