"""Queue models by their names in documents, and messages about incompatible settings."""

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
"""All queue models by name."""

REFERENCE = ReplicaQueues.name
"""The reference's queue, used for the linear law and on the reference's routes."""


def default_model(laws: Sequence[type[Law]]) -> str:
    """Return the default queue model for the laws of a document; the first law decides."""
    return QUEUE_MODELS_OF[laws[0]][0].name if laws else REFERENCE


def without_default(schema: dict[str, Any]) -> None:
    """Remove the default from a JSON schema, because it depends on the law."""
    del schema["default"]


def _known(name: str) -> str:
    if name not in QUEUE_MODELS:
        # Laws with a single queue model leave no choice.
        choices = {model.name for models in QUEUE_MODELS_OF.values() if len(models) > 1 for model in models}
        named = [other for other in QUEUE_MODELS if other in choices]
        known = " or ".join(map(repr, named))
        raise PydanticCustomError(
            "queue_model", "must be {known}, not {name}", {"known": known, "name": json.dumps(name)}
        )
    return name


QueueModelName = Annotated[str, AfterValidator(_known), WithJsonSchema({"enum": list(QUEUE_MODELS)})]
"""Name of a queue model in a document."""


def models_that(can: Callable[[type[QueueModel]], bool], kind: Kind = KINDS[0]) -> str:
    """Return the queue models of a kind that satisfy a condition, quoted for messages."""
    mine = dict.fromkeys(model for models in kind.queue_models.values() for model in models)
    return " or ".join(repr(model.name) for model in mine if can(model))


def law_problem(name: str, law: type[Law], given: str = "") -> str | None:
    """Return a message if a queue model does not support a law, else None.

    Args:
        name: the queue model.
        law: the law.
        given: text after the law's name, such as the terms that are not supported.
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
    """Return a message if a queue model does not support the variability of requests, else None.

    Args:
        name: the queue model.
        coefficients: coefficients of variation, by document key.
        owner: text that names the owner of the queue model.
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
