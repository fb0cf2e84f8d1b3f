"""Document fields that only batch servers have."""

from operator import not_
from typing import Literal

from pydantic import Field

from optimizer.documents import Milliseconds, OutputDocument, PositiveCount, is_none
from optimizer.kinds.batch_servers.stages import Stage
from optimizer.kinds.fields import PlacedServer, ReplicaProfile
from optimizer.simulation.batches import QueueCounts, TriggerName
from optimizer.timing.batch import BatchFields


class BatchProfile(BatchFields, ReplicaProfile):
    """Profile of a batch server: the common fields, and the service time of a batch."""


class BatchServerFields(PlacedServer):
    """Document fields of a server with the batching settings of batch servers."""

    batch_trigger: TriggerName = Field(
        "oldest", alias="batchTrigger", exclude_if=lambda trigger: trigger == "oldest"
    )
    """Time at which a batch starts although it is not full, in a model with `batchParms`. It starts one
    window after the arrival of its oldest request (`oldest`), after the server is free and a request waits
    (`collect`), after the last arrival (`gap`), or after the server becomes free, repeatedly (`interval`), if
    a server is free. With `clock`, one batch starts at each multiple of the window, full or not.
    """
    batch_timeout_ms: Milliseconds = Field(0.0, alias="batchTimeout", exclude_if=lambda window: window == 0)
    """Batching window [ms]: time for which requests of a batch are collected."""
    batch_window: Literal["given", "optimal"] = Field(
        "given", alias="batchWindow", exclude_if=lambda choice: choice == "given"
    )
    """`given`: the window is `batchTimeout`; `optimal`: it is the best of 100 %, 50 %, 25 % and 0 % of
    `batchTimeout`, which excludes `clock`.
    """
    queue_counts: QueueCounts = Field(
        "waiting", alias="queueCounts", exclude_if=lambda counted: counted == "waiting"
    )
    """Whether `maxQueueSize` counts waiting requests only, or also those in service; with `batchParms`."""
    stages: tuple[Stage, ...] = Field((), strict=False, exclude_if=not_)
    """Processing stages before and after the batch, in each replica of a model with `batchParms`."""
    jobs: PositiveCount | None = Field(None, exclude_if=is_none)
    """Maximum requests in the stages and batch of a replica; further ones wait in front of it, as for a
    worker that takes jobs from a queue. Cannot be combined with `maxQueueSize`; default: unlimited. With
    `batchParms`.
    """


class PoolFields(OutputDocument):
    """Fields of a pool that only batch servers have."""

    busy: float | None = Field(None, exclude_if=is_none)
    """Fraction of time in which a batch server computes at its load; absent for other kinds."""
    mean_batch: float | None = Field(None, exclude_if=is_none)
    """Mean number of requests per batch; absent for other kinds."""
    batch_window_ms: float | None = Field(None, exclude_if=is_none)
    """Batching window, as given or chosen [ms]; absent for other kinds."""
    binding: str | None = Field(None, exclude_if=is_none)
    """Bottleneck of a replica with `stages` or `jobs`: `server`, `stage:` and a name, or `jobs` if a higher
    limit would increase the throughput. Otherwise absent.
    """


class RowFields(OutputDocument):
    """Settings of a batch server that tables show with its pools."""

    batch_trigger: TriggerName | None = Field(None, exclude_if=is_none)
    """Trigger that starts a batch that is not full; absent for other kinds."""


class SimulatedFields(OutputDocument):
    """Fields of a simulated pool that only batch servers have."""

    answers_together: bool = Field(default=False, exclude_if=not_)
    """True for a batch server, whose requests have no tokens and a single latency; absent for other kinds."""
