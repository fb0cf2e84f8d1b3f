"""Queue models as documents name them, and what is said where one does not go with the rest of a document."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from optimizer.kinds.kind import Kind
from optimizer.kinds.table import KINDS, QUEUE_MODELS_OF
from optimizer.queueing.performance import QueueModel
from optimizer.queueing.reference import ReplicaQueues
from optimizer.timing import Law

QUEUE_MODELS: dict[str, type[QueueModel]] = {
    model.name: model for models in QUEUE_MODELS_OF.values() for model in models
}
"""All queue models by the names that documents give them."""

REFERENCE = ReplicaQueues.name
"""The reference's queue: that of the linear law, and of all that comes on the reference's routes."""


def default_model(laws: Sequence[type[Law]]) -> str:
    """Return the queue model of a document that names none.

    Args:
        laws: the laws of which the document gives any part; the first counts.
    """
    return QUEUE_MODELS_OF[laws[0]][0].name if laws else REFERENCE


def without_default(schema: dict[str, Any]) -> None:
    """Leave the default out of a JSON schema: which one it is depends on the law."""
    del schema["default"]


def _known(name: str) -> str:
    if name not in QUEUE_MODELS:
        # Where a law has one queue model, that goes without saying.
        choices = {model.name for models in QUEUE_MODELS_OF.values() if len(models) > 1 for model in models}
        named = [other for other in QUEUE_MODELS if other in choices]
        known = " or ".join(map(repr, named))
        raise PydanticCustomError(
            "queue_model", "must be {known}, not {name}", {"known": known, "name": json.dumps(name)}
        )
    return name


QueueModelName = Annotated[str, AfterValidator(_known), WithJsonSchema({"enum": list(QUEUE_MODELS)})]
"""The name of a queue model in a document."""


def models_that(can: Callable[[type[QueueModel]], bool], kind: Kind = KINDS[0]) -> str:
    """Return the names of the queue models of a kind that can do something, as messages give them."""
    mine = dict.fromkeys(model for models in kind.queue_models.values() for model in models)
    return " or ".join(repr(model.name) for model in mine if can(model))


def law_problem(name: str, law: type[Law], given: str = "") -> str | None:
    """Return what is wrong where a queue model cannot express a law; none where it can.

    Args:
        name: the queue model.
        law: the law.
        given: what of the law stands in the way.
    """
    mine = QUEUE_MODELS_OF[law]
    if QUEUE_MODELS[name] in mine:
        return None
    others = " or ".join(repr(other) for other in QUEUE_MODELS if QUEUE_MODELS[other] in mine)
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
    others = models_that(lambda model: model.takes_variability)
    return (
        f"{varied[0]} is not 1, which the queue model {name!r}{owner} assumes; remove it, or set queueModel "
        f"to {others}{' there' if owner else ''}"
    )
