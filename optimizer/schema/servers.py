"""Documents of servers: their load and allocations."""

from typing import Self

from pydantic import Field

from optimizer.documents import Name, is_none
from optimizer.features.fields import ServerFeatureFields
from optimizer.kinds.fields import Load
from optimizer.kinds.table import ServerFields
from optimizer.schema.allocations import AllocationData


class Server(ServerFeatureFields, ServerFields):
    """A server to place: one model for one service class."""

    accelerators: tuple[Name, ...] | None = Field(None, strict=False, fail_fast=True)
    """The allowed accelerators; default: all."""
    shared_queue: Name | None = Field(None, alias="sharedQueue", exclude_if=is_none)
    """Name of a queue whose replicas are shared by all servers that name it: at most six, all of one model.
    Requests wait by the priority of their class. Absent: the server has its own queue.
    """
    current: AllocationData = Field(AllocationData(), alias="currentAlloc")
    """The current allocation, with the load."""
    desired: AllocationData = Field(AllocationData(), alias="desiredAlloc")
    """The last recommendation; stored but not used."""

    def with_load(self, load: Load) -> Self:
        """Return the server with another load."""
        return self.model_copy(update={"current": self.current.model_copy(update={"load": load})})
