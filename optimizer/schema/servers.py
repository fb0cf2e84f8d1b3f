"""Documents of servers: their load and allocations."""

from typing import Self

from pydantic import Field

from optimizer.documents import Name, is_none
from optimizer.features.fields import ServerFeatureFields
from optimizer.kinds.fields import Load
from optimizer.kinds.table import ServerFields
from optimizer.schema.allocations import AllocationData


class Server(ServerFeatureFields, ServerFields):
    """A server to place: one model for one service class, with its load."""

    accelerators: tuple[Name, ...] | None = Field(None, strict=False, fail_fast=True)
    """Names of the accelerators that the server can use; default: all."""
    shared_queue: Name | None = Field(None, alias="sharedQueue", exclude_if=is_none)
    """Name of a queue whose replicas serve all servers that name it: at most six servers, all of one model.
    Requests wait by the priority of their class. Absent: the server has its own queue.
    """
    current: AllocationData = Field(AllocationData(), alias="currentAlloc")
    """Current allocation of the server, with its load."""
    desired: AllocationData = Field(AllocationData(), alias="desiredAlloc")
    """Last recommended allocation; stored but not used."""

    def with_load(self, load: Load) -> Self:
        """Return a copy of the server with another load."""
        return self.model_copy(update={"current": self.current.model_copy(update={"load": load})})

    def kept_without_load(self) -> Self:
        """Return a copy of the server that only has the replicas that run now."""
        load = self.current.load.model_copy(update={"arrival_rate_rpm": 0.0})
        return self.with_load(load).model_copy(update={"min_num_replicas": 0})
