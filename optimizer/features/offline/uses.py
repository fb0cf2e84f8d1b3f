"""What a plan states of offline work."""

from pydantic import Field

from optimizer.documents import Document


class DeadlineUse(Document):
    """Offline work of a server, and its completion time."""

    server: str
    """Name of the server; in `unserved`, its `priority` is 101, below all others."""
    requests: float
    """Number of requests."""
    hours: float
    """Deadline, from now [h]."""
    capacity_rpm: float = Field(alias="capacity")
    """Maximum rate of the server's pools; offline work uses all of it until it is done [requests/min]."""
    finishes_h: float | None = Field(None, alias="finishes")
    """Completion time at that rate, from now [h]; null if there are no pools."""
    done_in_time: float = Field(alias="done")
    """Number of requests completed by the deadline."""
    in_time: bool = Field(alias="inTime")
    """Whether all requests are completed by the deadline."""
