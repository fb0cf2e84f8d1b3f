"""Documents of versions: models that share the requests of a server."""

from operator import not_

from pydantic import Field

from optimizer.documents import Document, Name, Share, is_none
from optimizer.spec.schema.allocations import AllocationData


class VersionShare(Document):
    """A version of a server's model, and its share of the requests."""

    model: Name
    """The model of the version."""
    weight: Share
    """Share of the server's requests; the weights of all versions sum to 1."""
    current: AllocationData | None = Field(None, alias="currentAlloc", exclude_if=is_none)
    """The version's current allocation, without a load. That of the server's own `model` is the server's."""
    desired: AllocationData | None = Field(None, alias="desiredAlloc", exclude_if=is_none)
    """The last recommendation for the version; stored but not used."""


class SplitFields(Document):
    """Versions of a server."""

    split: tuple[VersionShare, ...] | None = Field(None, strict=False, exclude_if=is_none)
    """Models that share the server's requests at random by weight, the server's `model` among them. Each is
    planned as a server of its own. Absent: all requests go to `model`."""
    roll_back: bool = Field(default=False, alias="rollBack", exclude_if=not_)
    """Whether the replicas of `model` can take all requests of the server at once, as a reserve."""
