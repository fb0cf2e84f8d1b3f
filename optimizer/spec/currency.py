"""The currency of a system: the one that its prices name, if any does.

Plain numbers beside prices that name a currency are hundredths of it.
"""

from collections.abc import Iterable, Iterator, Sequence

from optimizer.errors import SpecError
from optimizer.money import currency_of
from optimizer.spec.files import Part
from optimizer.spec.schema import Accelerator, Server, SystemSpec


def first_currency(accelerators: Iterable[Accelerator], servers: Iterable[Server]) -> str | None:
    """Return the first currency that a price names; none where all are plain numbers."""
    for item in accelerators:
        found = currency_of(item.cost_cents_per_h)
        if found is not None:
            return found
    named = (currency_of(server.current.cost_cents_per_h) for server in servers)
    return next((currency for currency in named if currency is not None), None)


def check_one_currency(parts: Sequence[Part]) -> None:
    """Refuse prices in several currencies: they cannot be added up.

    Raises:
        SpecError: two prices name different currencies; the text has both places.
    """
    first: tuple[str, str] | None = None
    for part in parts:
        for path, currency in _named(part.spec):
            if first is None:
                first = (part.place(path), currency)
            elif currency != first[1]:
                raise SpecError(
                    f"{part.place(path)}: a price in {currency}, but {first[0]} is in {first[1]}; "
                    "give all prices in one currency"
                )


def _named(spec: SystemSpec) -> Iterator[tuple[str, str]]:
    """Yield the place and the currency of every price that names one."""
    for i, item in enumerate(spec.accelerators):
        currency = currency_of(item.cost_cents_per_h)
        if currency is not None:
            yield f"accelerators[{i}].cost", currency
    for i, server in enumerate(spec.servers):
        for key, allocation in (("currentAlloc", server.current), ("desiredAlloc", server.desired)):
            currency = currency_of(allocation.cost_cents_per_h)
            if currency is not None:
                yield f"servers[{i}].{key}.cost", currency
