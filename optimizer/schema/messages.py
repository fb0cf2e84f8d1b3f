"""One-line messages for validation errors, with the path, the value and the limit."""

import contextlib
import difflib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from optimizer.documents import WrittenNumber
from optimizer.errors import SpecError
from optimizer.quantities import counted, precise

MAX_SHOWN = 60
"""Maximum length of a value or name that is shown in full [characters]."""
NAMES_SHOWN = 10
"""Maximum number of names in a list of choices."""
MAX_WRITTEN_OUT = 1e9
"""Integer limits above this are written with an exponent."""

SIMILAR = 0.6
"""Minimum similarity of a name that is suggested for an unknown one, from 0 to 1."""

_Model = TypeVar("_Model", bound=BaseModel)


def validated(
    model: type[_Model], raw: object, prefix: str = "", context: Mapping[str, object] | None = None
) -> _Model:
    """Validate plain values as a document.

    Args:
        model: the document type.
        raw: the plain values.
        prefix: prefix of messages.
        context: validation context, such as `documents.NUMBERS_ONLY`.

    Raises:
        SpecError: one line with the path and value of the first error, and the number of others.
    """
    try:
        return model.model_validate(raw, context=context)
    except ValidationError as error:
        raise SpecError(prefix + _one_line(error, model)) from None
    except RecursionError:
        raise SpecError(f"{prefix}the document is nested too deeply") from None


def _one_line(error: ValidationError, model: type[BaseModel]) -> str:
    problems = _misspelt_first(error.errors(include_url=False))
    first = problems[0]
    path = path_text(first["loc"])
    text = problem_text(first, model)
    return (f"{path}: {text}" if path else text) + others(len(problems) - 1)


def others(count: int) -> str:
    """Return the number of further errors, as it follows a message."""
    return f" (and {counted(count, 'more error')})" if count else ""


def _misspelt_first(problems: list[Any]) -> list[Any]:
    """Sort problems so that a misspelt key is first, and drop the missing key that it probably meant."""
    first = problems[0]
    if first["type"] != "missing":
        return problems
    for other in problems[1:]:
        beside = other["type"] == "extra_forbidden" and other["loc"][:-1] == first["loc"][:-1]
        if beside and did_you_mean(str(other["loc"][-1]), [str(first["loc"][-1])]):
            return [other, *(each for each in problems[1:] if each is not other)]
    return problems


def path_text(location: Iterable[int | str]) -> str:
    """Return a location as a path: ``servers[3].currentAlloc.load``."""
    path = ""
    for step in location:
        path += (
            f"[{step}]" if isinstance(step, int) else f".{_short(str(step))}" if path else _short(str(step))
        )
    return path


def _short(text: str) -> str:
    """Truncate text to `MAX_SHOWN` characters."""
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


