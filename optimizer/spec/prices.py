"""Prices that depend on the number of units, and checks of prices, budgets and power in documents."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from optimizer.arrays import grouped
from optimizer.documents import UnlimitedCards
from optimizer.features.nodes.fields import NodeType
from optimizer.money import cost_text, currency_of
from optimizer.schema import Accelerator, OptimizerOptions
from optimizer.schema.files import Part
from optimizer.schema.names import Finding, Index
from optimizer.tolerances import ROUNDING

ENDLESS = 1e9
"""Number of units of a price without a limit, larger than any plan needs."""


def price_problems(parts: Sequence[Part], index: Index) -> Iterator[Finding]:
    """Yield the options and prices that no plan can satisfy, or for which data is missing."""
    yield from card_price_problems(index)
    accelerators = {name: entry.item for name, entry in index.accelerators.items()}
    used = {accelerator for _, accelerator in index.profiles}
    used -= {name for name, (part, at, _) in index.accelerators.items() if at in part.repaired}
    nodes = [entry.item for entry in index.sections["nodes"].values()]
    for part in parts:
        if "optimizer" in part.spec.model_fields_set:
            for key, text in option_problems(part.spec.optimizer, accelerators, used, nodes):
                yield Finding(part, ("optimizer", key), text)


def committed_cents_per_h(accelerators: Iterable[Accelerator]) -> float:
    """Return the cost of all committed accelerators, used or not [cents/h]."""
    tiers = (tier for item in accelerators for tier in item.tiers if tier.committed)
    return float(sum(tier.units * tier.cost_cents_per_h for tier in tiers))


class PricedUnits(NamedTuple):
    """Units whose price depends on their number: accelerators of one name, or cards of a type."""

    name: str
    is_type: bool
    """Whether the units are the cards of a type; otherwise they are the accelerators of a name."""
    listed: float
    """Price of a unit that is stated for pools [cents/h]."""
    steps: tuple[tuple[float, float], ...]
    """Number of units and price [cents/h] of each step, the cheapest first; committed units have price 0."""


def tiered(accelerators: Mapping[str, Accelerator], cards: Mapping[str, int]) -> list[PricedUnits]:
    """Return the accelerators with price tiers, and the types with another price for additional cards.

    Args:
        accelerators: accelerators by name.
        cards: number of cards by type.
    """
    priced_units = [
        PricedUnits(item.name, False, item.cost_cents_per_h, _steps_of(item))  # noqa: FBT003  named above
        for item in accelerators.values()
        if item.tiers
    ]
    for type_name, number in cards.items():
        of_type = [item for item in accelerators.values() if item.type == type_name]
        if of_type and isinstance(number, UnlimitedCards) and number.owned is not None:
            listed = price_of_card(of_type[0])
            steps = (float(number.owned), listed), (ENDLESS, float(number.more_cents_per_h))
            priced_units.append(PricedUnits(type_name, True, listed, steps))  # noqa: FBT003  named above
    return priced_units


def price_of_card(item: Accelerator) -> float:
    """Return the price of one card of an accelerator [cents/h]."""
    return float(item.cost_cents_per_h) / item.multiplicity


def _card_price_text(item: Accelerator) -> str:
    """Format the price of one card in the unit in which the price of the accelerator was written."""
    return cost_text(price_of_card(item), currency_of(item.cost_cents_per_h))


def _steps_of(item: Accelerator) -> tuple[tuple[float, float], ...]:
    steps = [(0.0 if tier.committed else tier.cost_cents_per_h, float(tier.units)) for tier in item.tiers]
    steps.sort(key=lambda step: step[0])
    return tuple((size, float(price)) for price, size in [*steps, (item.cost_cents_per_h, ENDLESS)])


def card_price_problems(index: Index) -> Iterator[Finding]:
    """Yield the prices of additional cards of a type that contradict the prices of its accelerators."""
    by_type = grouped((entry.item.type, entry.item) for entry in index.accelerators.values())
    for part, at, capacity in index.capacity.values():
        more, of_type = capacity.more_cents_per_h, by_type.get(capacity.type, [])
        if more is None or not of_type:
            continue
        low, high = (choose(of_type, key=price_of_card) for choose in (min, max))
        with_tiers = [item.name for item in of_type if item.tiers]
        text = None
        if with_tiers:
            text = f"{with_tiers[0]} has tiers, which state a price by number too; remove one of the two"
        elif price_of_card(high) > price_of_card(low) * (1 + ROUNDING):
            text = (
                f"a card costs {_card_price_text(low)} in {low.name} and {_card_price_text(high)} in "
                f"{high.name}; give all of {capacity.type} the same price per card"
            )
        elif more < price_of_card(low) * (1 - ROUNDING):
            text = (
                f"{cost_text(more, currency_of(more))} is below the price of the first cards, "
                f"{_card_price_text(low)}; prices must not fall: "
                "set cost to the lower price and count to unlimited"
            )
        if text is not None:
            yield Finding(part, (*at, "more"), text)


def option_problems(
    options: OptimizerOptions,
    accelerators: Mapping[str, Accelerator],
    used: set[str],
    nodes: Iterable[NodeType],
) -> Iterator[tuple[str, str]]:
    """Yield the name, and a message, of each option that no plan can satisfy, or for which data is missing.

    Args:
        accelerators: accelerators by name.
        used: names of the accelerators that profiles use.
        nodes: the node types.
    """
    budget = options.budget_cents_per_h
    for what, cost in (
        ("committed tiers", committed_cents_per_h(accelerators.values())),
        ("spare nodes", math.fsum(node.spare_cents_per_h for node in nodes)),
    ):
        if budget is not None and cost > budget:
            given, paid = (cost_text(amount, currency_of(budget)) for amount in (budget, cost))
            text = f"{given} is below the cost of the {what}, {paid}; raise the budget or remove {what}"
            yield "budget", text
            return
    if options.max_power_w is None:
        return
    for name in sorted(used & accelerators.keys()):
        if not accelerators[name].power.full_w:
            yield "maxPower", f"the power of {name} is not known; give it power.idle and power.full"
            return
