"""Estimates a replica from the names of a model and an accelerator."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from optimizer.kinds.replicas import Replica
from optimizer.kinds.request_shapes import mixed_lengths
from optimizer.profiles.deployment import Deployment
from optimizer.profiles.ends import at_end
from optimizer.profiles.estimate import ProfileEstimate, estimate_profile, find_slice
from optimizer.schema import EstimateEnd
from optimizer.schema.messages import validated


@dataclass(frozen=True, slots=True)
class EstimatedReplica:
    """A replica whose token times and memory are estimated, not measured."""

    replica: Replica
    estimate: ProfileEstimate
    end: EstimateEnd
    """End of the estimate's intervals that is used."""

    def document(self) -> dict[str, Any]:
        """Return the assumptions of the estimate as plain values."""
        deployment, replica = self.estimate.deployment, self.replica
        return {
            "model": self.estimate.model.name,
            "accelerator": self.estimate.accelerator.name,
            "tp": deployment.tp,
            "weights": self.estimate.iterations.format.name,
            "cache": self.estimate.iterations.cache,
            "inTokens": replica.in_tokens,
            "outTokens": replica.out_tokens,
            "maxBatch": replica.max_batch,
            "kvCapacity": replica.kv_capacity_tokens,
        }


def estimate_replica(
    model: str | Path,
    accelerator: str,
    deployment: Deployment,
    given: Mapping[str, Any],
    *,
    tp: int | None = None,
    end: EstimateEnd = "upper",
) -> EstimatedReplica:
    """Estimate a replica of a model on an accelerator.

    Args:
        model: a name in the catalogue, or the path of a config.json.
        accelerator: a name in the catalogue, with an optional number of cards: ``4xH100``.
        deployment: settings of the deployment; its parallelism follows from `accelerator` and `tp`.
        given: known fields of `Replica`, by Python name; they override the estimate.
        tp: number of devices of the replica; None selects all devices of the cards.
        end: end of the intervals to use.

    Raises:
        SpecError: a name is unknown, a value is out of range, or the model does not fit.
    """
    facts, devices = find_slice(accelerator, tp)
    shapes = given.get("shapes")
    lengths = mixed_lengths(shapes) if shapes else given
    known: dict[str, Any] = {name: lengths[name] for name in ("in_tokens", "out_tokens") if name in lengths}
    known |= {name: given[name] for name in ("max_num_tokens",) if name in given}
    estimate = estimate_profile(model, facts, replace(deployment, tp=devices, **known))
    chosen = at_end(estimate, end, given.get("kv_capacity_tokens"))
    estimated: dict[str, Any] = {
        "iteration": chosen.law,
        "max_batch": chosen.max_batch,
        "kv_capacity_tokens": chosen.kv_capacity_tokens,
    }
    if not shapes:
        names = ("in_tokens", "out_tokens")
        estimated |= {name: getattr(estimate.deployment, name) for name in names}
    return EstimatedReplica(validated(Replica, {**estimated, **given}), estimate, end)
