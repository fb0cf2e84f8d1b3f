"""Tables of what there is to start from: use cases, and the offers of a price file."""

from collections.abc import Mapping

from optimizer.render import columns
from optimizer.render.tables import Said, Table
from optimizer.starters.prices import PriceList
from optimizer.starters.use_cases import UseCase


def use_case_table(cases: Mapping[str, UseCase]) -> Table:
    """Return the use cases with their lengths and targets."""
    table = Table("Use cases", columns.USE_CASES)
    for name, case in cases.items():
        table.add_row(name, case.title, case.in_tokens, case.out_tokens, case.ttft_ms, case.itl_ms)
    return table


def price_table(found: PriceList) -> Table:
    """Return the cheapest offer of each slice; as CSV it can be read as a price file."""
    table = Table("Cheapest offers", columns.OFFERS, "offers")
    for offer in found.offers:
        each = type(offer.price)(offer.price / offer.cards, offer.price.currency)
        prices = (Said(f"{price / 100:,.2f} {price.currency}/h", str(price)) for price in (offer.price, each))
        table.add_row(offer.accelerator, offer.cards, *prices, offer.place)
    return table
