"""The part of a plan about versions."""

from pydantic import Field

from optimizer.documents import OutputDocument, is_none


class VersionUse(OutputDocument):
    """A version of a split server."""

    server: str
    """Name under which the version is planned, such as `chat (v2)`; its pools have it in `allocations`."""
    model: str
    """Model of the version."""
    weight: float
    """Share of the server's requests that the version gets."""
    arrival_rate_rpm: float
    """Load of the version [requests/min]."""
    num_replicas: int
    """Number of replicas of the version."""
    needed_replicas: float
    """Load divided by the maximum rate of a replica, as a decimal number."""
    cost_cents_per_h: float
    """Cost of the version's replicas [cents/h]."""
    unused_cost_cents_per_h: float
    """Part of the cost for capacity that exceeds the load [cents/h]."""


class OneVersion(OutputDocument):
    """Replicas if the server's own model served all requests, with the same reserve but no roll-back."""

    accelerator: str
    """Cheapest accelerator on which the plan has pools of the model."""
    num_replicas: int
    """Number of replicas, with the maximum rate of a replica in the plan."""
    cost_cents_per_h: float
    """Cost of the replicas that the server's own model alone would need [cents/h]."""


class SplitUse(OutputDocument):
    """Versions of a split server, and the cost of splitting it."""

    model: str
    """Own model of the server."""
    versions: tuple[VersionUse, ...] = Field(strict=False)
    """Versions, in document order."""
    one_version: OneVersion | None = Field(None, exclude_if=is_none)
    """Replicas needed without the other versions; absent if the server is idle, if its own model has no
    replicas, or if a version is not served in full with its reserve.
    """
    extra_cost_cents_per_h: float | None = Field(None, exclude_if=is_none)
    """Cost of all versions minus that of `oneVersion` [cents/h]; absent if `oneVersion` is."""
    roll_back: bool | None = Field(None, exclude_if=is_none)
    """Whether the replicas of the server's own model can take all requests; absent if this is not required.
    """

    @property
    def num_replicas(self) -> int:
        """Return the number of replicas of all versions."""
        return sum(version.num_replicas for version in self.versions)

    @property
    def cost_cents_per_h(self) -> float:
        """Return the cost of all versions [cents/h]."""
        return sum(version.cost_cents_per_h for version in self.versions)
