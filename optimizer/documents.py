"""Base class of all documents (immutable pydantic models with strict types), and the types of their numbers.

JSON keys are those of the reference, llm-inferno (docs/glossary.md), and are matched in any case. Python
names end in the unit (``arrival_rate_rpm``). Unknown keys, wrong types, NaN and infinity are errors that name
their path. Numbers can be written with a unit, and are converted to the document's unit when read.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, get_args

from annotated_types import GroupedMetadata
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from optimizer.attribute_docs import attribute_docs
from optimizer.money import PRICE_PATTERN, Price, read_price
from optimizer.units import (
    GIGABYTES,
    GIGABYTES_PER_SECOND,
    MAX_CHARACTERS,
    MILLISECONDS,
    MILLISECONDS_PER_REQUEST,
    MILLISECONDS_PER_TOKEN,
    PERCENTILE,
    REQUESTS_PER_MINUTE,
    REQUESTS_PER_SECOND,
    SECONDS,
    SHARE,
    TOKENS,
    TOKENS_PER_SECOND,
    WATTS,
    Scale,
    UnitError,
    is_number,
)

MAX_BATCH_LIMIT = 1_000_000
"""Largest supported batch limit [requests]; queue computations use tables with one entry per batch size."""
MAX_COUNT = 1_000_000_000
"""Largest count of replicas, cards or accelerators in any document."""
MAX_TOKENS = 100_000_000
MAX_QUANTITY = 1e15
"""Largest rate, time, cost or memory in a document, in its unit: beyond any real one, but sums stay exact."""
MIN_RATE = 1e-12
"""Smallest arrival rate that counts as traffic, in requests per minute or per second."""


def _whole(value: object) -> object:
    """Convert a float with an integer value, such as 1024.0; the strict type check rejects other floats."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


FOLDER = "folder"
"""Key in the validation context for the document's folder; file names in the document are relative to it."""
NUMBERS_ONLY = {"units": False}
"""Validation context that disallows units in numbers, as in the JSON of the reference (llm-inferno)."""
WRITTEN_BY_HAND = {"written": True}
"""Validation context of documents that people write: numbers without a unit become `UnitlessNumber`."""


def _with_unit(text: str, info: ValidationInfo, read: Callable[[str], float]) -> object:
    """Convert text that contains a digit with `read`; return other text unchanged for the type check."""
    if info.context == NUMBERS_ONLY:
        return text
    try:
        return read(text)
    except UnitError as error:
        if not any(sign.isdigit() for sign in text) or is_number(text):
            return text
        raise PydanticCustomError("unit", "{problem}", {"problem": str(error)}) from None


class WrittenNumber(float):
    """A number that remembers its text, so that messages about limits can quote it."""

    text: str
    scale: Scale | None
    """Units that the number could have been written with; None for a price."""

    def __new__(cls, number: float, text: str, scale: Scale | None) -> Self:
        """Create a number from its value, its text and its possible units."""
        made = super().__new__(cls, number)
        made.text, made.scale = text, scale
        return made


class UnitlessNumber(float):
    """A number that a document states without a unit, so that warnings can ask for the unit."""

    __slots__ = ()


def _marked(value: object, info: ValidationInfo) -> object:
    """Convert a plain number in a document that a person wrote to a `UnitlessNumber`."""
    is_plain = type(value) in {int, float} and "written" in (info.context or {})
    return UnitlessNumber(value) if is_plain else value  # type: ignore[arg-type]  # a number


def _number_or_text(number: Mapping[str, object], *texts: Mapping[str, object]) -> WithJsonSchema:
    """Return the JSON schema of a number that can also be given as one of several forms of text."""
    return WithJsonSchema({"anyOf": [number, *({"type": "string", **text} for text in texts)]})


