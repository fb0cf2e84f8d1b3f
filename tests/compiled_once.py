"""Compiled code for the whole suite: each part compiled by one worker, before any test of any worker runs.

Workers that meet the same code at the same time would all compile it; here the parts are handed out.
"""

from collections.abc import Callable, Sequence

import numpy as np

from optimizer.queueing.bulk.records import OldestLeft
from optimizer.queueing.bulk.steady import server_steady_state
from optimizer.queueing.bulk.windows import late_when_free
from optimizer.simulation.batches import BatchServer
from optimizer.simulation.law import (
    IterationCoefficients,
    ProcessorSharingCoefficients,
    StaticCoefficients,
)
from optimizer.simulation.lengths import LengthDistribution, Lengths
from optimizer.simulation.limits import Limits
from optimizer.simulation.live.turns import LiveTurns
from optimizer.simulation.replicas import (
    Effort,
    LineReplica,
    SimulatedReplica,
    StaticReplica,
    TokenReplica,
    run_replica,
)
from optimizer.simulation.tandem import Station, Tandem
from optimizer.simulation.workload import OpenLoad

Part = Callable[[], None]
BEFORE, AFTER = True, False
SERVER = BatchServer(12, 400.0, 20.0, 1.0, 14)
STATIONS = (Station(BEFORE, 10.0, 1.0, 1), Station(AFTER, 5.0, 0.0, 2))
LENGTHS = Lengths(LengthDistribution.UNIFORM, 16, 0.5, least=1)
LIMITS = Limits(4, 64)
REPLICAS: tuple[SimulatedReplica, ...] = (
    TokenReplica(IterationCoefficients(7.0, 0.02, 6e-5), LIMITS),
    TokenReplica(ProcessorSharingCoefficients(7.0, 0.08, 10.0, 0.0002), LIMITS),
    StaticReplica(StaticCoefficients(7.0, 0.08, 10.0, 0.0002, padded=False), LIMITS),
    LineReplica(Tandem(SERVER, STATIONS)),
    LineReplica(Tandem(SERVER, STATIONS, jobs=3)),
)


def bulk_queues() -> None:
    """The chain of a batch server, and its latencies."""
    server_steady_state(SERVER, 0.2).late_share(100.0)


def simulations() -> None:
    """The part of the latencies that takes no chain, before the other worker comes to it; the engine."""
    row = np.zeros(2 * SERVER.size)
    oldest = OldestLeft(np.zeros(1), np.zeros((2, 1)))
    late_when_free(SERVER, 0.2, 100.0, row, row[: SERVER.size].copy(), oldest)
    for replica in REPLICAS:
        run_replica(OpenLoad(5.0, LENGTHS, LENGTHS), replica, Effort(requests=500))


def live_replicas() -> None:
    """The steps of the engine by the clock."""
    rng = np.random.default_rng(1)
    for replica in (*(one.live(1, rng) for one in REPLICAS), LiveTurns([SERVER])):
        rows = [replica.add(0.0, 20, 5) for _ in range(3)]
        replica.cancel(rows[0] or 0, 0.0)
        list(replica.run_until(1e6))


PARTS: Sequence[Part] = (bulk_queues, simulations, live_replicas)


def parts_of(worker: str, workers: int) -> Sequence[Part]:
    """Return what one of some workers, gw0 …, compiles."""
    return PARTS[int(worker.removeprefix("gw")) :: workers]
