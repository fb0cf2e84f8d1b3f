"""Settings of a deployment: parallelism, formats, memory settings of the engine, request lengths."""

from dataclasses import dataclass

from optimizer.errors import SpecError
from optimizer.profiles.engines import ServingEngine, read_engine

MAX_TENSOR_PARALLEL = 1024


@dataclass(frozen=True, slots=True)
class Deployment:
    """Settings and mean request lengths of one replica."""

    tp: int = 1
    """Tensor parallel size: number of devices per replica."""
    weights: str | None = None
    """Number format of the weights; None selects the published one."""
    eager: bool = False
    """Whether the engine launches each kernel from the host, without captured (CUDA) graphs."""
    cache: str | None = None
    """Number format of the KV cache: `bf16`, `fp8` or `fp8_ds_mla`; None selects the checkpoint's, else bf16.
    """
    in_tokens: float = 1024.0
    """Mean input length [tokens]."""
    out_tokens: float = 256.0
    """Mean output length [tokens]."""
    engine: str | None = None
    """Serving engine and its version, such as ``vllm:0.11``; None selects the assumed one."""
    memory_utilization: float | None = None
    """Fraction of device memory that the engine can use; None selects the engine's default."""
    max_num_tokens: int = 8192
    """Maximum number of tokens in one iteration."""
    max_requests: int | None = None
    """Maximum number of requests in the batch; None selects the engine's default."""
    memory_gib: float | None = None
    """Memory of one device [GiB]; None selects the catalogue's."""
    weights_gb: float | None = None
    """Size of all weights [GB]; None derives it from the model's sizes and the format."""
    cache_per_token: float | None = None
    """KV cache size of a token on one device [bytes]; None derives it from the model's layers."""
    workspace_gb: float | None = None
    """Memory of one device for anything but weights and cache [GB]; None estimates it."""

    def __post_init__(self) -> None:
        """Check that each setting is within its range.

        Raises:
            SpecError: a setting is out of its range.
        """
        _ = self.serving
        ranges = (
            ("tp", self.tp, 1, MAX_TENSOR_PARALLEL),
            ("in-tokens", self.in_tokens, 1, 1e8),
            ("out-tokens", self.out_tokens, 1, 1e8),
            ("memory-utilization", self.memory_utilization, 0.01, 1),
            ("max-num-tokens", self.max_num_tokens, 1, 1e9),
            ("max-requests", self.max_requests, 1, 1e6),
            ("memory-gib", self.memory_gib, 0.01, 1e6),
            ("weight-size", self.weights_gb, 0, 1e9),
            ("cache-per-token", self.cache_per_token, 1e-6, 1e12),
            ("workspace", self.workspace_gb, 0, 1e6),
        )
        for name, value, minimum, maximum in ranges:
            if value is not None and not minimum <= value <= maximum:
                raise SpecError(f"{name}: must be between {minimum:g} and {maximum:g}, not {value:g}")

    @property
    def serving(self) -> ServingEngine:
        """Serving engine, with the rules of its version.

        Raises:
            SpecError: the engine is unknown.
        """
        return read_engine(self.engine)

    @property
    def request_tokens(self) -> float:
        """Mean total length of a request: input plus output [tokens]."""
        return self.in_tokens + self.out_tokens
