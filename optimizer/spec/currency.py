"""The currency of a system: the one of its prices, if any states one.

Plain numbers are then hundredths of that currency.
"""

from collections.abc import Iterable, Iterator

from optimizer.money import currency_of
from optimizer.spec.files import Part
from optimizer.spec.names import Entry, Finding
from optimizer.spec.positions import Location
from optimizer.spec.schema import Accelerator, Server


def first_currency(accelerators: Iterable[Accelerator], servers: Iterable[Server]) -> str | None:
    """Return the first currency of a price, or None if all prices are plain numbers."""
    for item in accelerators:
        found = currency_of(item.cost_cents_per_h)
        if found is not None:
            return found
    named = (currency_of(server.current.cost_cents_per_h) for server in servers)
    return next((currency for currency in named if currency is not None), None)


def currency_problems(accelerators: Iterable[Entry], servers: Iterable[Entry]) -> Iterator[Finding]:
    """Yield the prices in a currency that differs from the first, because they cannot be added."""
    first: tuple[Part, Location, str] | None = None
    for part, at, price in _prices(accelerators, servers):
        currency = currency_of(price)
        if currency is None:
            continue
        if first is None:
            first = (part, at, currency)
        elif currency != first[2]:
            text = f"a price in {currency}; give all prices in one currency: there is one in {first[2]} at "
            yield Finding(part, at, text, first[:2])


def _prices(
    accelerators: Iterable[Entry], servers: Iterable[Entry]
) -> Iterator[tuple[Part, Location, float]]:
    for part, at, item in accelerators:
        yield part, (*at, "cost"), item.cost_cents_per_h
    for part, at, server in servers:
        for key, allocation in (("currentAlloc", server.current), ("desiredAlloc", server.desired)):
            yield part, (*at, key, "cost"), allocation.cost_cents_per_h
