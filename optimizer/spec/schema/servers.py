"""Documents of servers: what is to be placed, its traffic, and what it runs on."""

from pydantic import Field

from optimizer.documents import Cost, Count, Document, Milliseconds, Name, Quantity
from optimizer.kinds.fields import Load
from optimizer.kinds.table import ServerFields
from optimizer.spec.schema.robustness import ReserveFields


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


class Server(ReserveFields, ServerFields):
    """One model for one service class, to be placed."""

    accelerators: tuple[Name, ...] | None = Field(None, strict=False, fail_fast=True)
    """The accelerators it may use; none: all."""
    current: AllocationData = Field(AllocationData(), alias="currentAlloc")
    """What it runs on now, and its load."""
    desired: AllocationData = Field(AllocationData(), alias="desiredAlloc")
    """What was last recommended; kept, not used."""
