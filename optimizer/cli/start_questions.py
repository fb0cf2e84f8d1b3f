"""Prompts of `init`, for the facts that no flag gives."""

from optimizer.cli.asking import Prompter
from optimizer.cli.start_flags import model_given, named_accelerator, read_named_price
from optimizer.errors import SpecError
from optimizer.money import Price
from optimizer.profiles import load_catalogue
from optimizer.profiles.estimate import find_model
from optimizer.starters.facts import TEMPLATES, Demand, Template, check_rate, check_template
from optimizer.starters.prices import Offer
from optimizer.starters.use_cases import use_case, use_cases


def ask_template(prompter: Prompter, models: list[str], offers: list[Offer]) -> Template:
    """Prompt for one of the templates that fit the known values."""
    suitable: dict[str, Template] = {}
    for name in TEMPLATES:
        try:
            check_template(name, tuple(models), tuple(offers))
        except SpecError:
            continue
        suitable[name] = name
    if len(suitable) == 1:
        return next(iter(suitable.values()))
    choices = {name: TEMPLATES[template] for name, template in suitable.items()}
    return suitable[prompter.choose("What do you want to plan?", choices)]


def ask_models(prompter: Prompter, template: Template) -> list[str]:
    """Prompt for the models that a template takes: names as in the flag, or paths."""
    question = "Which model? (Tab completes; or the path of a config.json)"
    names = list(load_catalogue().models)
    if template == "one-model":
        return [model_given(prompter.one(question, names, find_model))]
    return [model_given(name) for name in prompter.several(question, names, find_model)]


def ask_offers(prompter: Prompter, template: Template) -> list[Offer]:
    """Prompt for accelerators, and for counts and prices missing in their names."""
    counts: dict[str, int | None] = {}
    offers: list[Offer] = []
    for text in prompter.several(
        "Which accelerator?", list(load_catalogue().accelerators), named_accelerator
    ):
        found = named_accelerator(text)
        is_rented = found.count is None and found.price is not None and any(counts.values())
        count = counts.get(found.accelerator) if found.count is None and not is_rented else found.count
        if count is None and template != "clouds" and not is_rented:
            count = _count(prompter.text(f"How many {found.accelerator} cards exist?", _count))
        counts[found.accelerator] = count or counts.get(found.accelerator)
        amount = found.price
        if amount is None:
            amount = ask_price(prompter, found.name, offers[0].price if offers else None)
        offers.append(Offer(found.accelerator, found.cards, amount, "", count))
    return offers


def ask_price(prompter: Prompter, name: str, first: Price | None = None) -> Price:
    """Prompt for the price of a slice, in the currency of the first price."""

    def check(text: str) -> None:
        amount = read_named_price(text)
        if first is not None and amount.currency != first.currency:
            raise ValueError(f"the first price is in {first.currency}; give all in one currency")

    return read_named_price(prompter.text(f"What does one {name} cost? (2.50 USD/h)", check))


def _count(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise ValueError("an integer, at least 1")
    return int(text)


def ask_demands(prompter: Prompter, given: list[str] | None, models: list[str]) -> list[Demand]:
    """Prompt for use cases, unless they are given, and for the rate of each."""
    names = given or prompter.several("What is it used for?", list(use_cases()), use_case)
    each = " for each model" if len(models) > 1 else ""
    return [
        Demand(name, prompter.text(f"How many requests of {name}{each}? (10/s, 600/min)", check_rate))
        for name in names
    ]
