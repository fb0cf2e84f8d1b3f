"""Documents of offline work: a number of requests and the time until when they are to be done."""

from pydantic import Field

from optimizer.documents import Document, is_none


class OfflineWork(Document):
    """Requests that are all there now and only have to be done in time."""

    requests: float = Field(gt=0, le=1e15)
    """Number of requests."""
    hours: float = Field(gt=0, le=1e6)
    """Time until when they are to be done, from now [h]."""

    @property
    def rate_rpm(self) -> float:
        """Rate at which they are done just in time [requests/min]."""
        return self.requests / (self.hours * 60)


class OfflineFields(Document):
    """Work of a server that need not be done at once."""

    deadline: OfflineWork | None = Field(None, exclude_if=is_none)
    """Offline work instead of a load: `arrivalRate` follows from it. It has no latency or loss targets, and
    ranks after every priority, on what other servers leave. Absent: requests arrive at `arrivalRate`."""
