"""Reads items like llm-inferno: keys in any case, unknown keys ignored, null and zero treated as absent.

A body that inferplan's schema accepts is read by the schema directly. Only rejected bodies are processed key
by key, so leniency costs well-formed requests nothing. Ignored keys are collected for a response header.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, get_args, get_origin

from optimizer.documents import NUMBERS_ONLY, Document
from optimizer.errors import SpecError
from optimizer.kinds.queue_models import REFERENCE
from optimizer.kinds.table import KINDS, kind_of_profile
from optimizer.schema import (
    Accelerator,
    Capacity,
    ModelProfile,
    SaturationPolicy,
    Server,
    ServiceClass,
)
from optimizer.schema.assumptions import check_load
from optimizer.schema.messages import json_type, path_text, validated

_Model = TypeVar("_Model", bound=Document)

ZERO_IS_ABSENT = frozenset(
    {
        "multiplicity",
        "accCount",
        "priority",
        "maxNumReplicas",
        "maxNumTokens",
        "class",
        "type",
        "queueModel",
        "batchSizing",
        "timeLimit",
        "percentile",
    }
)
"""Keys for which 0, Go's value of unset fields, is invalid in inferplan's schema and counts as absent."""
BYTE_ORDER_MARK = "\ufeff"
_PATH = re.compile(r"[\w\[\].-]+: ")
"""Pattern of the field path at the start of a message."""
FLAT_KEYS = frozenset({"model", "slo-itl", "slo-ttft", "slo-ttw", "slo-tps"})
"""Keys, in lower case, of the single target that a service class can state next to its name."""
PRIORITIES = range(1, 101)
"""Valid priorities; other values become the lowest priority, as in llm-inferno."""
POLICIES = frozenset(name.lower() for name in get_args(SaturationPolicy)) | {""}
"""Known saturation policies in lower case; other values mean no policy, as in llm-inferno."""


def json_body(body: bytes) -> object:
    """Parse a request body as JSON; as in llm-inferno, the last of duplicate keys counts.

    Raises:
        SpecError: the body is empty, is not UTF-8 or has a byte-order mark, or is not JSON.
    """
    if not body.strip():
        raise SpecError("the body is empty; a JSON object is expected")
    try:
        text = body.decode()  # json.loads would guess the encoding of bytes
        if text.startswith(BYTE_ORDER_MARK):
            raise SpecError("the body begins with a byte-order mark; send UTF-8 without one")
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise SpecError(f"the body is not JSON: line {error.lineno}: {error.msg.lower()}") from None
    except UnicodeDecodeError as error:
        raise SpecError(f"the body is not UTF-8 text (byte {error.start})") from None
    except RecursionError:
        raise SpecError("the body is not JSON: nested too deeply") from None
    except ValueError:
        raise SpecError("the body is not JSON: a number has too many digits") from None


def _refuse_constant(name: str) -> object:
    raise SpecError(f"the body is not JSON: {name} is not a number in JSON")


def read_object(raw: object) -> Mapping[str, Any]:
    """Return a body as an object; as in llm-inferno, null is an empty object.

    Raises:
        SpecError: the body is not an object.
    """
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise SpecError(f"the body must be an object with keys, not {json_type(raw)}")
    return raw


def read_entity(model: type[_Model], raw: object, path: str, ignored: list[str]) -> _Model:
    """Read one item of the fleet.

    Args:
        model: document type of the item.
        raw: the item as plain values.
        path: path of the item in the body, for messages.
        ignored: list to which the paths of unknown keys are added.

    Raises:
        SpecError: a value is invalid.
    """
    try:
        entity = validated(model, raw, context=NUMBERS_ONLY)
    except SpecError:
        whole = with_flat_target(raw) if model is ServiceClass else raw
        fitted = _fitted(model, whole, path, ignored)
        typeless = model is Accelerator and isinstance(fitted, dict) and "type" not in fitted
        if typeless and isinstance(fitted, dict):
            fitted["type"] = fitted.get("name")
        if model is Capacity and isinstance(fitted, dict):
            fitted.setdefault("count", 0)
        entity = _validated_at(path, model, fitted)
        if typeless:  # it becomes its own type, and is shown without one
            entity.model_fields_set.discard("type")
    return checked(entity, path)


def is_flat(raw: object) -> bool:
    """Return whether a service class states one model's targets next to its name (``model``, ``slo-itl``).

    llm-inferno's Kubernetes controller and its first programs use this form.
    """
    return isinstance(raw, dict) and any(key.lower() == "model" and value for key, value in raw.items())


def with_flat_target(raw: object) -> object:
    """Return a service class whose target next to its name is moved to its list of targets.

    ``slo-ttw``, a limit on the queueing time, becomes a limit on the time to first token, which implies it.
    """
    if not isinstance(raw, dict) or not is_flat(raw):
        return raw
    target: dict[str, object] = {}
    rest: dict[str, object] = {}
    for key, value in raw.items():
        place = target if key.lower() in FLAT_KEYS else rest
        if value is not None or key.lower() == "modeltargets" or key.lower() not in place:
            place[key.lower()] = value
    wait_ms = target.pop("slo-ttw", None)
    if not target.get("slo-ttft"):
        target["slo-ttft"] = wait_ms
    listed = rest.get("modeltargets")
    if listed is None or isinstance(listed, list):
        rest["modeltargets"] = [*(listed or ()), target]
    return rest


def _validated_at(path: str, model: type[_Model], fitted: object) -> _Model:
    """Validate a value as a document; errors state the full path of the field."""
    try:
        return validated(model, fitted, context=NUMBERS_ONLY)
    except SpecError as error:
        within = "." if _PATH.match(str(error)) else ": "
        raise SpecError(f"{path}{within}{error}" if path else str(error)) from None


# --- key by key ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Key:
    """A key of a document, as needed to read it leniently."""

    wire: str
    """Wire name of the key."""
    model: type[Document] | None
    """Type of the value, or of each of its items, if it is an object."""
    is_list: bool
    """Whether the value is a list, for which null means empty."""


@cache
def _keys(model: type[Document]) -> dict[str, _Key]:
    """Return the keys of a document type, by lower-case name."""
    keys = {}
    for name, field in model.model_fields.items():
        wire = field.alias or name
        parts = list(_parts(field.annotation))
        models = [each for each in parts if isinstance(each, type) and issubclass(each, Document)]
        is_list = any(get_origin(each) is tuple for each in parts)
        keys[wire.lower()] = _Key(wire, models[0] if models else None, is_list)
    return keys


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield a type annotation and all types within it."""
    yield annotation
    for part in get_args(annotation):
        yield from _parts(part)


