"""The fields of documents that only batch servers have."""

from typing import Literal

from pydantic import Field

from optimizer.documents import Document, Milliseconds, PositiveCount, is_none
from optimizer.kinds.batch_servers.stages import Stage
from optimizer.kinds.fields import PlacedServer, ReplicaProfile
from optimizer.simulation.batches import QueueCounts, TriggerName
from optimizer.timing.batch import BatchFields


class BatchProfile(BatchFields, ReplicaProfile):
    """What batch servers see of a profile."""


class ServerFields(PlacedServer):
    """How a server collects its requests."""

    batch_trigger: TriggerName = Field(
        "oldest", alias="batchTrigger", exclude_if=lambda trigger: trigger == "oldest"
    )
    """What starts a batch that is not full, of a model with `batchParms`."""
    batch_timeout_ms: Milliseconds = Field(0.0, alias="batchTimeout", exclude_if=lambda window: window == 0)
    """How long a batch is collected: the window [ms]."""
    batch_window: Literal["given", "optimal"] = Field(
        "given", alias="batchWindow", exclude_if=lambda choice: choice == "given"
    )
    """Whether the window is `batchTimeout`, or the best of it, a half, a quarter and none of it."""
    queue_counts: QueueCounts = Field(
        "waiting", alias="queueCounts", exclude_if=lambda counted: counted == "waiting"
    )
    """Whether `maxQueueSize` counts those who wait, or those in service as well; with `batchParms`."""
    stages: tuple[Stage, ...] = Field((), strict=False, exclude_if=lambda stages: not stages)
    """What requests pass before their batch, and after it, in each replica of a model with `batchParms`."""
    jobs: PositiveCount | None = Field(None, exclude_if=lambda jobs: jobs is None)
    """Requests that are in a replica at once, in its stages and its batch; the others wait before it, as in
    front of a worker that takes jobs from a queue; none: any number. With `batchParms`."""


class PoolFields(Document):
    """What only a pool of batch servers has."""

    busy: float | None = Field(None, exclude_if=is_none)
    """Share of the time in which a batch server is busy, at the load; absent for others, as the next two."""
    mean_batch: float | None = Field(None, alias="avgBatch", exclude_if=is_none)
    """Mean number of requests that it answers together."""
    batch_window_ms: float | None = Field(None, alias="batchWindow", exclude_if=is_none)
    """How long it collects a batch: the window, as given or chosen [ms]."""
    binding: str | None = Field(None, exclude_if=is_none)
    """What can serve the least where it has stages: `server`, `stage:` and a name, or `jobs`; else absent."""


class RowFields(Document):
    """What stands beside a pool of batch servers of what its server asks for."""

    batch_trigger: TriggerName | None = Field(None, alias="batchTrigger", exclude_if=is_none)
    """What starts a batch that is not full."""


class SimulatedFields(Document):
    """What only a simulated pool of batch servers has."""

    answers_together: bool = Field(
        default=False, alias="answersTogether", exclude_if=lambda together: not together
    )
    """Whether it is of a batch server: there are no tokens, and the answer is all at once; else absent."""
