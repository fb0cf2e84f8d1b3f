"""Changes of single values of a system, for sweeps, costs of options, flags, comparisons and the web page.

A change has a name, an optional item and a value: ``count:H100=12``. The table of changes is derived from the
fields of documents, so a new option, limit or field needs no entry. To change a field, the document of the
system is changed and read again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin

from optimizer.documents import PRICE, Document, In
from optimizer.errors import SpecError
from optimizer.features.fields import SystemFeatureFields
from optimizer.limits.table import LIMITS, LimitOptions
from optimizer.money import CENTS, Price, cost_unit, currency_of, read_price
from optimizer.schema import (
    Accelerator,
    ModelTarget,
    OptimizerOptions,
    Route,
    Server,
    ServiceClass,
    SystemSpec,
)
from optimizer.schema.messages import known_name, validated
from optimizer.spec.loads import rate_rpm, stated_loads, with_rate
from optimizer.spec.shapes import prefixed_names, shape_names, with_hits, with_share
from optimizer.spec.streams import has_members, members_of
from optimizer.spec.system import System, with_checked_spec
from optimizer.units import MILLISECONDS, PERCENTILE, SHARE, TOKENS, Scale, UnitError, is_number

_Document = TypeVar("_Document", bound=Document)
_Values = Mapping[str, Any]
LATENCIES = {"ttft": "ttft_ms", "itl": "itl_ms", "e2e": "e2e_ms"}
"""Latency targets whose limits can be changed."""
_SECTIONS: Mapping[str, type[Document]] = MappingProxyType(
    {
        "optimizer": OptimizerOptions,
        "servers": Server,
        "service_classes": ServiceClass,
        "accelerators": Accelerator,
        **{name: get_args(field.annotation)[0] for name, field in SystemFeatureFields.model_fields.items()},
    }
)
"""Sections of documents whose items have changeable fields, by Python name."""
_SOLVER_OPTIONS = frozenset({"gap", "timeLimit"})
"""Numeric options that concern the solver and do not change the planned system."""


class SystemChange(NamedTuple):
    """A value of a system to change, such as ``count:H100=12``."""

    name: str
    """Name of the change in `CHANGES`."""
    item: str = ""
    """Item that changes, such as an accelerator type. Empty: the option of this name, or else every item."""
    value: object = None
    """New value, as text with a unit or as a number. None removes the field from the item, or from all items.
    """

    def applied_to(self, system: System) -> System:
        """Return a copy of a system with this change; the same system if there is nothing to remove.

        Raises:
            SpecError: the name or the item does not exist, or the system contradicts the value.
        """
        known, value = self.entry(system), self.value
        try:
            read = known.read(system, value) if known.is_quantity and isinstance(value, str) else value
        except UnitError as error:
            raise SpecError(f"{self.name}: {error}") from None
        return known.apply(system, self.item, read)

    def entry(self, system: System) -> "Changeable":
        """Return the entry of this change in the table of changes.

        Raises:
            SpecError: the name or the item does not exist.
        """
        known = CHANGES[known_name(self.name, CHANGES, "change")]
        if self.item:
            known_name(self.item, known.items(system), f"item of {self.name}")
        elif known.needs_item:
            example = next((f", {self.name}:{name}" for name in known.items(system)), "; the system has none")
            raise SpecError(f"name an item{example}")
        return known


@dataclass(frozen=True, slots=True)
class Changeable:
    """Entry of the table of changes: a value of a system that can be changed."""

    apply: Callable[[System, str, Any], System]
    """Function that returns a copy of a system with a new value for an item."""
    items: Callable[[System], Sequence[str]] = lambda _: ()
    """Function that returns the items of a system that can be changed, such as accelerator types."""
    unit: str = ""
    """Unit of the value; empty for counts, factors and fractions."""
    scale: Scale = SHARE
    """Units in which the value can be written, except for costs."""
    is_quantity: bool = True
    """Whether the value is a number that describes the system, so that it can be swept and shown on the page.
    """
    whole: bool = False
    """Whether the value must be an integer."""
    monotone: bool = False
    """Whether increasing the value never makes a plan worse."""
    needs_item: bool = False
    """Whether the change must name an item."""

    def read(self, system: System, text: str) -> float:
        """Convert text with or without a unit to a number; costs are in cents/h, or in the system's currency.

        Raises:
            UnitError: it is not a number with a known unit.
            SpecError: it is a cost in another currency, not finite, or not an integer.
        """
        if self.unit != CENTS:
            value = self.scale.read(text)
        elif is_number(text) and system.currency is None:
            value = float(text)
        elif is_number(text):
            number, usual = text.strip(), cost_unit(system.currency)
            raise SpecError(f"{number}: the unit is missing; write {number} {usual} or {number} cents/h")
        elif currency_of(value := read_price(text)) not in {None, system.currency}:
            usual = cost_unit(system.currency)
            raise SpecError(f"{text.strip()!r}: the system's prices are in {usual}; give it in that")
        if not isfinite(value):
            raise SpecError(f"{value} is not a finite number")
        if self.whole and not value.is_integer():
            raise SpecError(f"{value:g} is not an integer")
        return float(value)


# --- fields of documents -----------------------------------------------------------------------------------


def _fields(model: type[Document]) -> dict[str, str]:
    """Return the Python names of a document type's optional fields, by their names in documents."""
    fields = model.model_fields.items()
    return {field.alias or name: name for name, field in fields if not field.is_required()}


