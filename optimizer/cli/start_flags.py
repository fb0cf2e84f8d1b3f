"""Flags of `init`, and the facts for the document that they describe."""

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from optimizer.checking.mistakes import SHORTEST_MS
from optimizer.cli.flags import given_values, number_of_shapes
from optimizer.errors import SpecError
from optimizer.jobs.flag import Flag
from optimizer.jobs.requests import Request
from optimizer.money import NAMED_EXAMPLES, Price, read_price
from optimizer.profiles.catalogue import load_catalogue
from optimizer.schema import Load, SaturationPolicy
from optimizer.spec.trace_shapes import load_of_trace, named_traces
from optimizer.starters.facts import ByName, Demand
from optimizer.starters.prices import Offer, PriceList, read_prices
from optimizer.text import slice_name, slice_of
from optimizer.units import MILLISECONDS, PERCENTILE, UnitError, is_number

_LATENCIES = ("ttft", "itl", "e2e")
"""Latencies that have a target flag."""
_Texts = tuple[str, ...]


class StartFlags(Request):
    """Flags of `init` with facts for the document."""

    model: Annotated[_Texts, Flag("NAME")] = ()
    """Model in the catalogue, or path of a config.json; can be given several times."""
    accelerator: Annotated[_Texts, Flag("NAME[:COUNT][:PRICE]")] = ()
    """Owned cards with their number and price: H100:16:2.10USD/h. Rented cards in any number:
    H200::3.90USD/h, or whole nodes of eight: 8xH100::28EUR/h.
    """
    rate: Annotated[_Texts, Flag("[MODEL:]USE-CASE=RATE")] = ()
    """Arrival rate of a use case with its unit, for one model or for each: chat=10/s, chat=600/min."""
    from_trace: Annotated[_Texts, Flag("[USE-CASE=]FILE")] = ()
    """Recorded requests (Azure, BurstGPT or Mooncake) whose lengths, as request shapes, replace those of a
    use case (chat); without --rate, their rate is used, too.
    """
    shapes: Annotated[int | None, Flag("N")] = None
    """Number of request shapes of a trace, 1 to 8 (4)."""
    weights: Annotated[str | None, Flag("FORMAT")] = None
    """Number format of the weights, such as fp8 (as published)."""
    target_ttft: Annotated[_Texts, Flag("[USE-CASE=]TIME")] = ()
    """Target of the time to first token: chat=500ms; 0 for none (the use case's)."""
    target_itl: Annotated[_Texts, Flag("[USE-CASE=]TIME")] = ()
    """Target of the inter-token latency: chat=50ms; 0 for none (the use case's)."""
    target_e2e: Annotated[_Texts, Flag("[USE-CASE=]TIME")] = ()
    """Target of the time to the last token: chat=9s; 0 for none (the use case's)."""
    percentile: Annotated[_Texts, Flag("[USE-CASE=]P")] = ()
    """Percentile at which targets must hold: 95 (the mean)."""
    saturation: Annotated[SaturationPolicy | None, Flag("POLICY")] = None
    """Policy for partial service if capacity runs out: None, PriorityExhaustive, PriorityRoundRobin or
    RoundRobin."""


