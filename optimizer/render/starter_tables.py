"""Tables of what there is to start from: use cases, and the offers of a price file."""

from collections.abc import Mapping

from rich.table import Table

from optimizer.render.tables import empty_table
from optimizer.starters.prices import PriceList
from optimizer.starters.use_cases import UseCase


def use_case_table(cases: Mapping[str, UseCase]) -> Table:
    """Return the use cases with their lengths and targets."""
    table = empty_table(
        "Use cases",
        [
            ("name", False),
            ("what", False),
            ("input\ntokens", True),
            ("output\ntokens", True),
            ("TTFT\nms", True),
            ("ITL\nms", True),
        ],
    )
    for name, case in cases.items():
        table.add_row(
            name,
            case.title,
            f"{case.in_tokens:,.0f}",
            f"{case.out_tokens:,.0f}",
            f"{case.ttft_ms:,.0f}",
            f"{case.itl_ms:,.0f}",
        )
    return table


def price_table(found: PriceList) -> Table:
    """Return the cheapest offer of each slice."""
    table = empty_table(
        "Cheapest offers",
        [
            ("accelerator", False),
            ("cards", True),
            ("price", True),
            ("price of a card", True),
            ("place", False),
        ],
    )
    for offer in found.offers:
        each = type(offer.price)(offer.price / offer.cards, offer.price.currency)
        amounts = (f"{price / 100:,.2f} {price.currency}/h" for price in (offer.price, each))
        table.add_row(offer.accelerator, str(offer.cards), *amounts, offer.place)
    return table
