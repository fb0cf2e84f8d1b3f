"""Lower bounds on fitted times: the time to read the weights once, and to compute a token at the peak rate.

If a fitted time is below its bound, the measured times are not per token, several replicas count as one, or
the weights are different. Bounds are checked only if the catalogue has the model and the accelerator.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from optimizer.errors import SpecError
from optimizer.profiles.deployment import Deployment
from optimizer.profiles.efficiency import Efficiency
from optimizer.profiles.estimate import find_model, find_slice
from optimizer.profiles.iterations import Iterations
from optimizer.quantities import quantity
from optimizer.timing import PerfParms

TOLERANCE = 0.9
"""Fraction of a bound below which a parameter is reported; allows for errors of data sheets and parameter
counts.
"""
IDEAL = Efficiency(
    weight_bandwidth=1.0, expert_bandwidth=1.0, bf16=1.0, fp8=1.0, fp4=1.0, experts=1.0, link=math.inf,
    link_pcie=math.inf, generations={},
)  # fmt: skip
"""Efficiencies of ideal hardware: the rates of the data sheet, and links that take no time."""


class Bounds(NamedTuple):
    """Minimum times of a model on a replica."""

    replica: str
    weights_gb: float
    """Weights that an iteration of one token must read [GB]."""
    alpha_ms: float
    """Minimum time to read the weights for an iteration of one token [ms], a bound on α (B1, eq. 241)."""
    beta_ms: float
    """Minimum time to compute a token [ms], a bound on β (B2)."""


def bounds_of(model: str, accelerator: str, cards: int, weights: str | None) -> Bounds | None:
    """Return the bounds of a model on the cards of a replica; None if the catalogue lacks a name."""
    try:
        facts, devices = find_slice(accelerator)
        deployment = Deployment(tp=devices * cards, weights=weights)
        ideal = Iterations(find_model(model), facts, deployment, IDEAL)
        alpha_ms = ideal.weights_ms + ideal.experts_ms * ideal.touched(1)
        beta_ms = ideal.token_ms
    except SpecError:
        return None
    size = alpha_ms * deployment.tp * facts.device_bandwidth_gb_per_s / 1000
    return Bounds(f"{cards} {accelerator}" if cards > 1 else f"one {accelerator}", size, alpha_ms, beta_ms)


def tell_bounds(bounds: Bounds, law: PerfParms, errors: PerfParms, accepted: float) -> Iterator[str]:
    """Yield sentences about parameters below their bounds (B1, B2).

    Args:
        bounds: the bounds.
        law: fitted parameters of the latency model.
        errors: standard errors of the parameters; a parameter within two of them of its bound is not
            reported.
        accepted: tokens per decode step with speculative decoding; 1 without it.
    """
    alpha_ms, beta_ms = law.base_ms, law.compute_per_token_ms
    least = bounds.alpha_ms / accepted
    if alpha_ms + 2 * errors.base_ms < TOLERANCE * least:
        yield (
            f"α {quantity(alpha_ms, 3)} ms is below the {quantity(least, 3)} ms that {bounds.replica} needs "
            f"to read {quantity(bounds.weights_gb, 3)} GB of weights: several replicas (--replicas), other "
            "weights, or times that are not per token"
        )
    if beta_ms > 0 and beta_ms + 2 * errors.compute_per_token_ms < TOLERANCE * bounds.beta_ms:
        yield (
            f"β {quantity(beta_ms, 3)} ms is below the {quantity(bounds.beta_ms, 3)} ms that "
            f"{bounds.replica} needs to compute a token: several replicas (--replicas), or a prefix cache"
        )
