"""Reads the bodies of llm-inferno's routes: lists, entire systems in wrappers, and optimizer options."""

from collections.abc import Iterable, Mapping
from typing import Any

from optimizer.documents import ANY_LOSS, NUMBERS_ONLY
from optimizer.errors import SpecError
from optimizer.schema import OptimizerOptions, ServiceClass, SystemSpec
from optimizer.schema.files import MAX_WRAPPERS, WRAPPERS, spec_from_value
from optimizer.schema.messages import json_type, path_text
from rest_server.compat.lenient import checked, is_flat, read_entity, read_object
from rest_server.fleet import SECTIONS

LISTS = ("accelerators", "models", "serviceClasses", "servers", "count")
"""Sections that are lists of items in llm-inferno's systems, in the order in which they are read."""


def read_list(section: str, raw: object, ignored: list[str]) -> list[Any] | None:
    """Read the list of a section from a body such as ``{"servers": […]}``; None if it is absent or null.

    Raises:
        SpecError: the value is not a list, or an entity in it is invalid.
    """
    stated = None
    for key, value in read_object(raw).items():
        if key.lower() == section.lower():
            stated = stated if value is None else value
        else:
            ignored.append(key)
    return None if stated is None else _read_items(section, stated, ignored)


def _read_items(section: str, raw: object, ignored: list[str]) -> list[Any]:
    if not isinstance(raw, list):
        raise SpecError(f"{section}: must be a list, not {json_type(raw)}")
    model: type[Any] = SECTIONS[section].document
    return [read_entity(model, item, f"{section}[{i}]", ignored) for i, item in enumerate(raw)]


def classes_by_name(items: Iterable[ServiceClass], given: Iterable[object]) -> dict[str, ServiceClass]:
    """Index service classes by name.

    If a name occurs several times, the last class counts. But a class in flat form, which states one target
    next to its name, is added to the class before it.
    """
    named: dict[str, ServiceClass] = {}
    for item, raw in zip(items, given, strict=True):
        before = named.get(item.name)
        targets = (*before.model_targets, *item.model_targets) if before and is_flat(raw) else ()
        whole = item.model_copy(update={"model_targets": targets}) if targets else item
        named[item.name] = checked(whole, "")
    return named


def read_reference_system(raw: object, ignored: list[str]) -> SystemSpec:
    """Read a system, with or without llm-inferno's wrappers; without ``milpSolver`` it is planned greedily.

    Raises:
        SpecError: a value is invalid.
    """
    document = read_object(raw)
    try:
        spec = spec_from_value(document, context=NUMBERS_ONLY)
    except SpecError:
        sections = _sections(document, "", ignored)
        lists = {name: tuple(_read_items(name, sections.get(name, []), ignored)) for name in LISTS}
        named = classes_by_name(lists["serviceClasses"], sections.get("serviceClasses", []))
        lists["serviceClasses"] = tuple(named.values())
        options = read_entity(OptimizerOptions, sections.get("optimizer", {}), "optimizer", ignored)
        items: dict[str, Any] = {SECTIONS[name].field: lists[name] for name in LISTS}
        return SystemSpec.model_construct(optimizer=_as_the_reference_plans(options), **items)
    update: dict[str, Any] = {"optimizer": _as_the_reference_plans(spec.optimizer)}
    for name in ("models", "servers", "serviceClasses"):
        field = SECTIONS[name].field
        update[field] = tuple(checked(item, f"{name}[{i}]") for i, item in enumerate(getattr(spec, field)))
    return spec.model_copy(update=update)


def read_options(raw: object, ignored: list[str]) -> OptimizerOptions:
    """Read optimizer options, with or without llm-inferno's documented wrappers.

    Raises:
        SpecError: a value is invalid.
    """
    return _as_the_reference_plans(read_entity(OptimizerOptions, _flat(read_object(raw)), "", ignored))


def _flat(raw: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """Return optimizer options without the wrappers around them."""
    flat: dict[str, Any] = {}
    for key, value in raw.items():
        wrapper = key.lower() in {"optimizer", "optimizerdata"} and isinstance(value, dict)
        flat |= _flat(value, depth + 1) if wrapper and depth < MAX_WRAPPERS else {key: value}
    return flat


def _as_the_reference_plans(options: OptimizerOptions) -> OptimizerOptions:
    """Return optimizer options with llm-inferno's defaults: greedy, and no limit on rejections."""
    theirs = {"milp_solver": False, "max_loss": ANY_LOSS}
    untold = {name: value for name, value in theirs.items() if name not in options.model_fields_set}
    return options.model_copy(update=untold) if untold else options


def _sections(raw: Mapping[str, Any], path: str, ignored: list[str], depth: int = 0) -> dict[str, Any]:
    """Return the sections of a document without the wrappers around them.

    Args:
        raw: the document.
        path: path of the document in the body, for messages.
        ignored: list to which the paths of unknown keys are added.
        depth: number of wrappers around it.
    """
    known = {name.lower(): name for name in (*LISTS, "optimizer")}
    sections: dict[str, Any] = {}
    for key, value in raw.items():
        lower, here = key.lower(), f"{path}{path_text([key])}"
        nested = lower == "optimizer" and isinstance(value, dict) and {k.lower() for k in value} == {lower}
        if value is None and (lower in WRAPPERS or lower in known):
            continue
        if depth <= MAX_WRAPPERS and (lower in WRAPPERS or nested):
            if not isinstance(value, dict):
                raise SpecError(f"{here}: must be an object with keys, not {json_type(value)}")
            sections |= _sections(value, f"{here}.", ignored, depth + 1)
        elif lower in known:
            sections[known[lower]] = value
        else:
            ignored.append(here)
    return sections
