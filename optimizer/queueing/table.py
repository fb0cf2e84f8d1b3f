"""The table of queue models: a model is a file beside this one and an entry here; documents name it."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from optimizer.queueing.bulk.model import BulkQueues
from optimizer.queueing.continuous.model import ContinuousQueues
from optimizer.queueing.performance import QueueModel
from optimizer.queueing.reference import ReplicaQueues
from optimizer.queueing.static import StaticQueues
from optimizer.timing import BatchLaw, FullIterationLaw, IterationLaw, Law, MixtureIterationLaw, StaticLaw

QUEUE_MODELS: dict[str, type[QueueModel]] = {
    model.name: model for model in (ReplicaQueues, ContinuousQueues, BulkQueues, StaticQueues)
}
"""All queue models by the names that documents give them."""

REFERENCE = ReplicaQueues.name
"""The reference's queue: that of the linear law, and of all that comes on the reference's routes."""
_DEFAULTS: dict[type[Law], str] = {
    IterationLaw: ContinuousQueues.name,
    MixtureIterationLaw: ContinuousQueues.name,
    FullIterationLaw: ContinuousQueues.name,
    BatchLaw: BulkQueues.name,
    StaticLaw: StaticQueues.name,
}
"""The queue model of a law where a document names none, other than the reference's.

Chosen by the table in docs/fidelity.md.
"""


def default_model(laws: Sequence[type[Law]]) -> str:
    """Return the queue model of a document that names none.

    Args:
        laws: the laws of which the document gives any part; the first counts.
    """
    return _DEFAULTS.get(laws[0], REFERENCE) if laws else REFERENCE


def without_default(schema: dict[str, Any]) -> None:
    """Leave the default out of a JSON schema: which one it is depends on the law."""
    del schema["default"]


def _known(name: str) -> str:
    if name not in QUEUE_MODELS:
        # Those of batch servers and of static batches go without saying, with `batchParms` and `batching`.
        named = [other for other, model in QUEUE_MODELS.items() if model.has_tokens and model.is_named]
        known = " or ".join(map(repr, named))
        raise PydanticCustomError(
            "queue_model", "must be {known}, not {name}", {"known": known, "name": json.dumps(name)}
        )
    return name


QueueModelName = Annotated[str, AfterValidator(_known), WithJsonSchema({"enum": list(QUEUE_MODELS)})]
"""The name of a queue model in a document."""


def models_that(can: Callable[[type[QueueModel]], bool]) -> str:
    """Return the names of the queue models that can do something, as messages give them."""
    return " or ".join(repr(name) for name, model in QUEUE_MODELS.items() if can(model))


def law_problem(name: str, law: type[Law], given: str = "") -> str | None:
    """Return what is wrong where a queue model cannot express a law; none where it can.

    Args:
        name: the queue model.
        law: the law.
        given: what of the law stands in the way.
    """
    if QUEUE_MODELS[name].takes(law):
        return None
    others = models_that(lambda model: model.takes(law)) or "another"
    return (
        f"the queue model {name!r} does not support the {law.name} latency model{given}; set queueModel to "
        f"{others}"
    )


def variability_problem(name: str, coefficients: Mapping[str, float], owner: str = "") -> str | None:
    """Return what is wrong where requests vary otherwise than a queue model assumes; none where nothing is.

    Args:
        name: the queue model.
        coefficients: coefficients of variation, by their names in the document.
        owner: whose queue model it is.
    """
    own = QUEUE_MODELS[name].own_variability
    varied = [f"{wire}: {value:g}" for wire, value in coefficients.items() if value != 1 and wire not in own]
    if not varied or QUEUE_MODELS[name].takes_variability:
        return None
    others = models_that(lambda model: model.takes_variability and model.has_tokens)
    return (
        f"{varied[0]} is not 1, which the queue model {name!r}{owner} assumes; remove it, or set queueModel "
        f"to {others}{' there' if owner else ''}"
    )
