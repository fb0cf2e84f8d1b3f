"""Reads accelerator prices from files: SkyPilot's catalogue, or a plain table of accelerators and prices.

No price is built in. A SkyPilot file (``vms.csv``) has a row for each instance type, region and zone, in USD.
A plain file has the columns ``accelerator`` and ``price``, and optionally ``cards``, ``count``, ``place`` and
``instance``.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from optimizer.errors import SpecError
from optimizer.money import NAMED_EXAMPLES, Price, read_price
from optimizer.spec.csv_rows import csv_rows
from optimizer.starters.cards import SKYPILOT_NAMES, LeftOut, find_cards
from optimizer.text import slice_name, slice_of
from optimizer.units import UnitError

_SKYPILOT = {"acceleratorname", "acceleratorcount", "price"}
_PLAIN = {"accelerator", "price"}
_OF_PLAIN = {*_PLAIN, "cards", "count", "place", "region"}


@dataclass(frozen=True, slots=True)
class Offer:
    """A group of cards that is sold as one accelerator, at a price."""

    accelerator: str
    """Name of the card in the catalogue."""
    cards: int
    price: Price
    """Price of the accelerator."""
    place: str = ""
    """Region or cloud; empty if the file does not state it."""
    count: int | None = None
    """Number of available cards; None if the file does not state it."""
    alike: tuple[str, ...] = ()
    """Names of all cards that the file can mean, if there are several."""
    instance: str = ""
    """Instance type of the cloud; empty if the file does not state it."""

    @property
    def name(self) -> str:
        """Name of the accelerator: ``H100``, ``8xH100``."""
        return slice_name(self.accelerator, self.cards)


@dataclass(frozen=True, slots=True)
class PriceList:
    """Cheapest offer of each accelerator in a file."""

    offers: tuple[Offer, ...]
    """Offers, sorted by card and number of cards."""
    notes: tuple[str, ...]
    """Notes on offers that are not used, can be of several cards, or are in several currencies."""

    def document(self) -> list[dict[str, object]]:
        """Return the offers as plain values."""
        return [
            {"accelerator": offer.accelerator, "cards": offer.cards, "price": str(offer.price)}
            | ({"place": offer.place} if offer.place else {})
            | ({} if offer.count is None else {"count": offer.count})
            | ({"instance": offer.instance} if offer.instance else {})
            for offer in self.offers
        ]


def read_prices(
    path: str | os.PathLike[str],
    *,
    region: str | None = None,
    currency: str | None = None,
    spot: bool = False,
) -> PriceList:
    """Read the cheapest offer of each accelerator, in each currency, from a price file.

    Args:
        path: a CSV file, or ``-`` for standard input.
        region: a region (SkyPilot) or place; None selects all.
        currency: code of a currency; None selects all.
        spot: whether to use SkyPilot's spot prices instead of on-demand prices.

    Raises:
        SpecError: the file cannot be read, has neither format, or a price is invalid.
    """
    rows = list(csv_rows(path, lambda name, _: name.lower()))
    if not rows:
        raise SpecError(f"{path}: the file has no prices")
    columns = {name.lower() for _, row in rows[:1] for name in row}
    if columns >= _SKYPILOT:
        prices = list(_skypilot(rows, spot=spot))
    elif columns >= _PLAIN and not spot:
        prices = list(_plain(rows))
    else:
        what = "SpotPrice, which --spot requires" if spot else "AcceleratorName, AcceleratorCount and Price"
        raise SpecError(
            f"{path}: the header must name accelerator and price, or (SkyPilot) {what}; it names "
            f"{', '.join(sorted(columns)) or 'nothing'}"
        )
    offers = [offer for offer in prices if isinstance(offer, Offer)]
    chosen = _chosen(path, offers, "place", region)
    chosen = _chosen(path, chosen, "price.currency", currency)
    best: dict[tuple[str, int, str], Offer] = {}
    for offer in chosen:
        key = offer.accelerator, offer.cards, offer.price.currency
        if key not in best or (offer.price, offer.place) < (best[key].price, best[key].place):
            best[key] = offer
    return PriceList(tuple(best[key] for key in sorted(best)), tuple(_notes(prices, chosen)))


def _chosen(path: object, offers: list[Offer], attribute: str, value: str | None) -> list[Offer]:
    """Return the offers whose attribute has a value, in any case; all if the value is None.

    Raises:
        SpecError: there are offers, but none has the value.
    """
    of = attrgetter(attribute)
    chosen = [offer for offer in offers if value is None or value.lower() == of(offer).lower()]
    if offers and not chosen:
        others = sorted(set(map(of, offers)))
        raise SpecError(f"{path}: no offers in {value!r}; the file has {', '.join(others[:10])}")
    return chosen


def _notes(offers: Sequence[Offer | LeftOut], chosen: Sequence[Offer]) -> Iterator[str]:
    """Yield sentences on offers that are not used, can be of several cards, or are in several currencies."""
    left_out = sorted({f"{offer.name} ({offer.reason})" for offer in offers if isinstance(offer, LeftOut)})
    if left_out:
        yield f"left out: {', '.join(left_out)}"
    for names in sorted({offer.alike for offer in chosen if offer.alike}):
        yield f"{' and '.join(names)} share family and memory, and the file does not say which it means"
    currencies = sorted({offer.price.currency for offer in chosen})
    if len(currencies) > 1:
        yield f"prices in {' and '.join(currencies)} are not compared; --currency {currencies[0]} shows one"


def _skypilot(rows: list[tuple[str, dict[str, str]]], *, spot: bool) -> Iterator[Offer | LeftOut]:
    column = "SpotPrice" if spot else "Price"
    for place, row in rows:
        name, price = row["acceleratorname"], row.get(column.lower(), "")
        if not name:
            continue
        cards = _number(row["acceleratorcount"], place, "AcceleratorCount")
        text = f"{row.get('instancetype', '')} {row.get('gpuinfo', '')}"
        result = find_cards(SKYPILOT_NAMES.get(name.lower(), name), text)
        if isinstance(result, LeftOut):
            yield result._replace(name=name)
        elif cards < 1 or not cards.is_integer():
            yield LeftOut(f"{cards:g} {name}", "part of a card")
        elif not price:
            yield LeftOut(f"{cards:g} {name} in {row.get('region') or 'the file'}", f"no {column}")
        else:
            amount = Price(round(100 * _number(price, place, column), 6), "USD")
            offer = Offer("", int(cards), amount, row.get("region", ""), instance=row.get("instancetype", ""))
            yield from _each(result, offer)


def _plain(rows: list[tuple[str, dict[str, str]]]) -> Iterator[Offer | LeftOut]:
    for place, row in rows:
        name, cards = row["accelerator"], row.get("cards") or "1"
        several, name = slice_of(name)
        if several > 1:
            cards = str(several)
        try:
            price = read_price(row["price"])
        except UnitError as error:
            raise SpecError(f"{place}: price: {error}") from None
        if not isinstance(price, Price) or price < 0:
            raise SpecError(f"{place}: price: {row['price']!r} must have a currency; write {NAMED_EXAMPLES}")
        prices = find_cards(name, " ".join(text for key, text in row.items() if key not in _OF_PLAIN))
        if isinstance(prices, LeftOut):
            yield prices._replace(name=name)
            continue
        number = _number(cards, place, "cards")
        if number < 1 or not number.is_integer():
            raise SpecError(f"{place}: cards: must be an integer, at least 1, not {cards!r}")
        count = int(_number(row["count"], place, "count")) if row.get("count") else None
        where = row.get("place") or row.get("region", "")
        offer = Offer("", int(number), price, where, count, instance=row.get("instance", ""))
        yield from _each(prices, offer)


def _each(names: tuple[str, ...], offer: Offer) -> Iterator[Offer]:
    """Yield the offer for each card that the file can mean."""
    alike = names if len(names) > 1 else ()
    yield from (replace(offer, accelerator=name, alike=alike) for name in names)


def _number(text: str, place: str, column: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1e9:
        raise SpecError(f"{place}: {column}: must be a number, at least 0, not {text!r}")
    return value
