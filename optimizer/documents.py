"""What every document is made of: an immutable pydantic model with strict types, and the numbers in it.

Wire names are those of the reference, llm-inferno (docs/glossary.md), matched in any case; Python names carry
the unit (``arrival_rate_rpm``). Unknown keys, wrong types, NaN and infinity are errors with their path.
"""

from functools import cache
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

MAX_BATCH_LIMIT = 1_000_000
"""Largest batch that is analysed; a queue's table has one entry per batch."""
MAX_COUNT = 1_000_000_000
"""Largest count of replicas, units or accelerators in any document."""
MAX_TOKENS = 100_000_000
MAX_QUANTITY = 1e15
"""Largest rate, time, cost or memory: far beyond any real one, and sums of them stay exact enough."""


def _whole(value: object) -> object:
    """Let 1024.0 pass where an integer is meant; other floats are refused by the strict check."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _any_loss(value: object) -> object:
    """Read ``none`` as a bound that nothing exceeds."""
    return 1.0 if isinstance(value, str) and value.lower() == "none" else value


Name = Annotated[str, Field(min_length=1, max_length=253)]
Quantity = Annotated[float, Field(ge=0, le=MAX_QUANTITY)]
SignedQuantity = Annotated[float, Field(ge=-MAX_QUANTITY, le=MAX_QUANTITY)]
Tokens = Annotated[float, Field(ge=0, le=MAX_TOKENS)]
AnswerTokens = Annotated[float, Field(ge=1, le=MAX_TOKENS)]
Count = Annotated[int, Field(ge=0, le=MAX_COUNT), BeforeValidator(_whole)]
PositiveCount = Annotated[int, Field(ge=1, le=MAX_COUNT), BeforeValidator(_whole)]
SliceCount = Annotated[int, Field(ge=1, le=10_000), BeforeValidator(_whole)]
BatchLimit = Annotated[int, Field(ge=1, le=MAX_BATCH_LIMIT), BeforeValidator(_whole)]
BatchSize = Annotated[int, Field(ge=0, le=MAX_BATCH_LIMIT), BeforeValidator(_whole)]
Priority = Annotated[int, Field(ge=1, le=100), BeforeValidator(_whole)]
MaxLoss = Annotated[
    float,
    Field(gt=0, le=1),
    BeforeValidator(_any_loss),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0, "maximum": 1}, {"const": "none"}]}),
]
"""Largest share of requests that may be lost; 1, or ``none``, for any."""
DEFAULT_MAX_LOSS = 0.001
ANY_LOSS = 1.0
Coefficient = Annotated[float, Field(ge=0, le=100)]


class Document(BaseModel):
    """Base of every document: frozen, strict, no unknown keys, keys in any case."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _match_keys_in_any_case(cls, data: Any) -> Any:
        """Spell the keys as the wire does, and drop those that are null: null means absent."""
        if not isinstance(data, dict):
            return data
        known = _wire_names(cls)
        if data.keys() <= known.exact and None not in data.values():
            return data
        matched: dict[Any, Any] = {}
        for key, value in data.items():
            name = str(key)
            name = known.any_case.get(name) or known.any_case.get(name.lower(), name)
            if name in matched:
                raise PydanticCustomError("duplicate_key", "key {key} occurs twice", {"key": repr(name)})
            if value is not None:
                matched[name] = value
        return matched


class _WireNames(NamedTuple):
    """The wire names of a document's fields."""

    exact: frozenset[str]
    any_case: dict[str, str]
    """By lower-case, exact and Python spelling."""


@cache
def _wire_names(model: type[BaseModel]) -> _WireNames:
    names: dict[str, str] = {}
    for name, field in model.model_fields.items():
        wire = field.alias or name
        names |= {wire: wire, wire.lower(): wire}
    for name, field in model.model_fields.items():
        names.setdefault(name, field.alias or name)
    return _WireNames(frozenset(names.values()), names)
