"""What a plan states of versions."""

from pydantic import Field

from optimizer.documents import Document, is_none


class VersionUse(Document):
    """A version of a split server."""

    server: str
    """Name of the version's own server, whose pools are in `allocations`."""
    model: str
    """Model of the version."""
    weight: float
    """The version's share of the server's requests."""
    arrival_rate_rpm: float = Field(alias="arrivalRate")
    """Load of the version [requests/min]."""
    num_replicas: int = Field(alias="numReplicas")
    """Number of replicas."""
    needed_replicas: float = Field(alias="neededReplicas")
    """Number of replicas that the load fills at their maximum rate, with decimals."""
    cost_cents_per_h: float = Field(alias="cost")
    """Cost of the version's replicas [cents/h]."""
    unused_cost_cents_per_h: float = Field(alias="unusedCost")
    """Part of that cost that pays for capacity above the load [cents/h]."""


class OneVersion(Document):
    """The server's own model serving all requests, with the same reserve except for a roll-back."""

    accelerator: str
    """The cheapest of the accelerators on which the plan has pools of the model."""
    num_replicas: int = Field(alias="numReplicas")
    """Number of replicas, at the maximum rate of a replica in the plan."""
    cost_cents_per_h: float = Field(alias="cost")
    """Cost of these replicas [cents/h]."""


class SplitUse(Document):
    """Versions of a split server, and the cost of splitting it."""

    model: str
    """The server's own model."""
    versions: tuple[VersionUse, ...] = Field(strict=False)
    """The versions, in the order of the document."""
    one_version: OneVersion | None = Field(None, alias="oneVersion", exclude_if=is_none)
    """Replicas needed without the other versions; absent if the server is idle, if its own model has no
    replicas, or if a version is not served in full with its reserve.
    """
    extra_cost_cents_per_h: float | None = Field(None, alias="extraCost", exclude_if=is_none)
    """Cost of all versions minus that of a single one [cents/h]; absent if `oneVersion` is."""
    roll_back: bool | None = Field(None, alias="rollBack", exclude_if=is_none)
    """Whether replicas of the server's own model can take all requests; absent if not requested."""

    @property
    def num_replicas(self) -> int:
        """Return the number of replicas of all versions."""
        return sum(version.num_replicas for version in self.versions)

    @property
    def cost_cents_per_h(self) -> float:
        """Return the cost of all versions [cents/h]."""
        return sum(version.cost_cents_per_h for version in self.versions)
