"""The part of a plan about pools by length."""

from typing import Literal

from pydantic import Field

from optimizer.documents import OutputDocument, is_none

Reason = Literal[
    "cheaper", "needed", "required", "limits", "one_replica_more", "more_replicas", "unattainable", "unserved"
]


class LengthPoolUse(OutputDocument):
    """A pool of a server with pools by length."""

    server: str
    """Name under which the pool is planned, such as `chat (docs)`; it is that of the server if the server is
    not divided. Its replicas are in `allocations`.
    """
    shapes: tuple[str, ...] = Field(strict=False)
    """Request shapes that the pool serves, by ascending prompt length."""
    below_tokens: int | None = Field(None, exclude_if=is_none)
    """Rule of the router: prompts with fewer tokens go to the first pool for which this holds, and all others
    to the last. Absent for the last pool.
    """
    arrival_rate_rpm: float
    """Load of the pool [requests/min]."""
    num_replicas: int
    """Number of replicas of the pool."""
    cost_cents_per_h: float
    """Cost of the replicas [cents/h]."""

    @property
    def notes(self) -> dict[str, str]:
        """Annotations of the pool's workload in Kubernetes."""
        below = {} if self.below_tokens is None else {"prompts-below": str(self.below_tokens)}
        return {"shapes": ", ".join(self.shapes), **below}


class SizedPool(OutputDocument):
    """A pool sized alone, on the accelerator where it costs least, regardless of limits."""

    shapes: tuple[str, ...] = Field(strict=False)
    """Request shapes that the pool serves."""
    accelerator: str
    """Name of the accelerator."""
    num_replicas: int
    """Number of replicas."""
    needed_replicas: float
    """Load divided by the maximum rate of a replica, as a decimal number."""
    cost_cents_per_h: float
    """Cost of the replicas [cents/h]."""


class LengthUse(OutputDocument):
    """Pools by length of a server, and what one pool or several pools would cost."""

    pools: tuple[LengthPoolUse, ...] = Field(strict=False)
    """Pools of the plan, by ascending prompt length; one if the server is not divided."""
    cost_cents_per_h: float
    """Cost of these pools [cents/h]."""
    together: SizedPool | None = None
    """One pool for all shapes, at least cost on one accelerator and regardless of limits on cards; null if no
    accelerator meets the targets.
    """
    by_length: tuple[SizedPool, ...] = Field((), strict=False)
    """Two or more pools of least total cost, each on one accelerator and regardless of limits on cards; empty
    if no accelerators meet the targets.
    """
    reason: Reason
    """Why the server is divided: `cheaper`, `needed` (no accelerator meets the targets of all shapes
    together), or `required`; or why it is not: `one_replica_more` (the pools cost no more than one pool
    before numbers of replicas are rounded up), `more_replicas` (they cost more even then), or `unattainable`
    (in no division do all pools meet their targets). `limits`: limits on cards or costs of changes outweigh
    the difference in cost. `unserved`: the server is not served.
    """
