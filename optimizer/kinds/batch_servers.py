"""Batch servers: a replica that collects requests and answers them together, without tokens."""

from typing import ClassVar

from optimizer.kinds.kind import Kind
from optimizer.timing import BatchLaw, Law


class BatchServers(Kind):
    """Bulk service of whole batches."""

    name: ClassVar[str] = "batch servers"
    laws: ClassVar[tuple[type[Law], ...]] = (BatchLaw,)
    mark: ClassVar[str | None] = "batch_window_ms"
