"""The part of a plan about offline work."""

from optimizer.documents import OutputDocument


class DeadlineUse(OutputDocument):
    """Offline work of a server, and its completion time."""

    server: str
    """Name of the server; in `unserved`, its `priority` is 101, below all others."""
    requests: float
    """Number of requests."""
    hours: float
    """Time from now to the deadline [h]."""
    capacity_rpm: float
    """Maximum rate of the server's pools [requests/min]; offline work uses all of it until it is completed.
    """
    finishes_h: float | None = None
    """Time from now to completion at that rate [h]; null if there are no pools."""
    done_in_time: float
    """Number of requests completed by the deadline."""
    in_time: bool
    """Whether all requests are completed by the deadline."""
