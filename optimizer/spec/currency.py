"""Currency of a system: the currency of its prices, if any price states one.

Plain numbers are then hundredths of that currency.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, get_args

from optimizer.documents import PRICE, Document
from optimizer.features.fields import SystemFeatureFields
from optimizer.money import Price
from optimizer.schema import Accelerator, AllocationData, Server
from optimizer.schema.files import Part
from optimizer.schema.names import Finding, Index
from optimizer.schema.positions import Location


def first_currency(
    accelerators: Iterable[Accelerator], servers: Iterable[Server], others: Iterable[float] = ()
) -> str | None:
    """Return the first currency of a price; None if all prices are plain numbers."""
    prices = chain(
        (price for item in accelerators for _, price in _of_accelerator(item)),
        (price for server in servers for _, price in _of_allocation(server.current)),
        others,
    )
    return next((price.currency for price in prices if isinstance(price, Price)), None)


def currency_problems(index: Index, parts: Iterable[Part] = ()) -> Iterator[Finding]:
    """Yield the prices in another currency than most prices have, because they cannot be added."""
    problems = [
        (part, at, price.currency)
        for part, at, price in chain(_prices(index), _budgets(parts))
        if isinstance(price, Price)
    ]
    counts = Counter(currency for _, _, currency in problems)
    usual = max(counts, key=lambda currency: counts[currency], default=None)
    first = next(((part, at) for part, at, currency in problems if currency == usual), None)
    for part, at, currency in problems:
        if currency != usual:
            text = f"a price in {currency}; give all prices in one currency: there is one in {usual} at "
            yield Finding(part, at, text, first)


def list_prices(index: Index) -> Iterator[tuple[Part, Location, float]]:
    """Yield the prices of accelerators, of more cards, and of the items of features, with their locations."""
    for part, at, item in index.accelerators.values():
        for place, price in _of_accelerator(item):
            yield part, (*at, *place), price
    for part, at, capacity in index.capacity.values():
        if capacity.more_cents_per_h is not None:
            yield part, (*at, "more"), capacity.more_cents_per_h
    for section, items in index.sections.items():
        for part, at, item in items.values():
            yield from ((part, (*at, key), price) for key, price in prices_of_item(section, item))


def _prices(index: Index) -> Iterator[tuple[Part, Location, float]]:
    yield from list_prices(index)
    for part, at, server in index.servers.values():
        for key, allocation in (("currentAlloc", server.current), ("desiredAlloc", server.desired)):
            yield from ((part, (*at, key, *place), price) for place, price in _of_allocation(allocation))


def prices_of_sections(sections: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    """Yield the key and the price of each cost in the items of the sections of features."""
    for section, items in sections.items():
        for item in items.values():
            yield from prices_of_item(section, item)


def prices_of_item(section: str, item: Document) -> Iterator[tuple[str, float]]:
    """Yield the key and the price of each cost of an item of a section."""
    document = get_args(SystemFeatureFields.model_fields[section].annotation)[0]
    for name, field in document.model_fields.items():
        if PRICE in field.metadata:
            yield field.alias or name, getattr(item, name)


def _of_accelerator(item: Accelerator) -> Iterator[tuple[Location, float]]:
    """Yield the prices of an accelerator, with their locations within it."""
    yield ("cost",), item.cost_cents_per_h
    for i, tier in enumerate(item.tiers):
        yield ("tiers", i, "cost"), tier.cost_cents_per_h


def _of_allocation(item: AllocationData) -> Iterator[tuple[Location, float]]:
    """Yield the costs of an allocation, with their locations within it."""
    yield ("cost",), item.cost_cents_per_h
    for i, pool in enumerate(item.pools):
        yield ("pools", i, "cost"), pool.cost_cents_per_h


def _budgets(parts: Iterable[Part]) -> Iterator[tuple[Part, Location, float]]:
    for part in parts:
        budget = part.spec.optimizer.budget_cents_per_h
        if budget is not None:
            yield part, ("optimizer", "budget"), budget
