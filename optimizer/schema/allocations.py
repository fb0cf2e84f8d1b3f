"""Documents of allocations: the accelerator and replicas of a server, and its load."""

import math
import re
from collections.abc import Iterable, Iterator
from operator import not_
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from optimizer.arrays import grouped
from optimizer.documents import Cost, Count, Document, Milliseconds, Quantity, is_none
from optimizer.features.disaggregation.fields import PoolRoleField, Role
from optimizer.features.length_pools.fields import PoolShapesField
from optimizer.kinds.fields import Load
from optimizer.schema.pools import Pool

PoolMode = Literal["own", "shared", "external"]
"""Where a pool runs: on the server's own cards, on shared cards, or at an external service."""
MACHINE_PATTERN = r"^.+/[1-9][0-9]{0,8}$"


def _machine(text: str) -> str:
    if not re.match(MACHINE_PATTERN, text):
        problem = "must be the name of a node type and the number of the node, such as p5/3, not {given}"
        raise PydanticCustomError("machine", problem, {"given": repr(text)})
    return text


Machine = Annotated[
    str, AfterValidator(_machine), WithJsonSchema({"type": "string", "pattern": MACHINE_PATTERN})
]
"""A node by the name of its type and a number: ``p5/3``."""


NAMES_OF_PLANNED = {"costCentsPerH": "cost", "itlMs": "itlAverage", "ttftMs": "ttftAverage"}
"""Keys of planned pools whose values current allocations state by the reference's names."""
_UNUSED_OF_PLANNED = frozenset(field.alias for field in Pool.model_fields.values())


class _Pasted(Document):
    """An allocation that can be a pool of a plan, pasted with all its keys."""

    @model_validator(mode="before")
    @classmethod
    def _read_planned_pool(cls, data: Any) -> Any:
        """Rename the keys of a planned pool, and drop its predictions, which the next plan computes anew."""
        if not isinstance(data, dict) or "costCentsPerH" not in data:
            return data
        own = {field.alias or name for name, field in cls.model_fields.items()}
        unused = _UNUSED_OF_PLANNED - own
        if data.get("role") not in get_args(Role):
            unused = unused | {"role"}  # that of replicas without load of their server
        return {
            NAMES_OF_PLANNED.get(key, key): value
            for key, value in data.items()
            if NAMES_OF_PLANNED.get(key) in own or key not in unused
        }


class CurrentPool(PoolRoleField, PoolShapesField, _Pasted):
    """A part of an allocation: replicas on one accelerator or on shared cards, or an external service."""

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
    node: Machine | None = Field(None, exclude_if=is_none)
    """Node on which the replicas run: the name of a node type and a number, such as `p5/3`. Each node has a
    pool of its own. Absent if it is unknown, or if a replica takes several nodes.
    """

    @model_validator(mode="after")
    def _has_cards_in_node(self) -> Self:
        if self.node is not None and self.mode != "own":
            text = "node: only pools with mode own are placed in nodes; remove it"
            raise PydanticCustomError("node_of_other", text)
        return self


class AllocationData(_Pasted):
    """Allocation of a server, in the reference's format, or a pool of a plan with the load of the server.

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
    """All pools, if there are several, or if any states its node, uses shared cards or an external service.
    The other fields then state the largest pool on own cards, or nothing. Absent if the other fields state
    everything.
    """
    load: Load = Load()
    """Load of the server."""

    @property
    def is_running(self) -> bool:
        """Whether any replica is running or an external service is used."""
        return any(pool.num_replicas for pool in self.stated_pools)

    @property
    def stated_pools(self) -> tuple[CurrentPool, ...]:
        """All pools of the allocation, including one without replicas; those of several nodes as one."""
        if any(pool.node for pool in self.pools):
            return tuple(_joined(self.pools))
        if self.pools or not self.accelerator:
            return self.pools
        values = {name: getattr(self, name) for name in _OF_ALLOCATION}
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


_OF_ALLOCATION = ("accelerator", "num_replicas", "max_batch", "cost_cents_per_h")
"""Fields of a pool that an allocation states, too."""


def _joined(pools: Iterable[CurrentPool]) -> Iterator[CurrentPool]:
    """Yield pools without their nodes; those on one accelerator for the same requests are one pool."""
    for same in grouped(
        ((pool.mode, pool.accelerator, frozenset(pool.shapes), pool.serving_role or ""), pool)
        for pool in pools
    ).values():
        total = {
            "num_replicas": sum(pool.num_replicas for pool in same),
            "cost_cents_per_h": math.fsum(pool.cost_cents_per_h for pool in same),
            "node": None,
        }
        yield same[0].model_copy(update=total)
