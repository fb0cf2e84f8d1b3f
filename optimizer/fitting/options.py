"""Options of a fit: facts about the measurement that reports do not contain."""

from dataclasses import dataclass, field

from optimizer.fitting.parameters import FULL_LAW
from optimizer.fitting.server import ServerSettings

UNKNOWN = "unknown"
"""Name of a model or an accelerator that is not stated."""


@dataclass(frozen=True, slots=True)
class MeasuredSetup:
    """Model, accelerator and engine that were measured."""

    model: str | None = None
    """Name of the model; None selects the name in the reports."""
    accelerator: str = UNKNOWN
    cards: int | None = None
    """Accelerators of one replica; None selects those of the reports, otherwise one."""
    weights: str | None = None
    engine: str | None = None
    """Engine and its version."""


@dataclass(frozen=True, slots=True)
class FitOptions:
    """Options of a fit."""

    hold_out: int = 0
    """Number of highest rates of each shape held out; if not 0, runs at full throughput are held out as
    well."""
    terms: tuple[str, ...] = FULL_LAW
    max_in_flight: int | None = None
    """Concurrency limit of the client, if a report states none."""
    leave_out: bool = True
    """Whether to cross-validate by leaving out shapes."""
    key: MeasuredSetup = field(default_factory=MeasuredSetup)
    replicas: int | None = None
    """Equal replicas behind the address that was measured; None selects those of the reports."""
    settings: ServerSettings = field(default_factory=ServerSettings)
