"""Simulation of a card that several dynamic-batching servers share in time."""

from collections.abc import Sequence

import numpy as np

from optimizer.errors import AnalysisError
from optimizer.simulation.batches import BatchServer
from optimizer.simulation.engine import SimulatedRun
from optimizer.simulation.replicas import MAX_REQUESTS, Effort, batches_run
from optimizer.simulation.requests import Requests
from optimizer.simulation.summary import MIN_REQUESTS
from optimizer.simulation.workload import OpenLoad


def run_shared_card(
    servers: Sequence[BatchServer], loads: Sequence[OpenLoad], effort: Effort
) -> list[list[SimulatedRun]]:
    """Simulate the servers of a shared card, each under its own load, for the same time.

    Args:
        servers: servers with trigger `oldest` and unlimited queues.
        loads: load of each server.
        effort: amount of simulation; its requests are those of all servers together. The runs are longer if
            the server with the lowest rate would otherwise have too few requests for percentiles.

    Returns:
        The runs of each server.

    Raises:
        AnalysisError: the rates differ so much that a run would need too many requests.
    """
    rates = np.array([load.rate_rps for load in loads])
    lasts_s = max(effort.requests / rates.sum(), MIN_REQUESTS / rates.min())
    counts = np.ceil(rates * lasts_s).astype(int)
    if counts.sum() > MAX_REQUESTS:
        raise AnalysisError(
            f"the server with the lowest rate needs {MIN_REQUESTS} requests, in a run of "
            f"{int(counts.sum()):,} requests, more than {MAX_REQUESTS:,}; omit that server"
        )
    runs: list[list[SimulatedRun]] = [[] for _ in servers]
    for seed in np.random.SeedSequence(effort.seed).spawn(effort.runs):
        own = seed.spawn(len(servers))
        drawn = [load.draw(count, one) for load, count, one in zip(loads, counts, own, strict=True)]
        for mine, run in zip(runs, _run(servers, drawn), strict=True):
            mine.append(run)
    return runs


def _run(servers: Sequence[BatchServer], drawn: Sequence[Requests]) -> list[SimulatedRun]:
    """Run the given requests of each server through the empty card."""
    from optimizer.simulation.machine.time_sharing import empty_card, run_turns

    arrivals = [np.array(requests.arrival_ms) for requests in drawn]
    ends = np.cumsum([len(mine) for mine in arrivals])
    heads = ends - [len(mine) for mine in arrivals]
    card = empty_card(servers, heads, np.concatenate(arrivals))
    card.ends[:] = ends
    run_turns(card, np.inf)
    result = zip(drawn, heads.tolist(), ends.tolist(), card.totals.tolist(), strict=True)
    last_ms = card.last_ms
    return [
        batches_run(requests, last_ms[head:end], last_ms[head:end], busy_ms, batch_ms, int(batches))
        for requests, head, end, (busy_ms, batch_ms, batches) in result
    ]