_FIELDS = {section: _fields(model) for section, model in _SECTIONS.items()}
OPTIONS = _FIELDS["optimizer"]
"""Python names of the options by their names in documents."""
_UNITS = {limit.field: limit.unit for limit in LIMITS}
"""Units of limits, by the Python names of their options."""


def _derived(name: str) -> Changeable:
    """Return the entry of the table for a field, as described by the first document type that has it."""
    section = next(section for section, fields in _FIELDS.items() if name in fields)
    python = _FIELDS[section][name]
    field = _SECTIONS[section].model_fields[python]
    parts = [*_parts(field.annotation), *field.metadata]
    scale = next((part.scale for part in parts if isinstance(part, In)), SHARE)
    unit = CENTS if PRICE in parts else "" if scale is SHARE else scale.unit
    is_quantity = (int in parts or float in parts) and name not in _SOLVER_OPTIONS
    return Changeable(
        partial(_with_field, name),
        partial(_items_with, name),
        _UNITS.get(python, unit),
        scale,
        is_quantity,
        whole=int in parts,
        monotone=int in parts and python in LimitOptions.model_fields,
        needs_item=is_quantity and section in {"accelerators", *SystemFeatureFields.model_fields},
    )


def _parts(annotation: object) -> Iterator[object]:
    """Yield the types and metadata in a type annotation, except those inside lists."""
    yield annotation
    if get_origin(annotation) not in {tuple, dict}:
        for part in get_args(annotation):
            yield from _parts(part)


def _items_with(name: str, system: System) -> list[str]:
    return [each.name for section in _sections(name) for each in getattr(system.spec, section)]


def _sections(name: str) -> list[str]:
    """Return the sections whose items have a field."""
    return [section for section, fields in _FIELDS.items() if name in fields and fields is not OPTIONS]


def _with_field(name: str, system: System, item: str, value: object) -> System:
    """Return a copy of a system with a changed field of an item.

    Without an item, the option of this name changes, or else the field of all items. The value None removes
    the field.
    """
    sections, options = _sections(name), dict[str, object]()
    if item:
        sections = [key for key in sections if any(each.name == item for each in getattr(system.spec, key))]
        sections = sections[:1]
    elif name in OPTIONS:
        options = {OPTIONS[name]: value}
        sections = sections if value is None else []

    def values(section: str, each: Any) -> _Values:
        return {_FIELDS[section][name]: value} if item in {"", each.name} else {}

    return _edited(system, {section: partial(values, section) for section in sections}, options)


def with_default(system: System, name: str, value: object) -> System:
    """Return a copy of a system in which all items that do not state a field have a value.

    Raises:
        SpecError: the system contradicts the value.
    """

    def values(field: str, each: Document) -> _Values:
        return {} if field in each.model_fields_set else {field: value}

    return _edited(system, {key: partial(values, _FIELDS[key][name]) for key in _sections(name)})


def with_values(system: System, values: Mapping[str, object]) -> System:
    """Return a copy of a system with new values: options by Python name, others by ``NAME`` or ``NAME:ITEM``.

    Raises:
        SpecError: a name does not exist, or the system contradicts a value.
    """
    changed = system.with_options(**{name: value for name, value in values.items() if is_option(name)})
    for name, value in values.items():
        if not is_option(name):
            parameter, _, item = name.partition(":")
            changed = SystemChange(parameter, item, value).applied_to(changed)
    return changed


def is_option(name: str) -> bool:
    """Return whether a name means an option of the optimizer; names that no document has count as options."""
    return ":" not in name and name not in CHANGES.keys() - OPTIONS.keys()


# --- documents of systems ----------------------------------------------------------------------------------


def _edited(
    system: System, edits: Mapping[str, Callable[[Any], _Values]], options: _Values = MappingProxyType({})
) -> System:
    """Return the system that results from changed values in its documents.

    Args:
        edits: by the Python name of a section, a function that returns the new values of each item.
        options: new values of options, by Python name.
    """
    spec, currency = system.spec, system.currency
    changed: dict[str, object] = {"optimizer": _changed(spec.optimizer, "optimizer", options, currency)}
    for section, edit in edits.items():
        place = SystemSpec.model_fields[section].alias or section
        items = getattr(spec, section)
        new = [_changed(each, f"{place}.{each.name}", edit(each), currency) for each in items]
        if any(one is not other for one, other in zip(new, items, strict=True)):
            changed[section] = tuple(new)
    document = spec.model_copy(update=changed)
    if document == spec:
        return system
    return with_checked_spec(system, document)


