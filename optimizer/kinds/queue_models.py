"""Looks up queue models by their names in documents, and describes incompatible settings."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from optimizer.documents import Document
from optimizer.kinds.laws import laws_given
from optimizer.kinds.table import QUEUE_MODELS_OF, kind_of_law
from optimizer.queueing.performance import QueueModel
from optimizer.queueing.reference import ReplicaQueues
from optimizer.timing.law import Law

QUEUE_MODELS: dict[str, type[QueueModel]] = {
    model.name: model for models in QUEUE_MODELS_OF.values() for model in models
}
"""All queue models, by their names in documents."""

REFERENCE = ReplicaQueues.name
"""Name of llm-inferno's queue model, used for the linear latency model and on llm-inferno's HTTP routes."""


def default_model(laws: Sequence[type[Law]]) -> str:
    """Return the name of the default queue model for a document's latency models; the first one decides."""
    return QUEUE_MODELS_OF[laws[0]][0].name if laws else REFERENCE


def without_default(schema: dict[str, Any]) -> None:
    """Remove the default of the queue model from a JSON schema, because it depends on the latency model."""
    del schema["default"]


def _known(name: str) -> str:
    if name not in QUEUE_MODELS:
        # Only these latency models have several queue models to choose from.
        choices = {model.name for models in QUEUE_MODELS_OF.values() if len(models) > 1 for model in models}
        named = [other for other in QUEUE_MODELS if other in choices]
        known = " or ".join(map(repr, named))
        raise PydanticCustomError(
            "queue_model", "must be {known}, not {name}", {"known": known, "name": json.dumps(name)}
        )
    return name


QueueModelName = Annotated[str, AfterValidator(_known), WithJsonSchema({"enum": list(QUEUE_MODELS)})]
"""Name of a queue model in a document."""


def way_to(
    can: Callable[[type[QueueModel]], bool], laws: Sequence[type[Law]], document: type[Document]
) -> str:
    """Describe the change of a document after which its queue model satisfies a condition, for messages.

    Args:
        can: condition on a type of queue model.
        laws: types of the document's latency models.

    Returns:
        Advice to select a queue model that supports the latency models, or else another latency model of the
        same kind; empty if there is neither.
    """
    able = [name for name in QUEUE_MODELS if can(QUEUE_MODELS[name]) and not _unsupported(name, laws)]
    if able:
        return f"set queueModel to {' or '.join(map(repr, able))}"
    others = [
        (law.keys(document), model.name)
        for law, models in kind_of_law(laws[0]).queue_models.items()
        for model in models[:1]
        if can(model)
    ]
    own = " and ".join(dict.fromkeys(law.keys(document) for law in laws))
    own += " and batching" if any(law.is_static for law in laws) else ""
    ways = [f"{keys} (queueModel {name!r}) instead of {own}" for keys, name in dict.fromkeys(others)]
    return f"give {' or '.join(ways)}" if ways else ""


def _unsupported(name: str, laws: Sequence[type[Law]]) -> list[type[Law]]:
    return [law for law in laws if QUEUE_MODELS[name] not in QUEUE_MODELS_OF[law]]


def law_problem(name: str, law: type[Law], given: str = "") -> str | None:
    """Return a message if a queue model does not support a latency model, else None.

    Args:
        name: the queue model.
        law: type of the latency model.
        given: text after the name of the latency model, such as the unsupported terms.
    """
    of_law = QUEUE_MODELS_OF[law]
    if QUEUE_MODELS[name] in of_law:
        return None
    others = " or ".join(repr(other) for other in QUEUE_MODELS if QUEUE_MODELS[other] in of_law)
    return (
        f"the queue model {name!r} does not support the {law.name} latency model{given}; set queueModel to "
        f"{others}"
    )


def variability_problem(
    name: str, coefficients: Mapping[str, float], document: Document, owner: str = ""
) -> str | None:
    """Return a message if a queue model does not support the given coefficients of variation, else None.

    Args:
        name: the queue model.
        coefficients: coefficients of variation, by document key.
        document: the document with the latency model.
        owner: text after the name of the queue model that states where it is set.
    """
    own = QUEUE_MODELS[name].own_variability
    varied = [f"{wire}: {value:g}" for wire, value in coefficients.items() if value != 1 and wire not in own]
    if not varied or QUEUE_MODELS[name].takes_variability:
        return None
    way = way_to(lambda model: model.takes_variability, laws_given(document), type(document))
    advice = f", or {way}{' there' if owner else ''}" if way else ""
    return f"{varied[0]} is not 1, which the queue model {name!r}{owner} assumes; remove it{advice}"


def shapes_problem(name: str, document: Document, owner: str = "") -> str | None:
    """Return a message if a queue model does not support several request shapes, else None.

    Args:
        name: the queue model.
        document: the document with the latency model.
        owner: text after the name of the queue model that states where it is set.
    """
    if QUEUE_MODELS[name].takes_shapes:
        return None
    way = way_to(lambda model: model.takes_shapes, laws_given(document), type(document))
    advice = f", or {way}{' there' if owner else ''}" if way else ""
    return (
        f"the queue model {name!r}{owner} computes with one mean request, without shapes or prefixes; give "
        f"mean lengths{advice}"
    )
