"""The sub-commands to begin with: init, prices."""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optimizer.cli.asking import Asker
from optimizer.cli.command import Command, add_output, print_json, show_tables, tell

if TYPE_CHECKING:
    from optimizer.starters.document import Demand, Start
    from optimizer.starters.prices import Offer, PriceList

TEMPLATES = ("one-model", "fleet", "clouds")
"""What `init` can write; a test holds it to what the library offers."""
_EPILOG = """\
What no flag says is asked for at a terminal. Templates: one-model, one model on the cards that exist; fleet,
several models and classes on them; clouds, what clouds offer, without limits. Use cases: 'inferplan init
--use-cases' lists them. Example:

  inferplan init --model llama-3.1-8b --accelerator H100:8:3.50USD/h --rate chat=10/s
"""


def _add_init(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument(
        "path", metavar="FILE", nargs="?", type=Path, default=Path("system.yaml"),
        help="the document to write (system.yaml); - for stdout",
    )  # fmt: skip
    parser.add_argument("--template", choices=TEMPLATES, help="what to start from (by what is given)")
    parser.add_argument(
        "--model", metavar="NAME", action="append",
        help="a model of the catalogue, or a config.json; may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--accelerator", metavar="NAME[:COUNT][:PRICE]", action="append",
        help="cards that can be had: H100:16:3.50USD/h; 8xH100::28EUR/h sells eight at a time",
    )  # fmt: skip
    parser.add_argument(
        "--rate", metavar="[MODEL:]USE-CASE=RATE", action="append",
        help="requests of a use case, for a model or for each: chat=10/s",
    )  # fmt: skip
    parser.add_argument(
        "--use-case", metavar="NAME", action="append",
        help="a use case whose rate is then asked for",
    )  # fmt: skip
    _add_price_flags(parser)
    parser.add_argument(
        "--prices",
        metavar="[PLACE=]FILE",
        action="append",
        help="prices from a CSV file, see 'inferplan prices'",
    )
    parser.add_argument("--use-cases", action="store_true", help="list the use cases and exit")
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")


def _add_price_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--region", metavar="NAME", help="prices of one region of the file (the cheapest)")
    parser.add_argument("--spot", action="store_true", help="spot prices of a SkyPilot file")


def _init(arguments: argparse.Namespace) -> None:
    from optimizer.errors import SpecError
    from optimizer.jobs import start_document
    from optimizer.spec.writing import write_text

    if arguments.use_cases:
        _list_use_cases()
        return
    to_stdout = str(arguments.path) == "-"
    if not to_stdout and arguments.path.exists() and not arguments.force:
        raise SpecError(
            f"{arguments.path}: already exists; choose another name, or overwrite it with --force"
        )
    if not to_stdout and arguments.path.suffix.lower() not in {".yaml", ".yml"}:
        raise SpecError(f"{arguments.path}: the document is YAML; the name must end in .yaml or .yml")
    text = start_document(_start(arguments))
    if to_stdout:
        sys.stdout.write(text)
        return
    write_text(text, arguments.path)
    tell(f"{arguments.path} is written; next: inferplan check {arguments.path}")


def _start(arguments: argparse.Namespace) -> "Start":
    """Return the facts of the flags, with the answers to questions where they leave something open."""
    from optimizer.errors import SpecError
    from optimizer.starters.document import Start

    offers = _offers(arguments)
    demands = _demands(arguments)
    models = list(arguments.model or ())
    lacking = [
        flag
        for flag, given in (("--model", models), ("--accelerator", offers), ("--rate", demands))
        if not given
    ]
    template = arguments.template
    if lacking and not sys.stdin.isatty():
        raise SpecError(f"{lacking[0]}: missing; there is no terminal to ask at")
    if lacking:
        asker = Asker()
        template = template or _ask_template(asker)
        models = models or _ask_models(asker, template)
        offers = offers or _ask_offers(asker, template)
        demands = demands or _ask_demands(asker, arguments.use_case, models)
    if template is None:
        template = _template_of(models, offers, demands)
    to_stdout = str(arguments.path) == "-"
    folder = Path() if to_stdout else arguments.path.parent
    names = (os.path.relpath(name, folder) if name.endswith(".json") else name for name in models)
    file = "system.yaml" if to_stdout else arguments.path.name
    return Start(template, tuple(names), tuple(offers), tuple(demands), file, folder)


def _template_of(models: list[str], offers: "list[Offer]", demands: "list[Demand]") -> Any:
    """Return the template that the facts speak for."""
    if any(offer.count is None for offer in offers):
        return "clouds"
    return "fleet" if len(models) > 1 or len(demands) > 1 else "one-model"


# --- flags -----------------------------------------------------------------------------------------------


def _demands(arguments: argparse.Namespace) -> "list[Demand]":
    from optimizer.errors import SpecError
    from optimizer.starters.document import Demand

    found = []
    for text in arguments.rate or ():
        name, equals, rate = text.rpartition("=")
        model, _, use_case = name.rpartition(":")
        if not (equals and use_case and rate):
            raise SpecError(f"--rate: {text!r} is not USE-CASE=RATE, such as chat=10/s")
        found.append(Demand(use_case, rate.strip(), model or None))
    told = {demand.use_case for demand in found}
    open_ones = [name for name in arguments.use_case or () if name not in told]
    if open_ones and (found or not sys.stdin.isatty()):
        raise SpecError(f"--rate: missing for {open_ones[0]}; write --rate {open_ones[0]}=10/s")
    return found


def _offers(arguments: argparse.Namespace) -> "list[Offer]":
    """Return what can be had: the accelerators named, priced by flag or file, or all of the files."""
    from optimizer.errors import SpecError

    lists = _price_lists(arguments)
    listed = [offer for found in lists for offer in found.offers]
    if not arguments.accelerator:
        return listed
    offers: list[Offer] = []
    for text in arguments.accelerator:
        name, _, rest = text.partition(":")
        count, _, price = rest.partition(":")
        if count and not count.isdigit():
            count, price = "", rest
        offer = _offer(name, count, price, listed)
        if isinstance(offer, str):
            raise SpecError(f"--accelerator {text}: {offer}")
        offers += offer
    return offers


def _offer(name: str, count: str, price: str, listed: "list[Offer]") -> "list[Offer] | str":
    """Return the offers of an accelerator that a flag names, or what is wrong with it."""
    from dataclasses import replace

    from optimizer.money import EXAMPLES, Price, read_price
    from optimizer.profiles.catalogue import load_catalogue, slice_of
    from optimizer.starters.prices import Offer
    from optimizer.units import UnitError

    cards, single = slice_of(name)
    accelerator = load_catalogue().accelerator(single).name
    number = int(count) if count else None
    if price:
        try:
            amount = read_price(price)
        except UnitError as error:
            return str(error)
        if not isinstance(amount, Price):
            return f"the price must name its currency; write {EXAMPLES[:18]}"
        return [Offer(accelerator, cards, amount, "", number)]
    known = [offer for offer in listed if offer.accelerator == accelerator and cards in {1, offer.cards}]
    if known:
        return [replace(offer, count=number) for offer in known]
    return f"no price; write {name}:{count or 8}:2.50USD/h, or give a file with --prices"


def _price_lists(arguments: argparse.Namespace) -> "list[PriceList]":
    from dataclasses import replace

    from optimizer.starters.prices import read_prices

    found = []
    for text in arguments.prices or ():
        place, _, path = text.rpartition("=")
        listed = read_prices(path, region=arguments.region, spot=arguments.spot)
        if place:
            listed = replace(listed, offers=tuple(replace(offer, place=place) for offer in listed.offers))
        found.append(listed)
    return found


def _list_use_cases() -> None:
    from optimizer.render.starter_tables import use_case_table
    from optimizer.render.tables import show
    from optimizer.starters.use_cases import use_cases

    show(use_case_table(use_cases()), sys.stdout)


# --- questions -------------------------------------------------------------------------------------------


def _ask_template(asker: Asker) -> str:
    from optimizer.starters.document import TEMPLATES as KNOWN

    return asker.choose("What do you want to plan?", {str(name): text for name, text in KNOWN.items()})


def _ask_models(asker: Asker, template: str) -> list[str]:
    from optimizer.profiles import load_catalogue

    names = list(load_catalogue().models)
    found = asker.several("Which model? (Tab completes; or the path of a config.json)", names)
    return found[:1] if template == "one-model" else found


def _ask_offers(asker: Asker, template: str) -> "list[Offer]":
    from optimizer.money import Price, read_price
    from optimizer.profiles import load_catalogue
    from optimizer.starters.prices import Offer

    def price(text: str) -> Price:
        found = read_price(text)
        if not isinstance(found, Price):
            raise ValueError("name the currency: 2.50 USD/h")  # noqa: TRY004  the text is wrong, not its type
        return found

    def count(text: str) -> int:
        if not text.isdigit() or not int(text):
            raise ValueError("an integer, at least 1")
        return int(text)

    offers = []
    for name in asker.several("Which accelerator?", list(load_catalogue().accelerators)):
        number = None if template == "clouds" else count(asker.text(f"How many {name} cards exist?", count))
        amount = price(asker.text(f"What does one {name} cost? (2.50 USD/h)", price))
        offers.append(Offer(name, 1, amount, "", number))
    return offers


def _ask_demands(asker: Asker, given: list[str] | None, models: list[str]) -> "list[Demand]":
    from optimizer.starters.document import Demand
    from optimizer.starters.use_cases import use_cases
    from optimizer.units import REQUESTS_PER_MINUTE

    names = given or asker.several("What is it used for?", list(use_cases()))
    each = " for each model" if len(models) > 1 else ""
    return [
        Demand(
            name, asker.text(f"How many requests of {name}{each}? (10/s, 600/min)", REQUESTS_PER_MINUTE.read)
        )
        for name in names
    ]


# --- prices ----------------------------------------------------------------------------------------------


def _add_prices(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Formats: SkyPilot's catalogue (InstanceType, AcceleratorName, AcceleratorCount, Price, SpotPrice, "
        "Region, …; USD), or the columns accelerator and price, with cards, count and place if wanted; "
        "there a price names its currency: 2.50 EUR/h."
    )
    parser.add_argument("file", metavar="FILE", help="prices as CSV; - for stdin")
    _add_price_flags(parser)
    add_output(parser, "offers")


def _prices(arguments: argparse.Namespace) -> None:
    from optimizer.starters.prices import read_prices

    found = read_prices(arguments.file, region=arguments.region, spot=arguments.spot)
    if arguments.json:
        print_json(found.document())
        return
    from optimizer.render.starter_tables import price_table

    show_tables(price_table(found), arguments)
    if found.unknown:
        tell(f"inferplan: note: not in the catalogue, left out: {', '.join(found.unknown)}")


COMMANDS = {
    "init": Command("write a first system document from a few facts", _add_init, _init),
    "prices": Command("show what accelerators cost according to a price file", _add_prices, _prices),
}
