"""Latencies under `gap`, at every share of the requests and not in the tail alone, held to a simulation."""

import numpy as np
import pytest

from optimizer.kinds.batch_servers.rows import BatchRow
from optimizer.kinds.simulated import open_load
from optimizer.simulation.replicas import Effort, LineReplica, run_replica
from optimizer.spec.schema import Load

RATE_RPS = 10 / 12
ROW = {
    "RPS": RATE_RPS,
    "batchParms": {"base": 2000},
    "maxBatchSize": 4,
    "trigger": "gap",
    "window": 1000,
    "maxQueueSize": 8,
    "queueCounts": "system",
}


def test_gap_late_shares_match_simulation() -> None:
    row = BatchRow.model_validate(ROW)
    found = row.queues().row_at(0, RATE_RPS)
    load = open_load(Load(arrival_rate_rpm=60 * RATE_RPS), RATE_RPS)
    (run,) = run_replica(load, LineReplica(row.line()), Effort(requests=400_000), 1)
    simulated = run.e2e_ms[~np.isnan(run.e2e_ms)]
    for limit_ms in map(float, (2500, 3050, 3300, 3450, 3550, 3800, 4200, 4450, 4600, 5000, 5400)):
        # 400,000 requests in batches of three: two standard errors are some 0.3 percentage points.
        assert found.late_share(limit_ms) == pytest.approx((simulated > limit_ms).mean(), abs=0.004), limit_ms
