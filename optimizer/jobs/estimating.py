"""Describe a replica by names."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optimizer.spec.schema import EstimateEnd

if TYPE_CHECKING:
    from optimizer.profiles import Deployment
    from optimizer.profiles.replicas import EstimatedReplica


def estimate_replica(
    model: str | Path,
    accelerator: str,
    deployment: "Deployment",
    given: Mapping[str, Any],
    *,
    tp: int | None = None,
    end: EstimateEnd = "upper",
) -> "EstimatedReplica":
    """Return a replica of a model on an accelerator, whose token times and memory are estimated.

    Args:
        model: a name of the catalogue, or the path of a config.json.
        accelerator: a name of the catalogue, perhaps of several cards: ``4xH100``.
        deployment: how it is run; its parallelism follows from `accelerator` and `tp`.
        given: fields of `Replica` that are known, by their Python names.
        tp: devices of the replica; None: those of the cards.
        end: end of the intervals to count with.

    Raises:
        SpecError: a name is not known, a value is out of range, or the model does not fit.
    """
    from optimizer.profiles import replicas  # reads the catalogue

    return replicas.estimate_replica(model, accelerator, deployment, given, tp=tp, end=end)
