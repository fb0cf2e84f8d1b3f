"""Candidates that rent an external service instead of running replicas.

They use no cards, and their accelerator index is the last plus 1. Only the mean latencies of such a service
are known, so it meets no target on a percentile or a share of requests.
"""

import numpy as np

from optimizer.candidates.arrays import SystemArrays
from optimizer.candidates.rows import unsized_rows
from optimizer.candidates.table import CandidateTable, Source
from optimizer.features.external.fields import External
from optimizer.kinds.fields import Load
from optimizer.queueing.targets import meets_target
from optimizer.schema import ModelTarget, Server
from optimizer.spec.system import System
from optimizer.units import MINUTES_PER_HOUR, SECONDS_PER_MINUTE

MILLION = 1e6


def rented_cost(external: External, load: Load, rate_rpm: float) -> float:
    """Return the cost of an external service at an arrival rate [cents/h] (eq. 149)."""
    tokens = load.in_tokens * external.in_per_million + load.out_tokens * external.out_per_million
    return rate_rpm * MINUTES_PER_HOUR * tokens / MILLION


def rented_per_million(external: External, load: Load) -> float:
    """Return the cost of a service per million input and output tokens [cents]; 0 without tokens."""
    tokens = load.in_tokens + load.out_tokens
    cost = load.in_tokens * external.in_per_million + load.out_tokens * external.out_per_million
    return cost / tokens if tokens else 0.0


def missed_target(server: Server, target: ModelTarget | None) -> str | None:
    """Describe the first target of a server that its external service misses; None if it meets all."""
    external = server.external
    assert external is not None
    if target is None:
        return "there is no target"
    steps = max(server.current.load.out_tokens - 1, 0)
    last = external.ttft_ms + steps * external.itl_ms
    means = {"ttft": external.ttft_ms, "itl": external.itl_ms, "e2e": last}
    for measure, limit in target.latency_targets():
        mean = means.get(measure.metric) if measure.percentile is None else None
        if mean is None:
            return f"{measure.label} is unknown: a service states means only"
        if not meets_target(mean, limit):
            return f"{measure.label} is {measure.text(mean)}, target {measure.text(limit)}"
    return None


def offered(system: System, arrays: SystemArrays, _: object) -> CandidateTable:
    """Return a candidate for each loaded server whose external service meets the server's targets."""
    load_rps = arrays.servers.load_rps
    rows = [
        (s, server.external)
        for s, server in enumerate(system.servers.values())
        if server.external is not None
        and load_rps[s] > 0
        and missed_target(server, system.target_of(server)) is None
    ]
    server = np.array([s for s, _ in rows], np.int64)
    none = np.zeros(len(rows), np.int64)
    # The candidate counts as the server's minimum number of replicas, so counts need no special case.
    count = np.maximum(arrays.servers.min_replicas[server], 1)
    loads = [item.current.load for item in system.servers.values()]
    cost = [rented_cost(external, loads[s], float(load_rps[s]) * SECONDS_PER_MINUTE) for s, external in rows]
    return unsized_rows(
        Source.rental,
        server,
        none + len(arrays.accelerator_names),
        none + len(arrays.type_names),
        num_replicas=count,
        cost_per_replica=np.array(cost) / count,
        max_rate_rps=load_rps[server] / count,
        load_rps=load_rps[server],
        ttft_ms=np.array([external.ttft_ms for _, external in rows]),
        itl_ms=np.array([external.itl_ms for _, external in rows]),
        preferred=~arrays.servers.preference[server],
    )