def target_facts(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of `StarterFacts` that the flags for weights, targets and saturation set.

    Raises:
        SpecError: a value is wrong, or given twice.
    """
    targets = {}
    for latency in _LATENCIES:
        flag = f"target_{latency}"
        values = _by_use_case(getattr(arguments, flag), flag, partial(_time_ms, latency))
        if values:
            targets[latency] = values
    return {
        "weights": arguments.weights,
        "targets_ms": targets,
        "percentiles": _by_use_case(arguments.percentile, "percentile", _percentile),
        "saturation": arguments.saturation,
    }


def _by_use_case(texts: list[str] | None, flag: str, read: Callable[[str], float]) -> ByName:
    """Parse values with an optional use-case prefix."""
    by_name: dict[str | None, float] = {}
    for text in texts or ():
        name, _, value = text.rpartition("=")
        try:
            number = read(value.strip())
        except ValueError as error:
            raise SpecError(f"--{flag.replace('_', '-')} {text}: {error}") from None
        if (name or None) in by_name:
            raise SpecError(f"--{flag.replace('_', '-')} {text}: given twice")
        by_name[name or None] = number
    return by_name


def _time_ms(latency: str, text: str) -> float:
    value = MILLISECONDS.read(text)
    if is_number(text) and 0 < value < SHORTEST_MS[f"slo-{latency}"]:
        raise ValueError(f"{text} is in milliseconds; write {text}s for seconds, or {text}ms")
    if not 0 <= value < float("inf"):
        raise ValueError(f"must be at least 0 and finite, not {text!r}")
    return value


def _percentile(text: str) -> float:
    try:
        value = PERCENTILE.read(text)
    except ValueError:
        value = 0.0
    if not 1 < value < 100:
        hint = f"; did you mean {100 * value:g}?" if 0 < value < 1 else ""
        raise ValueError(f"must be more than 1 and less than 100, not {text!r}{hint}")
    return value


def demands_of(arguments: argparse.Namespace) -> list[Demand]:
    """Return the demands that the ``--rate`` flags describe.

    Raises:
        SpecError: a rate is malformed.
    """
    demands = []
    for text in arguments.rate or ():
        name, equals, rate = text.rpartition("=")
        model, _, use_case = name.rpartition(":")
        if not (equals and use_case and rate):
            raise SpecError(f"--rate: {text!r} is not USE-CASE=RATE, such as chat=10/s")
        demands.append(Demand(use_case, rate.strip(), model or None))
    traced = _traced_loads(arguments)
    asked = {demand.use_case for demand in demands}
    demands = [replace(demand, traced=traced.get(demand.use_case)) for demand in demands]
    return demands + [
        Demand(use_case, f"{load.arrival_rate_rpm:g}/min", traced=load)
        for use_case, load in traced.items()
        if use_case not in asked
    ]


def _traced_loads(arguments: argparse.Namespace) -> dict[str, Load]:
    """Return the load of each use case that a recorded trace describes.

    Raises:
        SpecError: a trace cannot be read, or is given twice.
    """
    traced_loads: dict[str, Load] = {}
    count = number_of_shapes(arguments)
    for use_case, path in named_traces(arguments.from_trace or ()):
        name = use_case or "chat"
        if name in traced_loads:
            raise SpecError(f"--from-trace {path}: {name} has a trace already; give each use case one")
        traced_loads[name] = load_of_trace(path, count)
    return traced_loads


def read_named_price(text: str) -> Price:
    """Parse a price, which must name its currency.

    Raises:
        UnitError: the text has no currency, or is not a price.
    """
    named_price = read_price(text)
    if not isinstance(named_price, Price):
        raise UnitError(f"the price must name its currency; write {NAMED_EXAMPLES}")
    return named_price


def offers_of(arguments: argparse.Namespace) -> tuple[list[Offer], tuple[str, ...]]:
    """Return the offers of accelerators, and notes on ignored entries of price files.

    Args:
        arguments: parsed command line. Accelerators are priced by flag or by price files; if no flag names
            one, all in the files are offered.

    Raises:
        SpecError: a name, a count or a price is wrong, or a price is missing.
    """
    lists = _price_lists(arguments)
    listed = [offer for price_list in lists for offer in price_list.offers]
    notes = tuple(dict.fromkeys(text for price_list in lists for text in price_list.notes))
    offers: list[Offer] = []
    for text in arguments.accelerator or ():
        try:
            offers += _offers_in(text, listed)
        except UnitError as error:
            raise SpecError(f"--accelerator {text}: {error}") from None
    return (offers, ()) if arguments.accelerator else (listed, notes)


def _offers_in(text: str, listed: list[Offer]) -> list[Offer]:
    """Return the offers of an accelerator, NAME[:COUNT][:PRICE], with its price or those in price files.

    Raises:
        SpecError: the accelerator is not in the catalogue.
        UnitError: neither the text nor a file has a price.
    """
    name, _, rest = text.partition(":")
    number, _, price = rest.partition(":")
    if number and not number.isdigit():
        number, price = "", rest
    cards, single = slice_of(name)
    accelerator, count = load_catalogue().accelerator(single).name, int(number) if number else None
    if price:
        return [Offer(accelerator, cards, read_named_price(price), "", count)]
    known = [offer for offer in listed if offer.accelerator == accelerator and cards in {1, offer.cards}]
    if not known:
        example = f"{slice_name(accelerator, cards)}:{count or 8}:2.50USD/h"
        raise UnitError(f"no price; write {example}, or give a file with --prices")
    return known if count is None else [replace(offer, count=count) for offer in known]


def _price_lists(arguments: argparse.Namespace) -> list[PriceList]:
    lists = []
    for text in arguments.prices or ():
        place, _, path = text.rpartition("=")
        listed = read_prices(path, **price_settings(arguments))
        if place:
            listed = replace(listed, offers=tuple(replace(offer, place=place) for offer in listed.offers))
        lists.append(listed)
    return lists


class PriceFlags(Request):
    """Flags for reading a price file."""

    region: Annotated[str | None, Flag("NAME")] = None
    """Prices of one region of the file (the cheapest)."""
    currency: Annotated[str | None, Flag("CODE")] = None
    """Prices in one currency, such as EUR."""
    spot: bool = False
    """Use the spot prices of a SkyPilot file."""


def price_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the values of the flags for reading a price file, by argument of `read_prices`."""
    return {**given_values(arguments, PriceFlags.model_fields), "spot": bool(arguments.spot)}


def model_given(text: str) -> str:
    """Return the model's name to write in a document; a folder is replaced by the config.json in it."""
    config = Path(text) / "config.json"
    return str(config) if config.is_file() else text
