"""Settings of the measured server, which reports of clients do not contain."""

from dataclasses import dataclass
from typing import Any

from optimizer.simulation.limits import UNLIMITED, Limits
from optimizer.timing import DEFAULT_MAX_NUM_TOKENS, SchedulerName


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Limits and scheduler of the measured engine."""

    kv_capacity_tokens: int | None = None
    """KV cache capacity [tokens]; None if unknown, which is treated as unlimited."""
    max_seqs: int | None = None
    """Maximum requests in an iteration; None if unknown, which is treated as unlimited."""
    max_num_tokens: int = DEFAULT_MAX_NUM_TOKENS
    """Maximum number of tokens in an iteration."""
    scheduler: SchedulerName = "chunked"

    def limits(self) -> Limits:
        """Return the limits for the simulator."""
        return Limits(
            max_batch=MAX_SEQS if self.max_seqs is None else self.max_seqs,
            max_num_tokens=self.max_num_tokens,
            kv_tokens=UNLIMITED if self.kv_capacity_tokens is None else self.kv_capacity_tokens,
            prefill_first=self.scheduler == "prefill-first",
        )

    def profile_fields(self, max_batch_size: int) -> dict[str, Any]:
        """Return the settings as fields of a profile; `max_batch_size` replaces an unknown batch limit."""
        return {
            "max_num_tokens": self.max_num_tokens,
            "scheduler": self.scheduler,
            "kv_capacity_tokens": self.kv_capacity_tokens,
            "max_batch_size": self.max_seqs or max_batch_size,
        }

    def notes(self) -> list[str]:
        """Return sentences on the assumptions about missing settings."""
        found = []
        if self.kv_capacity_tokens is None:
            found.append("KV cache unknown (--kv-capacity): assumed sufficient for every run")
        if self.max_seqs is None:
            found.append("maximum batch unknown (--max-seqs): assumed sufficient for every run")
        return found


MAX_SEQS = 1 << 20
