"""Derives command-line flags from the fields of pydantic models, and builds models from parsed flags."""

import argparse
import operator
from collections.abc import Callable, Collection, Iterable
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel

from optimizer.attribute_docs import attribute_docs
from optimizer.errors import SpecError
from optimizer.jobs.flag import Flag, details_of
from optimizer.jobs.requests import Request, RequestError
from optimizer.quantities import precise
from optimizer.schema.messages import validated
from optimizer.spec.trace_shapes import DEFAULT_SHAPES
from optimizer.units import SHARE, Scale, UnitError, is_number

MAX_PERCENT = 1000.0
"""Largest number without a unit that can be meant in percent if it is too large for a share."""
_Request = TypeVar("_Request", bound=Request)


def add_request(
    parser: argparse._ActionsContainer,
    model: type[BaseModel],
    skipped: Collection[str] = (),
    fields: Collection[str] | None = None,
) -> None:
    """Add a flag for each field of a pydantic model.

    Args:
        parser: parser of the command, or an argument group of it.
        model: the pydantic model; the description of a field becomes the help of its flag.
        skipped: fields that get no flag, in addition to those for HTTP routes only.
        fields: names of the fields to add; None for all.
    """
    for name, field in model.model_fields.items():
        is_wanted = name not in skipped if fields is None else name in fields
        if is_wanted and (details_of(field) or Flag()).only != "route":
            _add_field(parser, model, name)


def given_values(arguments: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """Return the values of those flags among `names` that were given, by name."""
    return {name: value for name in names if (value := getattr(arguments, name)) is not None}


def _add_field(parser: argparse._ActionsContainer, model: type[BaseModel], name: str) -> None:
    field = model.model_fields[name]
    details, text = details_of(field) or Flag(), help_of(model, name)
    type_ = plain(field.annotation)
    names = [*([details.short] if details.short else []), f"--{(details.name or name).replace('_', '-')}"]
    given: dict[str, Any] = {"dest": name, "help": text}
    if details.positional:
        parser.add_argument(name, metavar=details.metavar, help=text)
        return
    if get_origin(type_) is tuple and details.separated:
        item = reader(plain(get_args(type_)[0]), None, field.metadata)
        parser.add_argument(*names, **given, metavar=details.metavar, type=_separated(item))
        return
    if get_origin(type_) is tuple:
        type_, given["action"] = plain(get_args(type_)[0]), "append"
    if details.const is not None:
        type_, given["nargs"], given["const"] = str, "?", details.const
    if type_ is bool:
        group = parser.add_mutually_exclusive_group() if details.off else parser
        if details.off:
            off, _, off_text = details.off.partition(": ")
            group.add_argument(f"--{off}", dest=name, action="store_const", const=False, help=off_text)
        group.add_argument(*names, **given, action="store_const", const=True)
    elif get_origin(type_) is Literal:
        choices = get_args(type_)
        given |= {"metavar": details.metavar, "choices": choices}
        parser.add_argument(*names, type=_spelling(choices), **given)
    else:
        given |= {"metavar": details.metavar or name.upper(), "required": field.is_required()}
        parser.add_argument(*names, type=reader(type_, details.scale, field.metadata), **given)


def help_of(model: type[BaseModel], name: str) -> str:
    """Return the help text of a field's flag: the text of its `Flag`, otherwise the field's docstring."""
    field = model.model_fields[name]
    details = details_of(field) or Flag()
    docstring = field.description or attribute_docs(model).get(name, "")
    text = (details.help or " ".join(docstring.split())).rstrip(".").replace("%", "%%")
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def plain(annotation: Any) -> Any:
    """Strip `Annotated` and `| None` from a type."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) in {Union, UnionType}:
            annotation = next(part for part in get_args(annotation) if part is not type(None))
        else:
            return annotation


def _separated(item: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    """Return a parser of comma-separated values."""

    def read(text: str) -> tuple[Any, ...]:
        try:
            return tuple(item(part) for part in text.split(","))
        except (ValueError, argparse.ArgumentTypeError):
            raise argparse.ArgumentTypeError(f"{text!r}: must be numbers with commas between them") from None

    return read


def _spelling(choices: Iterable[str]) -> Callable[[str], str]:
    """Return a parser that accepts the choices in any case."""
    known = {name.lower(): name for name in choices}
    return lambda text: known.get(text.lower(), text)


def reader(type_: Any, scale: Scale | None, metadata: Iterable[object] = ()) -> Callable[[str], Any]:
    """Return a parser of the values of a flag.

    Args:
        type_: type of the values.
        scale: units that a number can have; None for plain numbers.
        metadata: metadata of a pydantic field, with limits of numbers.
    """
    if type_ not in {int, float}:
        known: Callable[[str], Any] = type_
        return known
    limits = []
    for item in metadata:
        if type(item) in _LIMITS:
            attribute, word, holds = _LIMITS[type(item)]
            limits.append((getattr(item, attribute), word, holds))
    noun = "an integer" if type_ is int else ""

    def words(text: str) -> str:
        factor, unit = (1.0, "") if scale is None else scale.unit_of(text)
        bounds = (f"{word} {precise(limit / factor)}{unit if limit else ''}" for limit, word, _ in limits)
        return ", ".join(filter(None, [noun, " and ".join(bounds)])) or "a number"

    def read(text: str) -> float:
        try:
            value: float = type_(text) if scale is None else scale.read(text)
            if all(holds(value, limit) for limit, _, holds in limits):
                return value
        except ValueError as error:
            if isinstance(error, UnitError):
                raise argparse.ArgumentTypeError(str(error)) from None
        raise argparse.ArgumentTypeError(f"{text!r}: must be {words(text)}{_in_percent(text, scale)}")

    return read


def _in_percent(text: str, scale: Scale | None) -> str:
    """Return a hint to write a number, which is too large for a share, in percent."""
    is_meant = scale is SHARE and is_number(text) and 1 < float(text) <= MAX_PERCENT
    return f"; did you mean {text.strip()}%?" if is_meant else ""


_LIMITS: dict[type, tuple[str, str, Callable[[float, float], bool]]] = {
    Ge: ("ge", "at least", operator.ge),
    Gt: ("gt", "more than", operator.gt),
    Le: ("le", "at most", operator.le),
    Lt: ("lt", "less than", operator.lt),
}
"""Attribute, words and comparison of each kind of limit in the metadata of a field."""


def request_of(model: type[_Request], arguments: argparse.Namespace) -> _Request:
    """Build the request that the given flags describe.

    Raises:
        SpecError: a value is wrong, or flags contradict each other.
    """
    given = {name: getattr(arguments, name, None) for name in model.model_fields}
    try:
        request = validated(model, {name: value for name, value in given.items() if value is not None}, "--")
        request.given()
    except RequestError as error:
        raise in_flags(error, arguments) from None
    return request


def in_flags(error: RequestError, arguments: argparse.Namespace, **names: str) -> SpecError:
    """Convert an error to one that names flags, not fields; `names` has the flags whose names differ."""

    def flag(field: str) -> str:
        if field == "unlimited" and arguments.unlimited is False:
            return "--limited"
        return names.get(field) or "--" + field.replace("_", "-")

    return SpecError(error.said(flag))


def number_of_shapes(arguments: argparse.Namespace) -> int:
    """Return the number of request shapes of each trace that the flags name.

    Raises:
        SpecError: a number is given without a trace.
    """
    if arguments.shapes is None:
        return DEFAULT_SHAPES
    if arguments.from_trace in (None, (), []):
        raise SpecError("--shapes: is the number of shapes of a trace; give --from-trace")
    return int(arguments.shapes)
