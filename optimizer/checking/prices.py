"""Warns about amounts of money in documents that are probably in another unit than the writer meant."""

from collections.abc import Iterator
from itertools import chain

from optimizer.documents import UnitlessNumber
from optimizer.errors import SpecError
from optimizer.money import cost_text, cost_unit
from optimizer.quantities import precise
from optimizer.schema import Accelerator
from optimizer.schema.files import Part
from optimizer.schema.names import Finding, Index
from optimizer.schema.positions import Location
from optimizer.spec.currency import list_prices
from optimizer.spec.system import System

LOW_PRICE_PER_TB_PER_S = 5.0
"""Price below which an accelerator is probably not priced in cents [cents/h per TB/s of memory bandwidth].
Rental prices are 0.5 to 4 dollars per hour and TB/s (L4, A100, H100, MI300X, B200), which is 50 to 400 cents;
spot prices go down to 10 cents.
"""
HIGHEST_BANDWIDTH_GB_PER_S = 10_000.0
"""Memory bandwidth that no card exceeds [GB/s]; higher prices need no look at the catalogue."""
LOW_PRICE = 1.0
"""Price below which a card of unknown memory bandwidth is probably not priced in cents [cents/h]."""


def odd_prices(system: System, index: Index) -> Iterator[Finding]:
    """Yield warnings about prices that are missing, too low for cents, or without a unit."""
    priced = any(entry.item.cost_cents_per_h for entry in index.accelerators.values())
    in_nodes = index.types_in_nodes
    unitless = [*_unitless(index)] if system.currency else []
    named = {at for _, at, _ in unitless}
    for part, at, amount in unitless:
        yield Finding(part, at, _read_as(amount, system.currency))
    for part, at, accelerator in index.accelerators.values():
        cost, place = accelerator.cost_cents_per_h, (*at, "cost")
        if cost and cost < _least_price(accelerator) and place not in named:
            text = f"{cost:g} cents/h is little for {accelerator.name!r}; cost is in cents, not dollars"
            yield Finding(part, place, text)
        elif (
            priced
            and "cost_cents_per_h" not in accelerator.model_fields_set
            and accelerator.type not in in_nodes
        ):
            text = f"{accelerator.name!r} has no cost and counts as free beside others that have one"
            yield Finding(part, at, text)


def _read_as(amount: float, currency: str | None) -> str:
    number, unit = precise(amount), cost_unit(currency)
    return (
        f"{number} has no unit and is read as {number} cents/h, which is {cost_text(amount, currency)}; "
        f"write {number} {unit} or {number} cents/h"
    )


def _unitless(index: Index) -> Iterator[tuple[Part, Location, float]]:
    """Yield the amounts of money that documents state without a unit, except 0."""
    budgets = ((part, (*at, "budget"), options.budget_cents_per_h) for part, at, options in index.options)
    for part, at, amount in chain(list_prices(index), budgets):
        if isinstance(amount, UnitlessNumber) and amount:
            yield part, at, amount


def _least_price(accelerator: Accelerator) -> float:
    """Return the price [cents/h] below which an accelerator is probably not priced in cents."""
    bandwidth = accelerator.memory_bandwidth_gb_per_s
    highest = HIGHEST_BANDWIDTH_GB_PER_S * accelerator.multiplicity
    if not bandwidth and accelerator.cost_cents_per_h >= LOW_PRICE_PER_TB_PER_S * highest / 1000:
        bandwidth = highest
    if not bandwidth:
        from optimizer.profiles.catalogue import load_catalogue  # slow import

        try:
            facts = load_catalogue().accelerator(accelerator.type)
        except SpecError:
            return LOW_PRICE * accelerator.multiplicity
        bandwidth = facts.bandwidth_gb_per_s * accelerator.multiplicity
    return LOW_PRICE_PER_TB_PER_S * bandwidth / 1000
