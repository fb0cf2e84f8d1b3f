"""Document fields common to all kinds of replicas: profiles, servers, loads and targets.

Each kind adds its own fields to profiles and servers; `optimizer.kinds.table` combines them.
"""

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from optimizer.documents import (
    BatchSize,
    Coefficient,
    Count,
    Document,
    Milliseconds,
    Name,
    PositiveCount,
    RequestsPerMinute,
    SliceCount,
    Tokens,
)
from optimizer.queueing.measures import TargetMeasure

DEFAULT_MAX_BATCH = 256
"""Default batch limit, the maximum of llm-inferno's optimizer-light."""


class ReplicaProfile(Document):
    """The model and accelerator of a profile, and its batch limit."""

    name: Name
    """Name of the model."""
    accelerator: Name = Field(alias="acc")
    """Name of the accelerator."""
    acc_count: SliceCount = Field(1, alias="accCount")
    """Number of accelerators per replica."""
    max_batch_size: BatchSize = Field(0, alias="maxBatchSize")
    """Batch limit at `atTokens` output tokens per request; 0 means 256."""
    at_tokens: Count = Field(0, alias="atTokens")
    """Request length at which the batch limit was measured [output tokens]; 0: the limit is not scaled."""


class PlacedServer(Document):
    """A server to place, with the limits of its replicas."""

    name: Name
    """Unique name."""
    service_class: Name = Field("Free", alias="class")
    """Name of the service class."""
    model: Name
    """Name of the model."""
    keep_accelerator: bool = Field(default=False, alias="keepAccelerator")
    """Whether the server must stay on its current accelerator, if it has one."""
    min_num_replicas: Count = Field(0, alias="minNumReplicas")
    """Minimum number of replicas, also when idle."""
    max_num_replicas: PositiveCount | None = Field(None, alias="maxNumReplicas")
    """Maximum number of replicas; default: unlimited."""
    max_batch_size: BatchSize = Field(0, alias="maxBatchSize")
    """Batch limit; 0: the profile's, scaled to the request length."""
    max_queue_size: Count | None = Field(None, alias="maxQueueSize")
    """Queue capacity: maximum requests waiting behind a full batch; 0: none wait; default: 10 times the batch
    limit.
    """

    @model_validator(mode="after")
    def _replica_range(self) -> "PlacedServer":
        if self.max_num_replicas is not None and self.max_num_replicas < self.min_num_replicas:
            raise PydanticCustomError(
                "replica_range",
                "maxNumReplicas {maximum} is below minNumReplicas {minimum}; raise it, or lower the other",
                {"maximum": self.max_num_replicas, "minimum": self.min_num_replicas},
            )
        return self


class Load(Document):
    """Statistics of a server's traffic."""

    arrival_rate_rpm: RequestsPerMinute = Field(0.0, alias="arrivalRate")
    """Arrival rate [requests/min]; values below 1e-12 are read as 0."""
    throughput_rpm: RequestsPerMinute = Field(0.0, alias="throughput")
    """Measured throughput [requests/min]; stored but not used."""
    in_tokens: Tokens = Field(0.0, alias="avgInTokens")
    """Mean input length [tokens]; required if requests arrive, even if it is 0."""
    out_tokens: Tokens = Field(0.0, alias="avgOutTokens")
    """Mean output length [tokens]: at least 1 if requests arrive."""
    arrival_cv: Coefficient = Field(1.0, alias="arrivalCV")
    """Coefficient of variation of the interarrival times; values other than 1 need `queueModel: continuous`.
    """
    in_tokens_cv: Coefficient = Field(1.0, alias="inTokensCV")
    """Coefficient of variation of the input length; values other than 1 need `queueModel: continuous`."""
    out_tokens_cv: Coefficient = Field(1.0, alias="outTokensCV")
    """Coefficient of variation of the output length; values other than 1 need `queueModel: continuous`, or
    static batches.
    """


class LatencyTarget(Document):
    """A limit on the time to the complete answer."""

    percentile: float | None = Field(None, gt=0, lt=100)
    """Percentile to which the limit applies; default: the mean."""
    limit_ms: Milliseconds = Field(alias="ms", gt=0)
    """Limit on the latency, more than 0 [ms]."""

    @property
    def measure(self) -> TargetMeasure:
        """Return the limited measure."""
        return TargetMeasure("e2e", self.percentile)
