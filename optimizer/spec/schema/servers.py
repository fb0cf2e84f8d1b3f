"""Documents of servers: their load and allocations."""

from pydantic import Field

from optimizer.documents import Cost, Count, Document, Milliseconds, Name, Quantity, is_none
from optimizer.kinds.fields import Load
from optimizer.kinds.table import ServerFields
from optimizer.spec.schema.caches import CacheFields
from optimizer.spec.schema.offline import OfflineFields
from optimizer.spec.schema.places import ServedPlaceFields
from optimizer.spec.schema.robustness import ReserveFields
from optimizer.spec.schema.rollouts import SurgeField
from optimizer.spec.schema.shared_cards import SharedCardField


class AllocationData(Document):
    """The allocation of a server, in the reference's format."""

    accelerator: str = ""
    """The accelerator; empty if there is none."""
    num_replicas: Count = Field(0, alias="numReplicas")
    """Replicas."""
    max_batch: Count = Field(0, alias="maxBatch")
    """Batch limit of a replica."""
    cost_cents_per_h: Cost = Field(0.0, alias="cost")
    """Cost [cents/h]; 0 with running replicas: recomputed from the accelerator's price."""
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


class Server(
    SharedCardField, CacheFields, SurgeField, OfflineFields, ServedPlaceFields, ReserveFields, ServerFields
):
    """A server to place: one model for one service class."""

    accelerators: tuple[Name, ...] | None = Field(None, strict=False, fail_fast=True)
    """The allowed accelerators; default: all."""
    shared_queue: Name | None = Field(None, alias="sharedQueue", exclude_if=is_none)
    """A queue and replicas that it shares with the servers that name the same, all of one model. Requests
    wait by the priority of their class. Absent: it has its own."""
    current: AllocationData = Field(AllocationData(), alias="currentAlloc")
    """The current allocation, with the load."""
    desired: AllocationData = Field(AllocationData(), alias="desiredAlloc")
    """The last recommendation; stored but not used."""
