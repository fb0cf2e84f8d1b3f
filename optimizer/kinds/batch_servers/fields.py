"""Document fields that only batch servers have."""

from operator import not_
from typing import Literal

from pydantic import Field

from optimizer.documents import Document, Milliseconds, PositiveCount, is_none
from optimizer.kinds.batch_servers.stages import Stage
from optimizer.kinds.fields import PlacedServer, ReplicaProfile
from optimizer.simulation.batches import QueueCounts, TriggerName
from optimizer.timing.batch import BatchFields


class BatchProfile(BatchFields, ReplicaProfile):
    """Fields of a profile that batch servers use."""


class BatchServerFields(PlacedServer):
    """Batching settings of a server."""

    batch_trigger: TriggerName = Field(
        "oldest", alias="batchTrigger", exclude_if=lambda trigger: trigger == "oldest"
    )
    """Start of a batch that is not full, in a model with `batchParms`, if a server is free: one window after
    the arrival of its oldest request (`oldest`), after the server is free and requests wait (`collect`),
    after the last arrival (`gap`), or after the server becomes free, repeatedly (`interval`). With `clock`,
    one batch starts at each multiple of the window, full or not.
    """
    batch_timeout_ms: Milliseconds = Field(0.0, alias="batchTimeout", exclude_if=lambda window: window == 0)
    """Batching window [ms]: how long a batch is collected."""
    batch_window: Literal["given", "optimal"] = Field(
        "given", alias="batchWindow", exclude_if=lambda choice: choice == "given"
    )
    """`given`: the window is `batchTimeout`; `optimal`: the best of 100 %, 50 %, 25 % and 0 % of it."""
    queue_counts: QueueCounts = Field(
        "waiting", alias="queueCounts", exclude_if=lambda counted: counted == "waiting"
    )
    """Whether `maxQueueSize` counts waiting requests only, or also those in service; with `batchParms`."""
    stages: tuple[Stage, ...] = Field((), strict=False, exclude_if=not_)
    """Stages before and after the batch, in each replica of a model with `batchParms`."""
    jobs: PositiveCount | None = Field(None, exclude_if=is_none)
    """Maximum requests in a replica, in its stages and batch; others wait in front of it, as for a worker
    that takes jobs from a queue. Excludes `maxQueueSize`; default: unlimited. With `batchParms`.
    """


class PoolFields(Document):
    """Fields of a pool that only batch servers have."""

    busy: float | None = Field(None, exclude_if=is_none)
    """Fraction of time in which a batch server is busy at the load; absent for other kinds."""
    mean_batch: float | None = Field(None, alias="avgBatch", exclude_if=is_none)
    """Mean requests per batch; absent for other kinds."""
    batch_window_ms: float | None = Field(None, alias="batchWindow", exclude_if=is_none)
    """Batching window, as given or chosen [ms]; absent for other kinds."""
    binding: str | None = Field(None, exclude_if=is_none)
    """Bottleneck of a replica with stages or jobs: `server`, `stage:` and a name, or `jobs` if more of them
    would serve more; otherwise absent.
    """


class RowFields(Document):
    """Settings of a batch server that are shown with its pools."""

    batch_trigger: TriggerName | None = Field(None, alias="batchTrigger", exclude_if=is_none)
    """Trigger of a partial batch."""


class SimulatedFields(Document):
    """Fields of a simulated pool that only batch servers have."""

    answers_together: bool = Field(default=False, alias="answersTogether", exclude_if=not_)
    """True for a batch server, which has no tokens and a single latency; absent for other kinds."""
