"""Documents of allocations: the accelerator and replicas of a server, and its load."""

from collections.abc import Mapping
from operator import not_
from typing import ClassVar, Literal

from pydantic import Field

from optimizer.documents import Cost, Count, Document, Milliseconds, Quantity
from optimizer.kinds.fields import Load

PoolMode = Literal["own", "shared", "external"]
"""Where a pool runs: on the server's own cards, on shared cards, or at an external service."""


class CurrentPool(Document):
    """A part of an allocation: replicas on one accelerator or on shared cards, or an external service."""

    refused_keys: ClassVar[Mapping[str, str]] = {
        "node": "replicas are not pinned to nodes: the plan packs them into empty nodes; remove it"
    }

    accelerator: str = ""
    """Name of the accelerator, also of shared cards; empty for an external service."""
    num_replicas: Count = Field(alias="numReplicas")
    """Number of replicas; 1 for an external service."""
    max_batch: Count = Field(0, alias="maxBatch")
    """Batch limit of a replica [requests]."""
    cost_cents_per_h: Cost = Field(0.0, alias="cost")
    """Cost of the pool [cents/h]."""
    mode: PoolMode = "own"
    """Whether the pool runs on the server's own cards, on shared cards, or at an external service."""


class AllocationData(Document):
    """Allocation of a server, in the reference's format.

    Plans use `accelerator`, `numReplicas`, `cost`, `pools` and `load`; other fields are stored but not used.
    """

    accelerator: str = ""
    """Name of the accelerator; empty if there is none."""
    num_replicas: Count = Field(0, alias="numReplicas")
    """Number of replicas."""
    max_batch: Count = Field(0, alias="maxBatch")
    """Batch limit of a replica [requests]."""
    cost_cents_per_h: Cost = Field(0.0, alias="cost")
    """Cost [cents/h]; 0 with running replicas means that it is recomputed from the accelerator's price."""
    itl_ms: Milliseconds = Field(0.0, alias="itlAverage")
    """Mean inter-token latency [ms]."""
    ttft_ms: Milliseconds = Field(0.0, alias="ttftAverage")
    """Mean time to first token [ms]."""
    avg_concurrency: Quantity = Field(0.0, alias="avgConcurrency")
    """Measured number of requests in service; stored but not used."""
    pools: tuple[CurrentPool, ...] = Field((), exclude_if=not_, strict=False)
    """All pools, if there are several or if any uses shared cards or an external service. The other fields
    then state the largest pool on own cards, or nothing. Absent if the other fields state everything.
    """
    load: Load = Load()
    """Load of the server."""

    @property
    def is_running(self) -> bool:
        """Whether any replica is running or an external service is used."""
        return any(pool.num_replicas for pool in self.stated_pools)

    @property
    def stated_pools(self) -> tuple[CurrentPool, ...]:
        """All pools of the allocation, including one without replicas."""
        if self.pools or not self.accelerator:
            return self.pools
        values = {name: getattr(self, name) for name in CurrentPool.model_fields if name != "mode"}
        return (CurrentPool.model_construct(**values),)

    @property
    def replicas(self) -> dict[str, int]:
        """Number of running replicas on the server's own cards, by accelerator."""
        return {
            pool.accelerator: pool.num_replicas
            for pool in self.stated_pools
            if pool.mode == "own" and pool.num_replicas
        }

    @property
    def accelerators(self) -> tuple[str, ...]:
        """Accelerators on which the server has its own cards, even without replicas."""
        return tuple(pool.accelerator for pool in self.stated_pools if pool.mode == "own")
