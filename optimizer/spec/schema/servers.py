"""Documents of servers: what is to be placed, its traffic, and what it runs on."""

from typing import Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from optimizer.documents import (
    BatchSize,
    Coefficient,
    Cost,
    Count,
    Document,
    Milliseconds,
    Name,
    PositiveCount,
    Quantity,
    RequestsPerMinute,
    Tokens,
)
from optimizer.simulation.batches import QueueCounts, TriggerName
from optimizer.spec.stages import Stage


class Load(Document):
    """The statistics of a server's traffic."""

    arrival_rate_rpm: RequestsPerMinute = Field(0.0, alias="arrivalRate")
    """Arrival rate [requests/min]; below 1e-12 it is read as 0."""
    throughput_rpm: RequestsPerMinute = Field(0.0, alias="throughput")
    """Measured throughput [requests/min]; kept, not used."""
    in_tokens: Tokens = Field(0.0, alias="avgInTokens")
    """Mean input length [tokens]."""
    out_tokens: Tokens = Field(0.0, alias="avgOutTokens")
    """Mean output length [tokens]."""
    arrival_cv: Coefficient = Field(1.0, alias="arrivalCV")
    """Coefficient of variation of the times between arrivals."""
    in_tokens_cv: Coefficient = Field(1.0, alias="inTokensCV")
    """Coefficient of variation of the input length."""
    out_tokens_cv: Coefficient = Field(1.0, alias="outTokensCV")
    """Coefficient of variation of the output length."""


class AllocationData(Document):
    """What a server runs on, in the reference's format."""

    accelerator: str = ""
    """The accelerator's name; empty for none."""
    num_replicas: Count = Field(0, alias="numReplicas")
    """Replicas."""
    max_batch: Count = Field(0, alias="maxBatch")
    """Batch limit of a replica."""
    cost_cents_per_h: Cost = Field(0.0, alias="cost")
    """Cost [cents/h]; 0 with replicas running: recomputed from the specs."""
    itl_ms: Milliseconds = Field(0.0, alias="itlAverage")
    """Mean inter-token latency [ms]."""
    ttft_ms: Milliseconds = Field(0.0, alias="ttftAverage")
    """Mean time to first token [ms]."""
    avg_concurrency: Quantity = Field(0.0, alias="avgConcurrency")
    """Measured requests in service; kept, not used."""
    load: Load = Load()
    """The traffic."""

    @property
    def is_running(self) -> bool:
        """Whether there are replicas on an accelerator."""
        return bool(self.accelerator) and self.num_replicas > 0


class Server(Document):
    """One model for one service class, to be placed."""

    name: Name
    """Unique name."""
    service_class: Name = Field("Free", alias="class")
    """The service class."""
    model: Name
    """The model."""
    keep_accelerator: bool = Field(default=False, alias="keepAccelerator")
    """Whether the current accelerator, where there is one, must stay."""
    min_num_replicas: Count = Field(0, alias="minNumReplicas")
    """Fewest replicas, also when idle."""
    max_num_replicas: PositiveCount | None = Field(None, alias="maxNumReplicas")
    """Most replicas."""
    max_batch_size: BatchSize = Field(0, alias="maxBatchSize")
    """Batch limit; 0: the profile's, scaled to the request length."""
    max_queue_size: Count | None = Field(None, alias="maxQueueSize")
    """Queue capacity: requests that may wait behind a full batch; none: 10 times the batch; 0: none wait."""
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
    accelerators: tuple[Name, ...] | None = Field(None, strict=False, fail_fast=True)
    """The accelerators it may use; none: all."""
    current: AllocationData = Field(AllocationData(), alias="currentAlloc")
    """What it runs on now, and its load."""
    desired: AllocationData = Field(AllocationData(), alias="desiredAlloc")
    """What was last recommended; kept, not used."""

    @model_validator(mode="after")
    def _replica_range(self) -> "Server":
        if self.max_num_replicas is not None and self.max_num_replicas < self.min_num_replicas:
            raise PydanticCustomError(
                "replica_range",
                "maxNumReplicas {most} is below minNumReplicas {least}; raise the one or lower the other",
                {"most": self.max_num_replicas, "least": self.min_num_replicas},
            )
        return self
