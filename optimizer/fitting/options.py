"""Options of a fit, and facts about the measurement that reports do not contain."""

from dataclasses import dataclass, field

from optimizer.fitting.parameters import FULL_LAW
from optimizer.fitting.server import ServerSettings

UNKNOWN = "unknown"
"""Name of a model or an accelerator that is not stated."""


@dataclass(frozen=True, slots=True)
class MeasuredSetup:
    """Measured model, accelerator and engine."""

    model: str | None = None
    """Name of the model; None selects the name in the reports."""
    accelerator: str = UNKNOWN
    cards: int | None = None
    """Number of accelerators of one replica; None selects that of the reports, otherwise 1."""
    weights: str | None = None
    engine: str | None = None
    """Serving engine and its version; None if unknown."""


@dataclass(frozen=True, slots=True)
class FitOptions:
    """Options of a fit."""

    hold_out: int = 0
    """Number of highest rates of each shape (pair of request lengths) that are held out of the fit; if not 0,
    closed loops of several users are held out as well.
    """
    terms: tuple[str, ...] = FULL_LAW
    max_in_flight: int | None = None
    """Maximum requests that the client keeps in flight, for reports that do not state it; None for no limit.
    """
    leave_out: bool = True
    """Whether to cross-validate by excluding one shape (pair of request lengths) at a time."""
    key: MeasuredSetup = field(default_factory=MeasuredSetup)
    replicas: int | None = None
    """Number of equal replicas behind the measured address; None selects that of the reports."""
    settings: ServerSettings = field(default_factory=ServerSettings)
