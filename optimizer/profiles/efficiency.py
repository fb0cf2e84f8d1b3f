"""Constants of the estimator: the shares of peak rates that engines reach, and fixed software costs.

The constants are not properties of single devices or models. Section 6 of docs/estimate.md explains how they
were fitted, and their accuracy on devices and models that were not used for the fit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

VERSION = "2026-11"
"""Version of the constants, which estimates state."""

_SHARE_OF_GENERATION = MappingProxyType(
    {"ampere": 1.05, "ada": 0.8, "ada-geforce": 1.2, "blackwell": 0.8, "blackwell-pro": 1.05}
)


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Constants of the estimator. Shares are relative to the data sheet and at most 1."""

    step_ms: float = 0.30
    """Time of scheduling, sampling and copying per iteration [ms]."""
    layer_ms: float = 0.055
    """Time of the kernel launches of one layer from a captured graph [ms]."""
    eager_layer_ms: float = 0.30
    """Time of the kernel launches of one layer from the host [ms]: engines of 2023 and early 2024, or
    `--enforce-eager`.
    """
    sequence_ms: float = 0.006
    """Time of host work per request in the batch [ms]."""
    weight_bandwidth: float = 0.85
    """Share of the memory bandwidth reached when dense weights are read."""
    cache_bandwidth: float = 0.85
    """Share of the memory bandwidth reached when the KV cache is read."""
    expert_bandwidth: float = 0.70
    """Share of the memory bandwidth reached when routed experts, many small matrices, are read."""
    bf16: float = 0.75
    """Share of the dense 16-bit rate reached by large multiplications."""
    fp8: float = 0.52
    """Share of the dense fp8 rate reached, including scaling and conversion of activations."""
    fp4: float = 0.55
    """Share of the dense fp4 rate reached."""
    experts: float = 0.70
    """Factor on the arithmetic shares for multiplications with expert weights."""
    attention: float = 0.50
    """Share of the 16-bit rate reached by prompt attention and latent attention."""
    all_reduce_ms: float = 0.012
    """Latency of one all-reduce within a node [ms]."""
    all_reduce_pcie_ms: float = 0.027
    """Latency of one all-reduce over PCIe [ms]."""
    link: float = 0.36
    """Share of the link's rate reached by an all-reduce (as bus bandwidth)."""
    link_pcie: float = 0.27
    """Share of the link's rate reached over PCIe by two devices; it falls with the square root of their
    number.
    """
    generations: Mapping[str, float] = field(default_factory=lambda: _SHARE_OF_GENERATION)
    """Factor on the arithmetic shares by generation of devices; Hopper is 1."""

    def shares(self, generation: str) -> dict[str, float]:
        """Return the share of the dense rate that a generation of devices reaches, by format; at most 1."""
        factor = self.generations.get(generation, 1.0)
        rates = {"bf16": self.bf16, "fp8": self.fp8, "fp4": self.fp4}
        return {name: min(share * factor, 1.0) for name, share in rates.items()}
