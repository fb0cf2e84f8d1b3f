"""Desired replicas of every server, the reason of each number, and what the next decision needs to know."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import TypeAdapter

from optimizer.stabilisation.loads import LoadEstimate


class Reason(StrEnum):
    """Why a number is desired."""

    new = "New"
    unchanged = "Unchanged"
    load_increase = "LoadIncrease"
    load_decrease = "LoadDecrease"
    replanned = "Replanned"
    switch = "Switch"
    not_chosen = "NotChosen"
    unserved = "Unserved"
    # held:
    load_missing = "LoadMissing"
    noise = "Noise"
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
class Target:
    """What is desired of a server on one accelerator."""

    replicas: int
    reason: Reason
    max_batch: int = 0
    """Batch limit of a replica."""
    rate_rpm: float = 0.0
    """Largest load of a replica that meets every target, when it was last sized [requests/min]."""
    cost_cents_per_h: float = 0.0
    """Cost of a replica [cents/h]."""
    held: bool = False
    """Whether the plan has another number."""
    detail: str = ""
    """What a held number waits for."""
    leaving: bool = False
    """Whether it goes when the pool in its place is ready."""
    raised_s: float = 0.0
    """When the number last went up [s since the epoch]."""
    ready_before: int = 0
    """Replicas that were ready then, as far as they are still desired."""
    sized_rpm: float | None = None
    """Load of the server when the number last changed [requests/min]; None if it is not known."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What was recommended and desired for some time."""

    first_s: float
    last_s: float
    recommended: Mapping[str, int]
    """Replicas by accelerator."""
    desired: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ServerDecision:
    """What is desired of a server, and what is remembered of it."""

    targets: Mapping[str, Target]
    """By accelerator, as far as it has replicas, or had some just before."""
    switched_s: float
    """When it last came to an accelerator."""
    in_tokens: float = 0.0
    """Mean input length of the load that it was sized for [tokens]."""
    out_tokens: float = 0.0
    """Mean output length of the same [tokens]."""
    load_rpm: float | None = None
    """Load that the last plan was made for [requests/min]; None if it is not known."""
    load: LoadEstimate | None = None
    past: tuple[Moment, ...] = ()
    pending_since_s: Mapping[str, float] = field(default_factory=dict)
    """By accelerator, since when there have been pending replicas without a break."""
    ups: int = 0
    """How often a number has gone up."""
    downs: int = 0
    """How often one has gone down."""

    @property
    def replicas(self) -> dict[str, int]:
        """Replicas by accelerator, where there are any."""
        return {name: target.replicas for name, target in self.targets.items() if target.replicas}

    @property
    def staying(self) -> dict[str, Target]:
        """Targets with replicas that are not about to go, by accelerator."""
        return {
            name: target for name, target in self.targets.items() if target.replicas and not target.leaving
        }

    @property
    def cost_cents_per_h(self) -> float:
        """What it costs [cents/h]."""
        return sum(target.replicas * target.cost_cents_per_h for target in self.targets.values())


@dataclass(frozen=True, slots=True)
class Decisions:
    """What is desired of a fleet."""

    made_at_s: float
    """When [s since the epoch]."""
    servers: Mapping[str, ServerDecision]
    """By name."""

    def to_json(self) -> str:
        """Return this as JSON text."""
        return _adapter().dump_json(self).decode()

    @classmethod
    def from_json(cls, text: str) -> "Decisions":
        """Return what `to_json` was called of."""
        return _adapter().validate_json(text)


def _adapter() -> "TypeAdapter[Decisions]":
    return TypeAdapter(Decisions)


@dataclass(frozen=True, slots=True)
class Replicas:
    """Replicas of a server on one accelerator that are there."""

    ready: int
    pending: int = 0


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen of a fleet when a plan was made."""

    now_s: float
    """When [s since the epoch]."""
    missing: frozenset[str] = frozenset()
    """Servers whose load was not reported."""
    replicas: Mapping[str, Mapping[str, Replicas]] = field(default_factory=dict)
    """By server and accelerator, as far as it was reported."""
    unusable: frozenset[str] = frozenset()
    """Missing servers whose load was never known well enough to plan for it."""