def _changed(document: _Document, place: str, values: _Values, currency: str | None = None) -> _Document:
    """Return a copy of a document with new values by Python name; None removes a field.

    Args:
        place: prefix of messages.
        values: new values by Python name.
        currency: currency of new costs; None: plain numbers.
    """
    fields = type(document).model_fields
    absent = {name: None for name in values if getattr(document, name) == fields[name].default}
    if values == absent:
        return document
    stated = document.model_dump(exclude_unset=True, exclude=set(values))
    for name, value in ((name, value) for name, value in values.items() if value is not None):
        is_price = PRICE in [*_parts(fields[name].annotation), *fields[name].metadata]
        is_plain = is_price and currency_of(value) is None
        stated[name] = Price(value, currency) if is_plain and currency else value
    return validated(type(document), stated, f"{place}.")


# --- written entries ---------------------------------------------------------------------------------------


def _with_load(system: System, name: str, factor: float) -> System:
    queue = system.servers.get(name)
    owners: Sequence[Server | Route]
    if not name:
        owners = stated_loads(system)
    elif queue is not None and has_members(queue):
        owners = members_of(queue)
    else:
        owners = [system.routes.get(name) or system.documented[name]]
    return system.with_items(*(with_rate(owner, rate_rpm(owner) * factor) for owner in owners))


def _loaded_items(system: System) -> list[str]:
    """Return the names of the routes, servers and shared queues that have their own load."""
    queues = {name for name, server in system.servers.items() if has_members(server)}
    return [*system.routes, *sorted((system.documented.keys() | queues) - system.routed.keys())]


def _types(system: System) -> list[str]:
    return sorted({item.type for item in system.accelerators.values()})


def _with_cards(system: System, type_name: str, cards: float) -> System:
    return system.with_capacity({type_name: int(cards)})


def _with_card_price(system: System, type_name: str, cost: float) -> System:
    def values(item: Accelerator) -> _Values:
        total = float(f"{cost * item.multiplicity:.12g}")
        return {"cost_cents_per_h": total} if item.type == type_name else {}

    return _edited(system, {"accelerators": values})


def _targets(system: System) -> list[str]:
    return [f"{service_class}/{model}" for service_class, model in system.targets]


def _with_targets(
    values: Callable[[ModelTarget, Any], _Values], system: System, item: str, value: object
) -> System:
    """Change the targets of a model in a class, or of all, to the values that a function returns."""

    def changed(group: str, target: ModelTarget) -> ModelTarget:
        place, is_meant = f"{group}.modelTargets.{target.model}", item in {"", f"{group}/{target.model}"}
        return _changed(target, f"serviceClasses.{place}", values(target, value) if is_meant else {})

    def targets(group: ServiceClass) -> _Values:
        return {"model_targets": tuple(changed(group.name, target) for target in group.model_targets)}

    return _edited(system, {"service_classes": targets})


def _latency(name: str) -> Changeable:
    change = partial(_with_targets, lambda _, limit: {LATENCIES[name]: limit})
    return Changeable(change, _targets, MILLISECONDS.unit, MILLISECONDS, needs_item=True)


def _scaled(target: ModelTarget, factor: float) -> _Values:
    limits = {field: getattr(target, field) for field in LATENCIES.values()}
    return {name: limit * factor for name, limit in limits.items() if limit}


def _percentile(_: ModelTarget, percentile: float | None) -> _Values:
    return {"percentile": percentile} | ({} if percentile is None else {"goodput_share": None})


def _stated_servers(system: System) -> list[str]:
    """Return the servers whose load is not that of a route."""
    return sorted(system.documented.keys() - system.routed.keys())


def _tokens(field: str) -> Changeable:
    def change(system: System, name: str, tokens: float) -> System:
        return system.with_load(name, **{field: tokens})

    return Changeable(change, _stated_servers, TOKENS.unit, TOKENS, needs_item=True)


_WRITTEN = {
    "load": Changeable(_with_load, _loaded_items),
    "avgInTokens": _tokens("in_tokens"),
    "avgOutTokens": _tokens("out_tokens"),
    "share": Changeable(with_share, shape_names, needs_item=True),
    "hit": Changeable(with_hits, prefixed_names, needs_item=True),
    "count": Changeable(_with_cards, _types, "cards", whole=True, monotone=True, needs_item=True),
    "card": Changeable(_with_card_price, _types, unit=CENTS, needs_item=True),
    **{name: _latency(name) for name in LATENCIES},
    "targets": Changeable(partial(_with_targets, _scaled)),
    "percentile": Changeable(partial(_with_targets, _percentile), scale=PERCENTILE),
}
"""Changes that are no field of a document."""
CHANGES: Mapping[str, Changeable] = MappingProxyType(
    _WRITTEN
    | {name: _derived(name) for fields in _FIELDS.values() for name in fields if name not in _WRITTEN}
)
"""Changes by name; those derived from documents have the names of fields in documents. A field with the name
of another change has no entry.
"""
QUANTITIES = tuple(name for name, known in CHANGES.items() if known.is_quantity)
"""Names of the changes whose values are numbers that describe the system, so that they can be swept."""
