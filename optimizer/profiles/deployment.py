"""How a model is run: parallelism, formats, memory settings of the engine, lengths of its requests."""

from dataclasses import dataclass

from optimizer.errors import SpecError

MAX_TENSOR_PARALLEL = 1024


@dataclass(frozen=True, slots=True)
class Deployment:
    """Settings of one replica, and the requests it serves; the defaults are those of vLLM."""

    tp: int = 1
    """Devices of the replica (tensor parallelism)."""
    weights: str | None = None
    """Format of the weights; None: as published."""
    eager: bool = False
    """Whether the engine starts every kernel from the host, without captured graphs."""
    cache: str = "bf16"
    """Format of the KV cache, `bf16` or `fp8`."""
    in_tokens: float = 1024.0
    """Mean prompt [tokens]."""
    out_tokens: float = 256.0
    """Mean answer [tokens]."""
    memory_utilization: float = 0.90
    """Share of the device's memory that the engine takes."""
    max_num_tokens: int = 8192
    """Token budget of one iteration."""
    max_requests: int = 256
    """Most requests in the batch."""
    memory_gib: float | None = None
    """Memory of one device [GiB] in place of the catalogue's."""

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            SpecError: a setting is out of its range.
        """
        ranges = (
            ("tp", self.tp, 1, MAX_TENSOR_PARALLEL),
            ("in-tokens", self.in_tokens, 1, 1e8),
            ("out-tokens", self.out_tokens, 1, 1e8),
            ("memory-utilization", self.memory_utilization, 0.01, 1),
            ("max-num-tokens", self.max_num_tokens, 1, 1e9),
            ("max-requests", self.max_requests, 1, 1e6),
            ("memory-gib", 1.0 if self.memory_gib is None else self.memory_gib, 0.01, 1e6),
        )
        for name, value, least, most in ranges:
            if not least <= value <= most:
                raise SpecError(f"{name}: must be at least {least:g} and at most {most:g}, not {value:g}")

    @property
    def request_tokens(self) -> float:
        """Tokens of a request at its end."""
        return self.in_tokens + self.out_tokens
