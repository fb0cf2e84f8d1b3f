"""The part of a plan about prefill and decode pools."""

from typing import Literal

from pydantic import Field

from optimizer.documents import OutputDocument, is_none

Reason = Literal[
    "itl", "ttft", "capacity", "needed", "required", "limits", "cheaper", "unattainable", "unserved"
]


ROLE_NOTE = "role"
"""Annotation of Kubernetes workloads with the role of their replicas."""


class RolePoolUse(OutputDocument):
    """The prefill or the decode pool of a server."""

    server: str
    """Name under which the pool is planned, such as `chat (prefill)`; `allocations` has its replicas."""
    role: Literal["prefill", "decode"]
    """Role of its replicas."""
    num_replicas: int
    """Number of replicas."""
    cost_cents_per_h: float
    """Cost of the replicas [cents/h]."""


class TtftParts(OutputDocument):
    """Parts of the mean TTFT, which add up to it [ms]."""

    prefill_wait_ms: float
    """Wait before the prefill [ms]."""
    prefill_and_transfer_ms: float
    """Prefill and the transfer of the KV cache after it [ms]."""
    handover_ms: float
    """Fixed time of the handover [ms]."""
    first_step_ms: float
    """Time from the handover to the first token, with the wait for a batch slot; 0 if the prefill replica
    sends it [ms].
    """


class SizedWay(OutputDocument):
    """One way to serve a server, each pool on its cheapest accelerator and regardless of limits."""

    replicas: dict[str, int]
    """Numbers of replicas by accelerator, in the order prefill and decode."""
    by_role: tuple[int, ...] = Field(strict=False)
    """Number of prefill and number of decode replicas, or the one number of replicas that do both."""
    cost_cents_per_h: float
    """Cost of the replicas [cents/h]."""


class RoleUse(OutputDocument):
    """How a server is served: by prefill and decode pools, or by replicas that do both."""

    pools: tuple[RolePoolUse, ...] = Field((), strict=False)
    """Prefill and decode pool of the plan; empty if replicas do both."""
    decode_share: float | None = Field(None, exclude_if=is_none)
    """Share of the TTFT target that is for the decode pool; absent without pools."""
    ttft_parts: TtftParts | None = Field(None, exclude_if=is_none)
    """Parts of the mean TTFT; absent without pools."""
    cost_cents_per_h: float
    """Cost of the replicas that serve the server [cents/h]; in nodes, that of their cards in the cheapest
    node, as in all costs of this part.
    """
    aggregated_alternative: SizedWay | None = None
    """Replicas that do both; null if they cannot meet the targets."""
    disaggregated_alternative: SizedWay | None = None
    """Prefill and decode pools; null if no such pools meet the targets."""
    reason: Reason
    """Why the plan has pools: the target that limits replicas that do both, if pools are cheaper (`itl`,
    `ttft`, or `capacity` without such a target); `needed` if such replicas cannot meet the targets; or
    `required`. Why it has none: `cheaper` if replicas that do both cost no more, or `unattainable` if no
    pools meet the targets. `limits`: limits on cards or costs of changes decide. `unserved`: the server is
    not served.
    """

    @property
    def pool_names(self) -> tuple[str, ...]:
        """Names under which the pools are planned: prefill and decode; empty without pools."""
        return tuple(pool.server for pool in self.pools)

    @property
    def choice(self) -> tuple[tuple[str, ...], ...]:
        """Roles of the chosen pools with their share of the TTFT target, or one empty part for none."""
        share = f"{self.decode_share or 0:g}"
        return tuple((pool.role, share) for pool in self.pools) or (("",),)
