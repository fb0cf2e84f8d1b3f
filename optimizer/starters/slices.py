"""Which slices of cards hold which models; and in words, which of the offers do not, and why.

Takes the facts of a document; gives the slices, and for every model those that hold it. What is left out is
named with its reason.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from optimizer.errors import SpecError
from optimizer.money import Price
from optimizer.profiles.catalogue import load_catalogue
from optimizer.profiles.deployment import Deployment
from optimizer.profiles.estimate import DoesNotFitError, estimate_profile, find_model
from optimizer.profiles.facts import ModelFacts
from optimizer.starters.facts import Start, is_path
from optimizer.starters.prices import Offer

SLICES = (1, 2, 4, 8)
"""Cards of one replica that are offered to the planner, as far as a model fits them."""
MOST_OVER_PCIE = 2
"""Devices beyond which tensor parallelism over PCIe is far slower than any estimate says."""
_SMALLER_WEIGHTS = ("fp8", "int4")
"""Formats that are suggested for a model that does not fit."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Cards that one replica may take."""

    name: str
    type: str
    accelerator: str
    cards: int
    price: Price


@dataclass(frozen=True, slots=True)
class Choice:
    """The slices of a document, and what of the offers is not used."""

    fits: Mapping[str, tuple[Slice, ...]]
    """By model: the slices that hold it with requests of its longest use case."""
    used: tuple[Slice, ...]
    """The slices that hold any model, in the order of the offers."""
    notes: tuple[str, ...]
    """What of the offers is not used, and why, in words."""


def choose_slices(start: Start) -> Choice:
    """Return which slices hold which models.

    Raises:
        SpecError: a name does not exist, a model has no requests, or fits nothing that is offered.
    """
    slices, notes = _offered(start)
    if not slices:
        raise SpecError(f"no accelerator can be had: {'; '.join(notes)}")
    fits: dict[str, tuple[Slice, ...]] = {}
    for model in start.models:
        why = _misfits(model, slices, start)
        fits[model] = tuple(item for item in slices if item not in why)
        if not fits[model]:
            raise SpecError(_fits_nothing(model, why, start))
        notes += [f"{model} is not offered on {text}" for text in _by_reason(why)]
    used = tuple(item for item in slices if any(item in mine for mine in fits.values()))
    return Choice(fits, used, tuple(notes))


def _offered(start: Start) -> tuple[list[Slice], list[str]]:
    """Return what replicas may take, and the offers that are of no use, in words."""
    found: dict[str, Slice] = {}
    notes: list[str] = []
    for offer in start.offers:
        if start.template == "clouds" and offer.count is not None:
            notes.append(f"the count of {offer.name} is not used: clouds have no limits")
        elif offer.count is not None and offer.cards > offer.count:
            notes.append(f"{offer.name} is left out: it takes {offer.cards} cards, {offer.count} exist")
        for item in _slices_of(offer, start):
            other = found.setdefault(item.name, item)
            if other.price != item.price:
                found[item.name], dearer = sorted((other, item), key=lambda one: one.price)
                notes.append(f"{item.name} at {dearer.price} is left out: it is also offered for less")
    return list(found.values()), notes


def _slices_of(offer: Offer, start: Start) -> Iterator[Slice]:
    """Yield the slices of an offer: several cards as they are sold, single cards together up to eight."""
    prefix = f"{offer.place}/" if start.template == "clouds" and offer.place else ""
    limit = math.inf if start.template == "clouds" or offer.count is None else offer.count
    for times in SLICES if offer.cards == 1 and not prefix else (1,):
        cards = offer.cards * times
        if cards <= limit:
            name = offer.accelerator if cards == 1 else f"{cards}x{offer.accelerator}"
            price = Price(offer.price * times, offer.price.currency)
            yield Slice(prefix + name, prefix + offer.accelerator, offer.accelerator, cards, price)


def _misfits(
    model: str, slices: Sequence[Slice], start: Start, weights: str | None = None
) -> dict[Slice, str]:
    """Return the slices that do not hold a model, each with the reason.

    Raises:
        SpecError: the model does not exist, or has no requests.
    """
    facts = find_model(start.folder / model if is_path(model) else model)
    longest = max(start.cases_of(model), key=lambda case: case.in_tokens + case.out_tokens, default=None)
    if longest is None:
        raise SpecError(f"model {model!r} has no requests; give a rate for it, or leave it out")
    deployment = Deployment(
        weights=weights or start.weights, in_tokens=longest.in_tokens, out_tokens=longest.out_tokens
    )
    found = ((item, _misfit(facts, item, deployment)) for item in slices)
    return {item: why for item, why in found if why is not None}


def _misfit(facts: ModelFacts, item: Slice, deployment: Deployment) -> str | None:
    """Return why a slice does not hold a model; None if it does."""
    accelerator = load_catalogue().accelerator(item.accelerator)
    devices = item.cards * accelerator.devices
    if accelerator.over_pcie and devices > MOST_OVER_PCIE:
        return f"over PCIe at most {MOST_OVER_PCIE} devices share a model (more are slower than estimated)"
    if facts.heads % devices:
        return f"its {facts.heads} attention heads do not divide by {devices}"
    try:
        estimate_profile(facts, accelerator, replace(deployment, tp=devices))
    except DoesNotFitError as error:
        return f"it needs {error.needed_gib:.1f} GiB a device, the engine may take {error.usable_gib:.1f}"
    return None


def _by_reason(why: Mapping[Slice, str]) -> list[str]:
    """Return slices with their reasons, those with the same reason together."""
    names: dict[str, list[str]] = {}
    for item, reason in why.items():
        names.setdefault(reason, []).append(item.name)
    return [f"{', '.join(mine)}: {reason}" for reason, mine in names.items()]


def _fits_nothing(model: str, why: Mapping[Slice, str], start: Start) -> str:
    """Return what to say of a model that no slice holds, with what would."""
    text = f"model {model!r} fits none of the accelerators: {'; '.join(_by_reason(why))}"
    return "; ".join((text, *_remedies(model, list(why), start)))


def _remedies(model: str, slices: Sequence[Slice], start: Start) -> Iterator[str]:
    """Yield other weights and other accelerators with which a model would fit."""
    for weights in _SMALLER_WEIGHTS if start.weights is None else ():
        misfits = _misfits(model, slices, start, weights)
        holding = next((item for item in slices if item not in misfits), None)
        if holding is not None:
            yield f"with {weights} weights {holding.name} would hold it"
            break
    free = Price(0.0, "USD")
    others = [
        (cards * facts.memory_gib, Slice(f"{cards}x{name}", name, name, cards, free))
        for name, facts in load_catalogue().accelerators.items()
        for cards in SLICES
    ]
    ranked = [item for _, item in sorted(others, key=lambda other: (other[0], other[1].name))]
    misfits = _misfits(model, ranked, start)
    larger = next((item for item in ranked if item not in misfits), None)
    if larger is not None:
        yield f"{larger.name.removeprefix('1x')} would hold it"
