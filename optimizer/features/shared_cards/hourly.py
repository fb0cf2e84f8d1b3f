"""Shared cards in the hours of a horizon."""

from operator import not_

from pydantic import Field

from optimizer.documents import OutputDocument
from optimizer.plan import Placement, Plan


class HourlyCardsField(OutputDocument):
    """The shared cards of one hour."""

    shared_cards: dict[str, Placement] = Field({}, exclude_if=not_)
    """Shared cards by name, each with its number of cards; absent if there are none."""


def hourly_cards(plan: Plan) -> dict[str, Placement]:
    """Return the cards that servers share, by the name of their group."""
    return {
        use.name: Placement(accelerator=use.accelerator, num_replicas=use.num_cards)
        for use in plan.shared_cards
    }
