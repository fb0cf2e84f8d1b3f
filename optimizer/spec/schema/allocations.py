"""Documents of allocations: the accelerator and replicas of a server, and its load."""

from pydantic import Field

from optimizer.documents import Cost, Count, Document, Milliseconds, Quantity
from optimizer.kinds.fields import Load


class AllocationData(Document):
    """Allocation of a server, in the reference's format."""

    accelerator: str = ""
    """Name of the accelerator; empty if there is none."""
    num_replicas: Count = Field(0, alias="numReplicas")
    """Number of replicas."""
    max_batch: Count = Field(0, alias="maxBatch")
    """Batch limit of a replica."""
    cost_cents_per_h: Cost = Field(0.0, alias="cost")
    """Cost [cents/h]; 0 with running replicas means that it is recomputed from the accelerator's price."""
    itl_ms: Milliseconds = Field(0.0, alias="itlAverage")
    """Mean inter-token latency [ms]."""
    ttft_ms: Milliseconds = Field(0.0, alias="ttftAverage")
    """Mean time to first token [ms]."""
    avg_concurrency: Quantity = Field(0.0, alias="avgConcurrency")
    """Measured requests in service; stored but not used."""
    load: Load = Load()
    """The load."""

    @property
    def is_running(self) -> bool:
        """Whether replicas are running."""
        return bool(self.accelerator) and self.num_replicas > 0