def _fitted(model: type[Document], raw: object, path: str, ignored: list[str]) -> object:
    """Return plain values with only known keys, in the schema's spelling, and without unset values."""
    if not isinstance(raw, dict):
        return raw
    keys = _keys(model)
    fitted: dict[str, object] = {}
    for name, value in raw.items():
        key = keys.get(name.lower())
        here = f"{path}.{path_text([name])}" if path else path_text([name])
        if key is None or (key.wire == "saturationPolicy" and _is_unknown_policy(value)):
            ignored.append(here)
        elif value is None and not key.is_list:
            continue  # as in the reference, a value under another spelling of the key remains
        elif value is None or _is_unset(key.wire, value):
            fitted.pop(key.wire, None)
        elif key.model is not None and isinstance(value, list):
            places = (f"{here}[{i}]" for i in range(len(value)))
            fitted[key.wire] = [
                _fitted(key.model, *each, ignored) for each in zip(value, places, strict=True)
            ]
        else:
            fitted[key.wire] = value if key.model is None else _fitted(key.model, value, here, ignored)
    return fitted


def _is_unset(wire: str, value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    if wire == "priority" and isinstance(value, int):
        return value not in PRIORITIES
    return wire in ZERO_IS_ABSENT and value in {0, ""}


def _is_unknown_policy(value: object) -> bool:
    return isinstance(value, str) and value.lower() not in POLICIES


# --- what the schema does not say -----------------------------------------------------------------------


def checked(entity: _Model, path: str) -> _Model:
    """Return an item adapted so that it is valid in a system, with the semantics of llm-inferno.

    Loads are valid, the last of several targets of a model counts, and llm-inferno's latency models use its
    queue model.
    """
    if isinstance(entity, ModelProfile):
        theirs = entity.is_of_the_reference and kind_of_profile(entity) is KINDS[0]
        stated = "queue_model" in entity.model_fields_set
        return entity if stated or not theirs else entity.model_copy(update={"queue_model": REFERENCE})
    if isinstance(entity, Server):
        check_load(entity.current.load, f"{path}.currentAlloc.load." if path else "currentAlloc.load.")
    if not isinstance(entity, ServiceClass):
        return entity
    targets = {target.model: target for target in entity.model_targets}
    if len(targets) == len(entity.model_targets):
        return entity
    return entity.model_copy(update={"model_targets": tuple(targets.values())})
