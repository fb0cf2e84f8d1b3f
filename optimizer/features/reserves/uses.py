"""The parts of a plan about reserves, and about replicas by purpose."""

from pydantic import Field

from optimizer.documents import OutputDocument, is_none


class ReserveUse(OutputDocument):
    """Reserve that a server requires, and whether the plan provides it."""

    server: str
    """Name of the server."""
    has_reserve: bool
    """Whether the server has all of its required reserve; false if it is not served in full."""
    headroom_wanted: float = 0.0
    """Required headroom, as a share of the load."""
    spare_replicas: int = 0
    """Required number of spare replicas."""
    availability_target: float | None = Field(None, exclude_if=is_none)
    """Minimum probability that enough replicas are available; absent if none is required."""
    cost_cents_per_h: float
    """Cost of the replicas beyond those that the load needs [cents/h]."""


class ReplicaPurposes(OutputDocument):
    """Replica counts by purpose of a server with an availability target or a roll-out."""

    replicas: int
    """Total number of replicas, without the extra ones during a roll-out."""
    load: int
    """Number of replicas for the load, or for the server's minimum."""
    headroom: int = 0
    """Number of additional replicas for headroom."""
    spares: int = 0
    """Number of additional spare replicas."""
    availability: int = 0
    """Number of additional replicas for the availability target, beyond the spare ones."""
    rollout: int = 0
    """Number of extra replicas during a roll-out."""
    availability_target: float | None = Field(None, exclude_if=is_none)
    """Minimum probability that enough replicas are available; absent if none is required. `utilization`,
    `fullUtilization` and `bothFrom` are then absent, too.
    """
    utilization: float | None = Field(None, exclude_if=is_none)
    """Utilisation of the replicas at the load, 0 to 1."""
    full_utilization: float | None = Field(None, exclude_if=is_none)
    """Utilisation of a replica at its maximum rate, 0 to 1."""
    both_from: int | None = Field(None, exclude_if=is_none)
    """Replica count from which the availability target and a utilisation of 80 % are compatible, for loads
    that fully use the needed replicas. Absent if there is no such number.
    """
