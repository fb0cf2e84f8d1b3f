"""Sections on use cases for a first system, and on the offers of a price file."""

from collections.abc import Mapping

from optimizer.section import Column, FormattedValue, Section, name, table, words
from optimizer.starters.prices import Offer, PriceList
from optimizer.starters.use_cases import UseCase


def use_case_sections(cases: Mapping[str, UseCase]) -> list[Section]:
    """Return the table of use cases with their token lengths and targets."""
    columns = (
        name("name", lambda item: item[0]),
        words("what", lambda item: item[1].title, rank=1),
        Column("input", lambda item: item[1].in_tokens, "tokens", ",.0f"),
        Column("output", lambda item: item[1].out_tokens, "tokens", ",.0f"),
        Column("TTFT", lambda item: item[1].ttft_ms, "ms", ",.0f"),
        Column("ITL", lambda item: item[1].itl_ms, "ms", ",.0f"),
    )
    return [table("Use cases", columns, cases.items())]


def price_sections(price_list: PriceList) -> list[Section]:
    """Return the table with the cheapest offer of each accelerator; its CSV form is a valid price file."""

    def price(offer: Offer, cards: int = 1) -> FormattedValue:
        each = type(offer.price)(offer.price / cards, offer.price.currency)
        return FormattedValue(f"{each / 100:,.2f} {each.currency}/h", str(each))

    columns = (
        name("accelerator", "accelerator"),
        Column("cards", "cards", form=",d"),
        Column("price", price),
        Column("price of a card", lambda offer: price(offer, offer.cards), rank=1),
        name("place", "place", rank=2),
        name("instance", "instance", rank=3),
    )
    return [table("Cheapest offers", columns, price_list.offers, "offers")]
