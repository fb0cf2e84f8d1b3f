"""Batch servers: a replica that collects requests and answers them together, without tokens."""

from typing import ClassVar

from pydantic import Field

from optimizer.documents import Document, is_none
from optimizer.kinds.kind import Kind
from optimizer.timing import BatchLaw, Law


class PoolFields(Document):
    """What only a pool of batch servers has."""

    busy: float | None = Field(None, exclude_if=is_none)
    """Share of the time in which a batch server is busy, at the load; absent for others, as the next two."""
    mean_batch: float | None = Field(None, alias="avgBatch", exclude_if=is_none)
    """Mean number of requests that it answers together."""
    batch_window_ms: float | None = Field(None, alias="batchWindow", exclude_if=is_none)
    """How long it collects a batch: the window, as given or chosen [ms]."""
    binding: str | None = Field(None, exclude_if=is_none)
    """What can serve the least where it has stages: `server`, `stage:` and a name, or `jobs`; else absent."""


class BatchServers(Kind):
    """Bulk service of whole batches."""

    name: ClassVar[str] = "batch servers"
    laws: ClassVar[tuple[type[Law], ...]] = (BatchLaw,)
    mark: ClassVar[str | None] = "batch_window_ms"
