"""The table of queue models: a model is a file beside this one and an entry here; documents name it."""

import json
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from optimizer.queueing.continuous.model import ContinuousQueues
from optimizer.queueing.performance import QueueModel
from optimizer.queueing.reference import ReplicaQueues

QUEUE_MODELS: dict[str, type[QueueModel]] = {model.name: model for model in (ReplicaQueues, ContinuousQueues)}
"""All queue models by the names that documents give them."""


def _known(name: str) -> str:
    if name not in QUEUE_MODELS:
        known = " or ".join(map(repr, QUEUE_MODELS))
        raise PydanticCustomError(
            "queue_model", "must be {known}, not {name}", {"known": known, "name": json.dumps(name)}
        )
    return name


QueueModelName = Annotated[str, AfterValidator(_known), WithJsonSchema({"enum": list(QUEUE_MODELS)})]
"""The name of a queue model in a document."""