UNKNOWN_KEY = "unknown key; "
"""Start of the message about an unknown key."""
_NOT_A_DOCUMENT = ("model_type", "model_attributes_type")
_TEXTS = {
    "missing": "missing; this key is required",
    "string_too_short": "must not be empty",
    "finite_number": "must be a finite number, not {value}",
    "greater_than_equal": "must be at least {ge}, not {value}",
    "greater_than": "must be more than {gt}, not {value}",
    "less_than_equal": "must be at most {le}, not {value}",
    "less_than": "must be less than {lt}, not {value}",
    **dict.fromkeys(("literal_error", "enum"), "must be {expected}, not {value}"),
    "string_too_long": "must have at most {max_length} characters, not {value}",
    "string_pattern_mismatch": "must match the regular expression {pattern}, not {value}",
    "too_short": "the number of items must be at least {min_length}, not {actual_length}",
    "too_long": "the number of items must be at most {max_length}, not {actual_length}",
    "path_type": "must be the path of a file, not {value}",
    "union_tag_invalid": "{discriminator} must be {expected_tags}, not '{tag}'",
    "union_tag_not_found": "{discriminator} is missing; this key is required",
    "int_parsing_size": "must have fewer digits, not {value}",
    "string_type": "must be text (in YAML put it in quotes), not {value}",
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number, not {value}"),
    **dict.fromkeys(("int_type", "int_from_float", "int_parsing"), "must be an integer, not {value}"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false, not {value}"),
    "tuple_type": "must be a list, not {value}",
    **dict.fromkeys(("dict_type", *_NOT_A_DOCUMENT), "must be an object with keys, not {value}"),
}


def problem_text(problem: Mapping[str, Any], model: type[BaseModel] | None = None) -> str:
    """Return inferplan's message for a pydantic error, without its path.

    Args:
        problem: one of the errors of a `ValidationError`.
        model: the type of the document, to suggest one of its keys.
    """
    if problem["type"] == "extra_forbidden":
        return _unknown_key(problem, model)
    text = _TEXTS.get(problem["type"])
    if text is None:
        return str(problem["msg"])
    given = problem["input"]
    scale = given.scale if isinstance(given, WrittenNumber) else None
    unit = (1.0, "") if scale is None else scale.unit_of(given.text)
    limits = {name: _limit(value, unit) for name, value in problem.get("ctx", {}).items()}
    return text.format(value=_shown(given), **limits) + _hint(problem, limits, model)


def _unknown_key(problem: Mapping[str, Any], model: type[BaseModel] | None) -> str:
    owner = None if model is None else _document_at(model, problem["loc"][:-1])
    key = str(problem["loc"][-1])
    refused: Mapping[str, str] = getattr(owner, "refused_keys", {})
    if key in refused:
        return f"{UNKNOWN_KEY}{refused[key]}"
    within = None if owner is None else _path_within(owner, key)
    if within is not None:
        return f"{UNKNOWN_KEY}it belongs in {within}"
    sections = [] if model is None or owner is model else _lists_with(model, key)
    if sections:
        return f"{UNKNOWN_KEY}it belongs to {' or '.join(sections)}"
    return unknown_key(key, [] if owner is None else _keys_of(owner))


def _lists_with(model: type[BaseModel], key: str) -> list[str]:
    """Return the names of the lists of documents in a document type whose items have a key."""
    lists = ((field.alias or name, field.annotation) for name, field in model.model_fields.items())
    items = ((name, _document_in(annotation)) for name, annotation in lists if _is_list(annotation))
    return [name for name, item in items if item is not None and key in _keys_of(item)]


def _hint(problem: Mapping[str, Any], limits: Mapping[str, str], model: type[BaseModel] | None) -> str:
    """Return a hint about a wrong value: its probable meaning or its requirements; empty without a hint.

    Args:
        problem: one of the errors of a `ValidationError`.
        limits: limits of the value, from the error.
        model: type of the document.
    """
    error, given = problem["type"], problem["input"]
    if error == "literal_error" and isinstance(given, str):
        return did_you_mean(given, re.findall(r"'([^']*)'", limits["expected"]))
    if error in _NOT_A_DOCUMENT and model is not None:
        return _keys_needed(model, problem["loc"])
    if error in {"less_than_equal", "less_than"} and _may_be_percent(given, problem["ctx"]):
        return f"; did you mean {precise(given / 100)}?"
    return ""


def _keys_needed(model: type[BaseModel], location: tuple[int | str, ...]) -> str:
    """Return a hint with the keys of the document at a location, where the value is not an object."""
    wanted = _document_at(model, location)
    keys = [] if wanted is None else _keys_of(wanted)
    return f"; its keys are {', '.join(keys)}" if 0 < len(keys) <= NAMES_SHOWN else ""


def _may_be_percent(given: object, limits: Mapping[str, object]) -> bool:
    """Return whether a number that is too large for a fraction can be meant in percent."""
    is_plain = isinstance(given, int | float) and not isinstance(given, WrittenNumber)
    return is_plain and 1 in limits.values() and 2 <= float(str(given)) <= 100


def _path_within(owner: type[BaseModel], key: str) -> str | None:
    """Return the path of the part of a document type that has a key; parts inside lists are not searched."""
    parts = {
        field.alias or name: part
        for name, field in owner.model_fields.items()
        if not _is_list(field.annotation) and (part := _document_in(field.annotation)) is not None
    }
    for name, part in parts.items():
        if key in _keys_of(part):
            return name
    deeper = ((name, _path_within(part, key)) for name, part in parts.items())
    return next((f"{name}.{path}" for name, path in deeper if path is not None), None)


def _is_list(annotation: Any) -> bool:
    """Return whether an annotation, or a member of a union, is a list of documents: ``tuple[Load, ...]``."""
    return get_origin(annotation) in {tuple, list, dict} or any(map(_is_list, get_args(annotation)))


def unknown_key(key: str, known: Collection[str]) -> str:
    """Return the message about an unknown key.

    It names the most similar known key, or all if they are few.
    """
    hint = did_you_mean(key, known).removeprefix("; ")
    way = f"use one of {', '.join(known)}" if 0 < len(known) <= NAMES_SHOWN else "correct its spelling"
    return UNKNOWN_KEY + (hint or f"remove it or {way}")


def did_you_mean(given: str, known: Collection[str], similarity: float = SIMILAR, before: str = "") -> str:
    """Return ``; did you mean 'x'?`` with the most similar known name, or an empty string if none is similar.

    Args:
        given: the unknown name.
        known: the known names.
        similarity: least similarity of a name that is suggested, up to 1.
        before: text before the suggested name.
    """
    spelling = {name.lower(): name for name in known}
    near = difflib.get_close_matches(given[:MAX_SHOWN].lower(), spelling, 1, similarity)
    return f"; did you mean {before + spelling[near[0]]!r}?" if near else ""


def _keys_of(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _document_at(model: type[BaseModel], location: Iterable[int | str]) -> type[BaseModel] | None:
    """Return the document type at a location inside another document type; None if unknown."""
    for step in location:
        if isinstance(step, int):
            continue  # the type of a list's items is that of the list
        fields = (field for name, field in model.model_fields.items() if step in {field.alias, name})
        inner = next((_document_in(field.annotation) for field in fields), None)
        if inner is None:
            return None
        model = inner
    return model


def _document_in(annotation: Any) -> type[BaseModel] | None:
    """Return the only document type in an annotation: ``Load | None``, ``tuple[Load, ...]``; else None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inners = {inner for part in get_args(annotation) if (inner := _document_in(part)) is not None}
    return inners.pop() if len(inners) == 1 else None


def _limit(value: object, unit: tuple[float, str] = (1.0, "")) -> str:
    """Format a limit for messages: 1,000,000 and 1e+15, not 1000000.0.

    Args:
        value: the limit.
        unit: factor that converts the limit to the displayed unit, and the unit's name.
    """
    factor, name = unit
    if name and isinstance(value, int | float) and value:
        return f"{_limit(value / factor)}{name}"
    if isinstance(value, int | float) and float(value).is_integer() and abs(value) <= MAX_WRITTEN_OUT:
        return f"{value:,.0f}"
    return precise(value) if isinstance(value, float) else str(value)


def json_type(value: object) -> str:
    """Return the JSON type of a value as a word for messages."""
    if isinstance(value, list | tuple):
        return "a list"
    return "an object" if isinstance(value, Mapping) else _shown(value)


def _shown(value: object) -> str:
    if isinstance(value, WrittenNumber):
        return _short(value.text)
    if isinstance(value, list | tuple | Mapping):
        return json_type(value)
    if isinstance(value, int) and abs(value) > 1e15:
        with contextlib.suppress(OverflowError):
            return precise(float(value))
    text = json.dumps(value) if value is None or isinstance(value, str | int | float | bool) else repr(value)
    return _short(text)


def known_name(name: str | None, names: Collection[str], what: str) -> str:
    """Return a name if it is known; if no name is given, return the only known one.

    Args:
        name: the name; None if not given.
        names: the known names.
        what: noun for messages.

    Raises:
        SpecError: the name is unknown, or none is given and there are several.
    """
    if name in names:
        return str(name)
    if name is None and len(names) == 1:
        return next(iter(names))
    near = "" if name is None else did_you_mean(name, names)
    if near:
        raise SpecError(f"{what}: {name!r} does not exist{near}")
    shown = ", ".join(list(names)[:NAMES_SHOWN])
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    given = "not given" if name is None else f"{name!r} does not exist"
    if not names:
        raise SpecError(f"{what}: {given}, and there is no other")
    raise SpecError(f"{what}: {given}; name one of {shown}{more}")
