"""Document fields that all kinds of replicas have in profiles, servers, loads and targets.

Each kind adds further fields to profiles and servers; `optimizer.kinds.table` combines them.
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
    Percentile,
    PositiveCount,
    RequestsPerMinute,
    SliceCount,
    Tokens,
)
from optimizer.kinds.request_shapes import ShapedRequests
from optimizer.queueing.measures import TargetMeasure

DEFAULT_MAX_BATCH = 256
"""Default batch limit [requests]: the maximum of llm-inferno's optimizer-light."""


class ReplicaProfile(Document):
    """Fields that profiles of all kinds have: model, accelerator and batch limit."""

    name: Name
    """Name of the model."""
    accelerator: Name = Field(alias="acc")
    """Name of the accelerator."""
    acc_count: SliceCount = Field(1, alias="accCount")
    """Number of accelerators per replica."""
    max_batch_size: BatchSize = Field(0, alias="maxBatchSize")
    """Batch limit [requests] at `atTokens` output tokens per request; 0 means 256."""
    at_tokens: Count = Field(0, alias="atTokens")
    """Output length at which the batch limit was measured [tokens]; 0 if the limit is not scaled."""


class PlacedServer(Document):
    """Fields that servers of all kinds have: a model for a service class, with limits on its replicas."""

    name: Name
    """Unique name of the server."""
    service_class: Name = Field("Free", alias="class")
    """Name of the service class."""
    model: Name
    """Name of the model."""
    keep_accelerator: bool = Field(default=False, alias="keepAccelerator")
    """Whether the server must stay on its current accelerators, if it has any."""
    min_num_replicas: Count = Field(0, alias="minNumReplicas")
    """Minimum number of replicas, even if the server is idle."""
    max_num_replicas: PositiveCount | None = Field(None, alias="maxNumReplicas")
    """Maximum number of replicas; default: unlimited."""
    max_batch_size: BatchSize = Field(0, alias="maxBatchSize")
    """Batch limit [requests]; 0 selects the profile's, scaled to the output length."""
    max_queue_size: Count | None = Field(None, alias="maxQueueSize")
    """Queue capacity: maximum number of requests that wait for a full batch; 0 rejects instead of queueing;
    default: 10 times the batch limit.
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


class Load(ShapedRequests):
    """Load of a server: arrival rate, and request lengths or several request shapes."""

    arrival_rate_rpm: RequestsPerMinute = Field(0.0, alias="arrivalRate")
    """Arrival rate [requests/min]; values below 1e-12 are read as 0."""
    throughput_rpm: RequestsPerMinute = Field(0.0, alias="throughput")
    """Measured throughput [requests/min]; stored but not used."""
    in_tokens: Tokens = Field(0.0, alias="avgInTokens")
    """Mean input length [tokens]; must be stated if requests arrive, even if it is 0."""
    out_tokens: Tokens = Field(0.0, alias="avgOutTokens")
    """Mean output length [tokens]; at least 1 if requests arrive."""
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
    """A limit on the end-to-end latency: the time to the complete response."""

    percentile: Percentile | None = None
    """Percentile to which the limit applies; default: the mean."""
    limit_ms: Milliseconds = Field(alias="ms", gt=0)
    """Limit on the end-to-end latency [ms], more than 0."""

    @property
    def measure(self) -> TargetMeasure:
        """Measure that the target limits: mean or percentile of the end-to-end latency."""
        return TargetMeasure("e2e", self.percentile)
