"""Document fields for offline work: a number of requests, and their deadline."""

from pydantic import Field

from optimizer.documents import Document, is_none


class OfflineWork(Document):
    """Requests that are all available now and must be completed by a deadline."""

    requests: float = Field(gt=0, le=1e15)
    """Number of requests."""
    hours: float = Field(gt=0, le=1e6)
    """Time from now to the deadline [h]."""

    @property
    def rate_rpm(self) -> float:
        """Rate at which all requests are completed exactly at the deadline [requests/min]."""
        return self.requests / (self.hours * 60)


class OfflineFields(Document):
    """Offline work of a server: requests that only have to be completed by a deadline."""

    deadline: OfflineWork | None = Field(None, exclude_if=is_none)
    """Offline work instead of a load; `arrivalRate` is derived from it. It has no latency or loss targets and
    ranks below every priority, so it uses the capacity that other servers do not need. Absent: requests
    arrive at `arrivalRate`.
    """
