"""Desired replicas of every server with their reasons, and the state that the next decision needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from optimizer.stabilisation.demand import ServerDemand
from optimizer.stabilisation.loads import LoadEstimate
from optimizer.stabilisation.missing_loads import MissingLoad


class TargetReason(StrEnum):
    """Reason for the desired number of replicas of a server on an accelerator."""

    new = "New"
    unchanged = "Unchanged"
    load_increase = "LoadIncrease"
    load_decrease = "LoadDecrease"
    replanned = "Replanned"
    switch = "Switch"
    not_chosen = "NotChosen"
    idle = "Idle"
    unserved = "Unserved"
    # Reasons for a number that differs from the plan:
    load_missing = "LoadMissing"
    scale_down_load = "ScaleDownLoad"
    scale_down_window = "ScaleDownWindow"
    small_saving = "SmallSaving"
    dwell = "SwitchDwell"
    waits_for_new_pool = "WaitsForNewPool"
    scale_up_limit = "ScaleUpLimit"
    scale_down_limit = "ScaleDownLimit"
    pending = "PendingReplicas"
    units = "UnitsTaken"


@dataclass(frozen=True, slots=True)
class ReplicaTarget:
    """Desired replicas of a server on one accelerator."""

    replicas: int
    reason: TargetReason
    max_batch: int = 0
    """Batch limit of a replica [requests]."""
    rate_rpm: float = 0.0
    """Maximum rate of a replica within all targets, when last sized [requests/min]."""
    cost_cents_per_h: float = 0.0
    """Cost of a replica [cents/h]."""
    held: bool = False
    """Whether the number differs from the plan."""
    detail: str = ""
    """Explanation of a held number; empty if it is not held."""
    leaving: bool = False
    """Whether the replicas are removed once their replacement is ready."""
    raised_s: float = 0.0
    """Time at which the number last increased [s since the epoch]."""
    ready_before: int = 0
    """Number of replicas that were ready at the time `raised_s` and are still desired."""
    sized_rpm: float | None = None
    """Load of the server when the number last changed [requests/min]; None if unknown."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Recommended and desired replicas of a server during a period."""

    first_s: float
    last_s: float
    recommended: Mapping[str, int]
    """Recommended replicas by accelerator."""
    desired: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ServerDecision:
    """Desired replicas of a server, and the state that later decisions need."""

    targets: Mapping[str, ReplicaTarget]
    """Targets by accelerator, including accelerators whose replicas were just removed."""
    switched_s: float
    """Time at which the server last switched to another accelerator [s since the epoch]."""
    in_tokens: float = 0.0
    """Mean input length for which the server was sized [tokens]."""
    out_tokens: float = 0.0
    """Mean output length for which the server was sized [tokens]."""
    load_rpm: float | None = None
    """Load of the server in the last plan [requests/min]; None if unknown."""
    load: LoadEstimate | None = None
    past: tuple[Moment, ...] = ()
    pending_since_s: Mapping[str, float] = field(default_factory=dict)
    """Time since which replicas have been pending without interruption [s since the epoch], by accelerator.
    """
    shared_since_s: float | None = None
    """Time since which plans have put the server on shared cards [s since the epoch]; None if they do not."""
    ups: int = 0
    """Number of times that desired replicas increased."""
    downs: int = 0
    """Number of times that desired replicas decreased."""

    @property
    def replicas(self) -> dict[str, int]:
        """Desired replicas by accelerator, without zeros."""
        return {name: target.replicas for name, target in self.targets.items() if target.replicas}

    @property
    def staying(self) -> dict[str, ReplicaTarget]:
        """Targets with replicas that are not about to be removed, by accelerator."""
        return {
            name: target for name, target in self.targets.items() if target.replicas and not target.leaving
        }

    @property
    def cost_cents_per_h(self) -> float:
        """Cost of the desired replicas [cents/h]."""
        return sum(target.replicas * target.cost_cents_per_h for target in self.targets.values())


@dataclass(frozen=True, slots=True)
class Decisions:
    """Desired replicas of all servers of a fleet."""

    made_at_s: float
    """Time of the decisions [s since the epoch]."""
    servers: Mapping[str, ServerDecision]
    """Decisions by name of the server."""


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """Existing replicas of a server on one accelerator."""

    ready: int
    pending: int = 0


@dataclass(frozen=True, slots=True)
class Observation:
    """Observed state of a fleet at the time of a plan."""

    now_s: float
    """Time of the observation [s since the epoch]."""
    missing: frozenset[str] = frozenset()
    """Servers whose load was not reported."""
    replicas: Mapping[str, Mapping[str, ReplicaStatus]] = field(default_factory=dict)
    """Existing replicas by server and accelerator; servers without a report are absent."""
    incomplete: Mapping[str, MissingLoad] = field(default_factory=dict)
    """Servers whose load lacks values, with what is done without them."""
    demands: Mapping[str, ServerDemand] = field(default_factory=dict)
    """Demands of the servers whose arrivals are counted."""
