"""The part of a plan about shared queues."""

from operator import not_

from pydantic import Field

from optimizer.documents import OutputDocument
from optimizer.schema.pools import PoolShape, WithTargets


class QueueMember(WithTargets):
    """A served member of a shared queue, with its performance at the load of the queue."""

    arrival_rate_rpm: float
    """Served load of the member [requests/min]."""
    itl_ms: float = 0.0
    """Mean inter-token latency [ms]."""
    ttft_ms: float = 0.0
    """Mean time to first token [ms]."""
    wait_ms: float = 0.0
    """Mean queueing time, part of the time to first token [ms]."""
    wait_p95_ms: float = 0.0
    """95th percentile of the queueing time over all requests of the member [ms]."""
    shapes: tuple[PoolShape, ...] = Field((), alias="requestShapes", exclude_if=not_, strict=False)
    """Request shapes of the member's load with their latencies; absent without shapes."""
    doubts: tuple[str, ...] = Field((), exclude_if=not_, strict=False)
    """Reasons to simulate before relying on these predictions, for loads with request shapes; absent if there
    are none.
    """


class SharedQueueUse(OutputDocument):
    """A shared queue; its replicas are a pool under the queue's name in `allocations`."""

    members: dict[str, QueueMember]
    """Members that are served, by descending priority."""
    unserved: tuple[str, ...] = Field((), exclude_if=not_, strict=False)
    """Members that are not served at all, also listed in the plan's `unserved`; absent if there are none."""
