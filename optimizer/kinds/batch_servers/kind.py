"""Defines the kind of replicas that serve requests in batches, without tokens."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from optimizer.documents import Document
from optimizer.kinds.batch_servers.fields import BatchProfile, BatchServerFields
from optimizer.kinds.batch_servers.rows import BatchRow
from optimizer.kinds.batch_servers.stages import names_problem, slowest_part, stations_of
from optimizer.kinds.fields import DEFAULT_MAX_BATCH, Load
from optimizer.kinds.kind import EngineContainer, EngineSettings, Fault, KindOf, OwnRows, Refused
from optimizer.kinds.rows import Row
from optimizer.kinds.shown import EVERYWHERE, LOSS, WAIT, Shown, TableName, Words
from optimizer.queueing.bulk.limits import line_problem
from optimizer.queueing.bulk.model import BatchingPolicy, BulkQueues
from optimizer.queueing.performance import OwnArrays, QueueModel
from optimizer.simulation.batches import OLDEST, TRIGGERS, BatchServer
from optimizer.simulation.limits import UNLIMITED
from optimizer.simulation.replicas import LineReplica
from optimizer.simulation.tandem import ALL_JOBS, Tandem
from optimizer.timing import BatchParms
from optimizer.timing.batch import BatchLaw
from optimizer.timing.law import Law

SHARES = (0.0, 0.25, 0.5, 1.0)
"""Fractions of the stated batching window that are tried if the plan chooses the window."""
_WINDOW = Shown("window", "batch_window_ms", "window", ("plan",), "ms", ",g", rank=3)
_BUSY = "Busy is the fraction of time in which a batch server processes batches, full or partial."


class BatchServers(KindOf[BatchProfile, BatchServerFields]):
    """Kind of servers that serve requests in batches (bulk service)."""

    name: ClassVar[str] = "batch servers"
    gives: ClassVar[str] = "batchParms"
    queue_models: ClassVar[Mapping[type[Law], tuple[type[QueueModel], ...]]] = {BatchLaw: (BulkQueues,)}
    server_fields: ClassVar[type[Document] | None] = BatchServerFields
    does: ClassVar[str] = "collect requests"
    refused_in_profiles: ClassVar[Refused] = Refused(
        ("at_tokens", "kv_capacity_tokens"),
        "requests of a batch server (batchParms) have no tokens; remove it",
    )
    refused_targets: ClassVar[Refused] = Refused(
        ("itl_ms", "ttft_ms", "user_tps", "tps", "goodput_share"),
        "a batch server (batchParms) has targets for its latency only; set latency instead",
    )
    row: ClassVar[type[Row] | None] = BatchRow
    compiles_queues: ClassVar[bool] = True
    mark: ClassVar[str | None] = "batch_window_ms"
    simulated_mark: ClassVar[str | None] = "answers_together"
    metrics: ClassVar[tuple[Shown, ...]] = (
        Shown("trigger", "batch_trigger", "trigger", ("plan",), rank=6, is_text=True),
        _WINDOW,
        Shown("mean batch", "mean_batch", "mean batch", ("plan",), "", ",.1f", rank=7),
        WAIT,
        Shown(  # clients expect the latency in this field; its mean precedes percentiles, as the TTFT
            "e2e", "ttft_ms", "latency", EVERYWHERE, "ms", ",.0f", rank=2, rank_beside=1,
            percentile_ranks=(1, 2), alias="latencyAverage",
        ),
        LOSS._replace(heading="rejected"),
        Shown("busy", "busy", "busy", ("plan", "use"), "", ".0%", rank=8, note=_BUSY),
    )  # fmt: skip
    orders: ClassVar[Mapping[TableName, tuple[str, ...]]] = MappingProxyType(
        {"plan": ("e2e", "window", "trigger", "mean batch", "busy"), "comparison": ("e2e",)}
    )
    of_server: ClassVar[tuple[str, ...]] = ("batch_trigger",)
    words: ClassVar[Words] = Words(
        utilisation="the arrival rate over the throughput with full batches",
        replica="a batch server, which has no tokens",
    )

    def check(
        self, server: BatchServerFields, profiles: Sequence[BatchProfile], load: Load
    ) -> Iterator[Fault]:
        """Yield an error for each window, trigger, stage or limit that contradicts other settings."""
        names = names_problem(server.stages)
        if names is not None:
            yield names
        if server.batch_trigger == "clock" and server.batch_window == "optimal":
            yield "batchWindow", "the time between the ticks of a clock is not chosen by plans; remove it"
        for profile in profiles:
            line = server_line(server, profile, server.batch_timeout_ms)
            problem = line_problem(line, load.arrival_cv, "batchTimeout", "currentAlloc.load.arrivalCV")
            if problem is not None:
                key, why = problem
                yield key, f"on {profile.accelerator!r}: {why}"

    def own(self, servers: Sequence[BatchServerFields]) -> OwnRows:
        """Return the batching settings of servers, one row for each window that the plan can choose."""
        shares = [SHARES if server.batch_window == "optimal" else (1.0,) for server in servers]
        lines = [
            server_line(server, None, share * server.batch_timeout_ms)
            for server, mine in zip(servers, shares, strict=True)
            for share in mine
        ]
        row = np.repeat(np.arange(len(servers)), [len(mine) for mine in shares])
        return OwnRows(BatchingPolicy.of_lines(lines), row)

    def replica(
        self, server: BatchServerFields, profile: BatchProfile, max_batch: int, pool: Document | None = None
    ) -> LineReplica:
        """Return the server with its stages for the simulator; the window is the pool's or else its own."""
        chosen_ms: float | None = getattr(pool, "batch_window_ms", None)
        window_ms = server.batch_timeout_ms if chosen_ms is None else chosen_ms
        return LineReplica(server_line(server, profile, window_ms, max_batch))

    def takes_turns(
        self, server: BatchServerFields, profile: BatchProfile, max_batch: int
    ) -> BatchServer | None:
        """Return the server as one that shares a card in time; None if its settings do not allow that."""
        line = server_line(server, profile, server.batch_timeout_ms, max_batch)
        plain = line.server._replace(trigger=OLDEST, queue_limit=UNLIMITED, counts_system=False)
        fits = line == Tandem(plain) and server.batch_window == "given"
        return line.server if fits else None

    def engine_settings(self, pool: Document) -> EngineSettings:
        """Return the batch limit and window as annotations; each server has a separate configuration."""
        window_ms = f"{getattr(pool, 'batch_window_ms', None) or 0.0:.12g}"
        notes = super().engine_settings(pool).annotations
        return EngineSettings(annotations={**notes, "batch-window-ms": window_ms})

    def container(self, profile: BatchProfile, cards: int, source: str) -> EngineContainer:
        """Return a container with the user's image and the health check of llm-inferno's batch servers."""
        return super().container(profile, cards, source)._replace(health_path="/health_check")

    def pool_fields(
        self, server: BatchServerFields, profile: BatchProfile, max_batch: int, own: OwnArrays | None
    ) -> Mapping[str, Any]:
        """Return the pool's window, and its bottleneck if the server has stages or jobs."""
        assert isinstance(own, BatchingPolicy)
        line = server_line(server, profile, server.batch_timeout_ms, max_batch)
        return {
            "batch_window_ms": float(own.window_ms[0]),
            "binding": slowest_part(line, server.stages),
        }


def server_line(
    server: BatchServerFields, profile: BatchProfile | None, window_ms: float, max_batch: int | None = None
) -> Tandem:
    """Convert a batch server with its stages to the form of the queue model and the simulator.

    Args:
        profile: profile of its model on an accelerator; None if batches take no time.
        window_ms: the batching window [ms].
        max_batch: the batch limit; None selects that of the server or profile.
    """
    parms = (profile and profile.batch) or BatchParms()
    size = max_batch or server.max_batch_size or (profile and profile.max_batch_size) or DEFAULT_MAX_BATCH
    alone = BatchServer(
        size,
        window_ms,
        parms.base_ms,
        parms.slope_ms,
        UNLIMITED if server.max_queue_size is None else server.max_queue_size,
        server.queue_counts == "system",
        TRIGGERS.index(server.batch_trigger),
    )
    return Tandem(alone, stations_of(server.stages), ALL_JOBS if server.jobs is None else server.jobs)
