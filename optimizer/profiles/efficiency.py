"""How much of a data sheet real engines reach: the constants of the estimator, with their meaning.

They are shares of peak rates and fixed costs of software, not properties of single devices or models; how
they were found, and how well they hold for devices and models that took no part, says docs/estimate.md,
section 6.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

VERSION = "2026-11"
"""Version of the constants; estimates name it."""

_SHARE_OF_GENERATION = MappingProxyType(
    {"ampere": 1.05, "ada": 0.8, "ada-geforce": 1.2, "blackwell": 0.8, "blackwell-pro": 1.05}
)


@dataclass(frozen=True, slots=True)
class Efficiency:
    """The constants. Shares are of the data sheet's figure and at most 1."""

    step_ms: float = 0.30
    """Scheduling, sampling, copying: per iteration."""
    layer_ms: float = 0.055
    """Starting the kernels of a layer from a captured graph."""
    eager_layer_ms: float = 0.30
    """The same kernel by kernel from the host: engines of 2023 and early 2024, or `--enforce-eager`."""
    sequence_ms: float = 0.006
    """Work of the host per request in the batch."""
    weight_bandwidth: float = 0.85
    """Share of the memory bandwidth at which dense weights are read."""
    cache_bandwidth: float = 0.85
    """The same for the KV cache."""
    expert_bandwidth: float = 0.70
    """The same for routed experts: many small matrices."""
    bf16: float = 0.75
    """Share of the dense 16-bit rate that large multiplications reach."""
    fp8: float = 0.52
    """Share of the dense fp8 rate: scales are applied, activations converted."""
    fp4: float = 0.55
    """Share of the dense fp4 rate."""
    experts: float = 0.70
    """Of these, what multiplications with experts reach."""
    attention: float = 0.50
    """Share of the 16-bit rate that attention over a prompt, and latent attention, reach."""
    all_reduce_ms: float = 0.012
    """Latency of one all-reduce inside a node."""
    all_reduce_pcie_ms: float = 0.027
    """The same over PCIe."""
    link: float = 0.36
    """Share of the link's rate that an all-reduce reaches (bus bandwidth)."""
    link_pcie: float = 0.27
    """The same over PCIe between two devices; it falls with the root of their number."""
    generations: Mapping[str, float] = field(default_factory=lambda: _SHARE_OF_GENERATION)
    """Arithmetic shares of a generation over those of Hopper."""

    def shares(self, generation: str) -> dict[str, float]:
        """Return the reached share of the dense rate by format, for a generation; never above 1."""
        factor = self.generations.get(generation, 1.0)
        rates = {"bf16": self.bf16, "fp8": self.fp8, "fp4": self.fp4}
        return {name: min(share * factor, 1.0) for name, share in rates.items()}
