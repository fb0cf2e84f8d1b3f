"""Options of a fit, and facts about the measurement and the server that reports do not contain."""

from dataclasses import asdict, dataclass, field
from typing import Any

from optimizer.fitting.parameters import FULL_LAW
from optimizer.simulation.limits import UNLIMITED, Limits
from optimizer.timing.engine import SchedulerName
from optimizer.timing.iteration import DEFAULT_MAX_NUM_TOKENS

ALL_TOKENS = 1 << 16
"""Maximum number of tokens in an iteration that stands for no limit."""
UNKNOWN = "unknown"
"""Name of a model or an accelerator that is not stated."""
MAX_SEQS = 1 << 20


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
class ServerSettings:
    """Limits and scheduler of the measured engine."""

    kv_capacity_tokens: int | None = None
    """KV cache capacity [tokens]; None if unknown, which is treated as unlimited."""
    max_batch_size: int | None = None
    """Maximum requests in an iteration; None or 0 if unknown, which is treated as unlimited."""
    max_num_tokens: int | None = None
    """Maximum number of tokens in an iteration; None if unknown, which is treated as the usual default unless
    the runs show another limit.
    """
    scheduler: SchedulerName = "chunked"

    def limits(self) -> Limits:
        """Return the limits for the simulator."""
        return Limits(
            max_batch=self.max_batch_size or MAX_SEQS,
            max_num_tokens=self.max_num_tokens or DEFAULT_MAX_NUM_TOKENS,
            kv_tokens=UNLIMITED if self.kv_capacity_tokens is None else self.kv_capacity_tokens,
            prefill_first=self.scheduler == "prefill-first",
        )

    def profile_fields(self) -> dict[str, Any]:
        """Return the settings as fields of a profile, in which an unknown batch limit is 0."""
        return {**asdict(self), "max_batch_size": self.max_batch_size or 0}

    def notes(self, max_num_tokens: int) -> list[str]:
        """Return sentences on the assumptions about missing settings, one of them the limit on tokens."""
        notes = []
        if self.max_num_tokens is None:
            usual = max_num_tokens == self.limits().max_num_tokens
            why = "the usual default" if usual else "because the runs contradict the usual 8,192"
            notes.append(
                f"maximum tokens of an iteration unknown (--max-num-tokens): {max_num_tokens:,}, {why}"
            )
        if self.kv_capacity_tokens is None:
            notes.append("KV cache unknown (--kv-capacity): assumed sufficient for every run")
        if self.max_batch_size is None:
            notes.append(
                "maximum batch unknown (--max-seqs): no limit in these runs; plans use that of the engine"
            )
        return notes


@dataclass(frozen=True, slots=True)
class Stated:
    """What the user states about runs, because reports do not; None if unknown."""

    replicas: int | None = None
    """Number of equal replicas behind the measured address; None selects that of the reports."""
    cards: int | None = None
    """Number of accelerators of one replica."""
    in_tokens: float | None = None
    """Mean prompt length [tokens]."""
    in_tokens_cv: float | None = None
    """Coefficient of variation of the prompt length."""
    out_tokens_cv: float | None = None
    """Coefficient of variation of the output length."""


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
    stated: Stated = field(default_factory=Stated)
    """Facts about the runs that reports do not contain."""
    settings: ServerSettings = field(default_factory=ServerSettings)
