"""Documents of servers: their load and allocations."""

from typing import Self

from pydantic import Field

from optimizer.documents import Name, is_none
from optimizer.kinds.fields import Load
from optimizer.kinds.table import ServerFields
from optimizer.spec.schema.allocations import AllocationData
from optimizer.spec.schema.cache_fields import CacheFields
from optimizer.spec.schema.card_fields import SharedCardField
from optimizer.spec.schema.offline_fields import OfflineFields
from optimizer.spec.schema.place_fields import ServedPlaceFields
from optimizer.spec.schema.reserve_fields import ReserveFields
from optimizer.spec.schema.rollout_fields import SurgeField
from optimizer.spec.schema.version_fields import SplitFields


class Server(
    SharedCardField,
    SplitFields,
    CacheFields,
    SurgeField,
    OfflineFields,
    ServedPlaceFields,
    ReserveFields,
    ServerFields,
):
    """A server to place: one model for one service class."""

    accelerators: tuple[Name, ...] | None = Field(None, strict=False, fail_fast=True)
    """The allowed accelerators; default: all."""
    shared_queue: Name | None = Field(None, alias="sharedQueue", exclude_if=is_none)
    """Name of a queue whose replicas are shared by all servers that name it, all of one model. Requests wait
    by the priority of their class. Absent: the server has its own queue.
    """
    current: AllocationData = Field(AllocationData(), alias="currentAlloc")
    """The current allocation, with the load."""
    desired: AllocationData = Field(AllocationData(), alias="desiredAlloc")
    """The last recommendation; stored but not used."""

    def with_load(self, load: Load) -> Self:
        """Return the server with another load."""
        return self.model_copy(update={"current": self.current.model_copy(update={"load": load})})