@dataclass(frozen=True, eq=False)  # compared by identity, because scales contain dicts
class In(GroupedMetadata):
    """Annotation of a number with an optional unit of `scale`; limits are in the scale's standard unit."""

    scale: Scale
    ge: float | None = 0
    gt: float | None = None
    le: float = MAX_QUANTITY
    lt: float | None = None

    def __iter__(self) -> Iterator[object]:
        least = {"minimum": self.ge} if self.gt is None else {"exclusiveMinimum": self.gt}
        most = {"maximum": self.le} if self.lt is None else {"exclusiveMaximum": self.lt}
        yield Field(ge=self.ge) if self.gt is None else Field(gt=self.gt)
        yield Field(le=self.le) if self.lt is None else Field(lt=self.lt)
        yield WrapValidator(self._read)
        yield _number_or_text({"type": "number", **least, **most}, {"pattern": self.scale.pattern})

    def _read(self, value: object, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> object:
        if not isinstance(value, str):
            number = float(handler(value))
            return UnitlessNumber(number) if isinstance(_marked(value, info), UnitlessNumber) else number
        read = _with_unit(value, info, self.scale.number)
        if not isinstance(read, float):
            return handler(read)
        return float(handler(WrittenNumber(read, value.strip(), self.scale)))


def _read_price(value: object, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> object:
    """Validate a price [cents/h], and keep its currency if it was written with one."""
    read = _with_unit(value, info, read_price) if isinstance(value, str) else _marked(value, info)
    number = handler(WrittenNumber(read, str(value).strip(), None) if isinstance(read, Price) else read)
    if isinstance(read, Price):
        return Price(float(number), read.currency)
    return UnitlessNumber(number) if isinstance(read, UnitlessNumber) else number


def _traffic(rate_rpm: float) -> float:
    """Return the rate, or 0 if it is below `MIN_RATE`, such as the remainder of a decaying average."""
    return rate_rpm if rate_rpm >= MIN_RATE else 0.0


class UnlimitedCards(int):
    """Number of cards of a type without a limit: the largest count, so that sums need no special case.

    If further cards have a different price, only the first `owned` cards cost the price of the accelerators.
    """

    owned: int | None
    """Number of cards at the price of the accelerators; None if all have this price."""
    more_cents_per_h: float
    """Price of each further card [cents/h]."""

    def __new__(cls, owned: int | None = None, more_cents_per_h: float = 0.0) -> Self:
        """Create a count with the value `MAX_COUNT`."""
        result = super().__new__(cls, MAX_COUNT)
        result.owned, result.more_cents_per_h = owned, more_cents_per_h
        return result

    def __eq__(self, other: object) -> bool:
        """Return whether the other count is also unlimited, with the same prices."""
        return isinstance(other, UnlimitedCards) and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        """Hash the prices, on which equality depends."""
        return hash(self.__reduce__())

    def __reduce__(self) -> tuple[type["UnlimitedCards"], tuple[int | None, float]]:
        """Return the class and its arguments, for copies and pickles."""
        return UnlimitedCards, (self.owned, self.more_cents_per_h)


UNLIMITED = "unlimited"
"""Text of an unlimited number of cards in documents."""


def _read_cards(value: object, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> int:
    """Validate a number of cards, or ``unlimited`` in any case; llm-inferno's documents have numbers only."""
    if isinstance(value, UnlimitedCards):
        return value
    if isinstance(value, str) and value.lower() == UNLIMITED and info.context != NUMBERS_ONLY:
        return UnlimitedCards()
    if isinstance(value, str) and info.context != NUMBERS_ONLY:
        problem = {"value": json.dumps(value[:MAX_CHARACTERS])}
        raise PydanticCustomError("cards", "must be an integer or 'unlimited', not {value}", problem)
    cards: int = handler(value)
    return cards


def _written_cards(cards: int) -> int | str:
    return UNLIMITED if isinstance(cards, UnlimitedCards) else cards


def _any_loss(value: object) -> object:
    """Read ``none`` as the limit 1, which is never exceeded."""
    is_none = isinstance(value, str) and value.lower() == "none"
    return WrittenNumber(ANY_LOSS, "none", SHARE) if is_none else value


def _url(text: str) -> str:
    if not re.fullmatch(r"https?://[^/\s]+\S*", text):
        problem = "must begin with http:// or https:// and name a host, not {url}"
        raise PydanticCustomError("url", problem, {"url": json.dumps(text[:MAX_CHARACTERS])})
    return text


Url = Annotated[str, AfterValidator(_url)]
"""Address of a service."""
Name = Annotated[str, Field(min_length=1, max_length=253)]
EstimateEnd = Literal["upper", "middle", "lower"]
"""End of the intervals of an estimate: `upper` has long times and little memory, `lower` the opposite."""
Quantity = Annotated[float, Field(ge=0, le=MAX_QUANTITY)]
SignedQuantity = Annotated[float, Field(ge=-MAX_QUANTITY, le=MAX_QUANTITY)]
Milliseconds = Annotated[float, In(MILLISECONDS)]
MillisecondsPerToken = Annotated[float, In(MILLISECONDS_PER_TOKEN)]
MillisecondsPerRequest = Annotated[float, In(MILLISECONDS_PER_REQUEST)]
Seconds = Annotated[float, In(SECONDS, gt=0, le=1e6)]
RequestsPerMinute = Annotated[float, In(REQUESTS_PER_MINUTE), AfterValidator(_traffic)]
RequestsPerSecond = Annotated[float, In(REQUESTS_PER_SECOND, gt=0)]
TokensPerSecond = Annotated[float, In(TOKENS_PER_SECOND)]
Gigabytes = Annotated[float, In(GIGABYTES)]
GigabytesPerSecond = Annotated[float, In(GIGABYTES_PER_SECOND)]
Watts = Annotated[float, In(WATTS)]
Share = Annotated[float, In(SHARE, le=1)]
Cost = Annotated[
    float,
    Field(ge=0, le=MAX_QUANTITY),
    WrapValidator(_read_price),
    PlainSerializer(lambda cost: str(cost) if isinstance(cost, Price) else float(cost), when_used="json"),
    _number_or_text({"type": "number", "minimum": 0, "maximum": MAX_QUANTITY}, {"pattern": PRICE_PATTERN}),
]
"""A cost [cents/h]; a `Price` if it was written with a currency."""
PRICE = get_args(Cost)[2]
"""Annotation metadata that marks a field as a cost."""
Percentile = Annotated[float, In(PERCENTILE, gt=0, lt=100)]
Tokens = Annotated[float, In(TOKENS, le=MAX_TOKENS)]
AnswerTokens = Annotated[float, In(TOKENS, ge=1, le=MAX_TOKENS)]
Count = Annotated[int, Field(ge=0, le=MAX_COUNT), BeforeValidator(_whole)]
CardCount = Annotated[
    int,
    Field(ge=0, le=MAX_COUNT),
    BeforeValidator(_whole),
    WrapValidator(_read_cards),
    PlainSerializer(_written_cards, when_used="json"),
    _number_or_text({"type": "integer", "minimum": 0, "maximum": MAX_COUNT}, {"enum": [UNLIMITED]}),
]
"""Number of cards; `UnlimitedCards` if it was written as ``unlimited``."""
PositiveCount = Annotated[int, Field(ge=1, le=MAX_COUNT), BeforeValidator(_whole)]
SliceCount = Annotated[int, Field(ge=1, le=10_000), BeforeValidator(_whole)]
BatchLimit = Annotated[int, Field(ge=1, le=MAX_BATCH_LIMIT), BeforeValidator(_whole)]
BatchSize = Annotated[int, Field(ge=0, le=MAX_BATCH_LIMIT), BeforeValidator(_whole)]
Priority = Annotated[int, Field(ge=1, le=100), BeforeValidator(_whole)]
MaxLoss = Annotated[
    float,
    In(SHARE, gt=0, le=1),
    BeforeValidator(_any_loss),
    _number_or_text(
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        {"enum": ["none"]},
        {"pattern": "^[0-9]?[1-9](\\.[0-9]{1,6})?%$"},
    ),
]
"""Maximum rejection rate; 1, or ``none``, for no limit."""
DEFAULT_MAX_LOSS = 0.001
ANY_LOSS = 1.0
Coefficient = Annotated[float, Field(ge=0, le=100)]


def is_none(value: object) -> bool:
    """Return whether a value is None; such fields are omitted from JSON."""
    return value is None


class Document(BaseModel):
    """Base of every document: frozen, strict, no unknown keys, keys in any case."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        populate_by_name=True,
    )

    refused_keys: ClassVar[Mapping[str, str]] = {}
    """Keys that do not exist although users expect them, with what to do instead."""

    def to_json(self) -> str:
        """Return the document as JSON text; equal documents have equal text."""
        return self.model_dump_json(by_alias=True, indent=2)

    @classmethod
    def taken_from(cls, source: object, /, **more: Any) -> Self:
        """Create a document from the equally named attributes of `source`, and from the keyword arguments."""
        names = [name for name in cls.model_fields if name not in more and hasattr(source, name)]
        return cls(**{name: getattr(source, name) for name in names}, **more)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the JSON schema with the docstrings of the fields as descriptions."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        docs = attribute_docs(cls)
        for name, field in cls.model_fields.items():
            key = field.alias or name
            if name in docs and key in properties and field.description is None:
                properties[key]["description"] = docs[name]
        return schema

    @model_validator(mode="before")
    @classmethod
    def _match_keys_in_any_case(cls, data: Any) -> Any:
        """Convert keys of any case to the JSON keys, and drop null values: null means absent."""
        if not isinstance(data, dict):
            return data
        known = _wire_names(cls)
        if data.keys() <= known.exact:
            nulls = None in data.values()
            return {key: value for key, value in data.items() if value is not None} if nulls else data
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
    """JSON keys of a document's fields."""

    exact: frozenset[str]
    any_case: dict[str, str]
    """JSON key by each accepted spelling: exact, lower case, and the Python name."""


@cache
def _wire_names(model: type[BaseModel]) -> _WireNames:
    names: dict[str, str] = {}
    for name, field in model.model_fields.items():
        wire = field.alias or name
        names |= {wire: wire, wire.lower(): wire}
    for name, field in model.model_fields.items():
        names.setdefault(name, field.alias or name)
    return _WireNames(frozenset(names.values()), names)


OUTPUT_NAMES = {
    "before": "from",
    "after": "to",
    "service_class": "class",
    "cost": "costCents",
    "total_cost": "totalCostCents",
    "transition_cost": "transitionCostCents",
    "cost_per_h": "costCentsPerH",
    "cost_per_million": "costCentsPerMillionTokens",
    "ttft": "ttftMs",
    "itl": "itlMs",
    "e2e": "e2eMs",
}
"""JSON keys of outputs that do not follow from the Python name, by that name."""


def output_name(name: str) -> str:
    """Return the JSON key of a field of an output: its Python name, unit included, in camel case."""
    first, *others = name.split("_")
    return OUTPUT_NAMES.get(name) or first + "".join(part.capitalize() for part in others)


class OutputDocument(Document):
    """Base of documents that only inferplan writes, such as plans.

    A key ends in its unit (``costCentsPerH``, ``arrivalRateRpm``); counts and shares have none.
    """

    model_config = ConfigDict(alias_generator=output_name)


def _without_noise(share: float) -> float:
    return share if abs(share) >= SMALLEST_SHARE else 0.0


SMALLEST_SHARE = 1e-9
"""Shares below it are 0 in outputs: one request in a billion is within the errors of every model."""
OutputShare = Annotated[float, AfterValidator(_without_noise)]
"""A share in an output."""
