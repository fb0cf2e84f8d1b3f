"""Document fields for versions: models that share the requests of a server."""

from operator import not_

from pydantic import Field

from optimizer.documents import Document, Name, Share, is_none
from optimizer.schema.allocations import AllocationData


class VersionShare(Document):
    """A version of a server's model, and its share of the requests.

    The targets of the version are those of its model in the server's service class, or else those of the
    server's `model`.
    """

    model: Name
    """Model of the version."""
    weight: Share
    """Share of the server's requests that the version gets; the weights of all versions add up to 1."""
    current: AllocationData | None = Field(None, alias="currentAlloc", exclude_if=is_none)
    """Current allocation of the version, without a load; for the server's own `model`, use that of the
    server.
    """
    desired: AllocationData | None = Field(None, alias="desiredAlloc", exclude_if=is_none)
    """Last recommended allocation of the version; stored but not used."""


class SplitFields(Document):
    """Versions of a server's model."""

    split: tuple[VersionShare, ...] | None = Field(None, strict=False, exclude_if=is_none)
    """Models among which the server's requests are split at random by weight, including the server's `model`.
    Each is planned as a separate server, such as `chat (v2)`. Absent: all requests go to `model`.
    """
    roll_back: bool = Field(default=False, alias="rollBack", exclude_if=not_)
    """Whether the replicas of `model` must be able to take all requests immediately, which is a reserve."""
