"""Uncertainty of estimates: factors by which values can be lower and higher (docs/estimate.md, section 6)."""

from collections.abc import Mapping
from dataclasses import dataclass

from optimizer.profiles.iterations import Iterations
from optimizer.profiles.memory import Memory

MEASURED = frozenset({"ampere", "ada-geforce", "hopper", "blackwell", "blackwell-pro"})
"""Generations of devices whose measurements were used to fit the constants."""
SPARSELY_MEASURED = frozenset({"cdna3", "tpu5e"})
"""Generations of devices with only a few measurements for comparison."""

FACTORS: Mapping[str, tuple[float, float]] = {
    "dense model": (1.4, 1.4),
    "mixture of experts": (1.45, 1.6),
    "tensor parallelism over PCIe": (1.6, 1.6),
    "few measurements of this generation": (1.5, 1.7),
    "no measurement of this generation": (2.0, 2.0),
    "mixture of experts in its first weeks": (1.45, 3.3),
}
"""Factors by which times can be lower and higher, by reason; if several apply, the widest are used."""
_WIDEST_MEMORY = 2.0


@dataclass(frozen=True, slots=True)
class Estimated:
    """A value with an interval that contains the true value in about four of five cases."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class UncertaintyFactors:
    """Factors by which times can be lower and higher, with their reasons."""

    below: float
    above: float
    reasons: tuple[str, ...]

    def around(self, value: float) -> Estimated:
        """Return a time with its interval."""
        return Estimated(value, value / self.below, value * self.above)


def uncertainty_of_times(iterations: Iterations) -> UncertaintyFactors:
    """Return the uncertainty that applies to all times of a model on an accelerator."""
    accelerator = iterations.accelerator
    reasons = ["mixture of experts" if iterations.model.experts else "dense model"]
    if accelerator.over_pcie and iterations.deployment.tp > 1:
        reasons.append("tensor parallelism over PCIe")
    if accelerator.generation in SPARSELY_MEASURED:
        reasons.append("few measurements of this generation")
    elif accelerator.generation not in MEASURED:
        reasons.append("no measurement of this generation")
    if _is_early(iterations):
        reasons.append("mixture of experts in its first weeks")
    below, above = (max(FACTORS[reason][side] for reason in reasons) for side in (0, 1))
    return UncertaintyFactors(below, above, tuple(reasons))


def first_weeks_note(iterations: Iterations) -> str:
    """Return the condition under which a mixture is slower than its interval; empty if there is none."""
    if not iterations.model.experts or _is_early(iterations):
        return ""
    above = FACTORS["mixture of experts in its first weeks"][1]
    return (
        f"engines of a mixture's first weeks take up to {above:g} times the estimate; state such an engine, "
        "for example --engine vllm:early, to widen the interval"
    )


def _is_early(iterations: Iterations) -> bool:
    """Return whether the stated engine is of the first weeks of a mixture of experts."""
    deployment, model = iterations.deployment, iterations.model
    stated = deployment.engine is not None and bool(model.experts)
    return stated and deployment.serving.is_early(model.released)


def tokens_in_memory(memory: Memory) -> Estimated:
    """Return the KV cache capacity of a replica with its interval [tokens].

    The ends of the interval are within a factor of two.
    """
    low, expected, high = (memory.tokens(free) for free in memory.free_bytes)
    return Estimated(expected, max(low, expected / _WIDEST_MEMORY), min(high, expected * _WIDEST_MEMORY))
