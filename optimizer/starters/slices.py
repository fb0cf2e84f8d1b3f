"""Chooses the accelerators on which each model fits, and notes why other offers are not used."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from optimizer.arrays import grouped
from optimizer.errors import SpecError
from optimizer.money import Price
from optimizer.profiles.capacity import split_problem
from optimizer.profiles.catalogue import load_catalogue
from optimizer.profiles.deployment import Deployment
from optimizer.profiles.estimate import DoesNotFitError, estimate_profile, find_model
from optimizer.profiles.layers import ModelFacts
from optimizer.quantities import counted
from optimizer.starters.facts import StarterFacts, is_path
from optimizer.starters.prices import Offer
from optimizer.text import slice_name

SLICES = (1, 2, 4, 8)
"""Numbers of cards per replica from which the planner can choose."""
NODE_SIZES = (*SLICES, 16)
"""Numbers of cards of replicas in nodes; each divides the next."""
MAX_OVER_PCIE = 2
"""Maximum number of devices for tensor parallelism over PCIe; with more, estimates are far too fast."""
_SMALLER_WEIGHTS = ("fp8", "int4")
"""Weight formats to suggest for a model that does not fit."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Cards of one replica, at the price of an offer."""

    name: str
    type: str
    accelerator: str
    cards: int
    price: Price | None
    """Price; None for cards in nodes, which have the price."""
    is_node: bool = False
    """Whether it is an offer of several cards, as sold."""
    count: int | None = None
    """Number of cards that exist; None for any number."""
    instance: str = ""
    """Instance type of the cloud, with its place; empty if the offer does not state it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Accelerators and nodes that a starter document uses, with notes about unused offers."""

    fits: Mapping[str, tuple[Slice, ...]]
    """Accelerators, by model, on which the model fits with requests of its longest use case."""
    used: tuple[Slice, ...]
    """Accelerators on which at least one model fits, in the order of the offers."""
    nodes: tuple[Slice, ...]
    """Offers of whole nodes, which hold the replicas on accelerators of their type."""
    notes: tuple[str, ...]
    """Notes on unused offers, with reasons."""


def choose_slices(start: StarterFacts) -> Choice:
    """Choose the accelerators on which each model fits.

    Raises:
        SpecError: a name does not exist, or a model has no requests or fits no slice on offer.
    """
    offered, notes = _offered(start)
    if not offered:
        raise SpecError(f"no accelerator is available: {'; '.join(notes)}")
    slices, nodes = _in_nodes(offered)
    notes += [f"{item.name} is a node: several replicas share its cards" for item in nodes if item.is_node]
    fits: dict[str, tuple[Slice, ...]] = {}
    for model in start.models:
        why = _misfits(model, slices, start)
        fits[model] = tuple(item for item in slices if item not in why)
        if not fits[model]:
            raise SpecError(_fits_nothing(model, why, start))
        notes += [f"{model} is not offered on {text}" for text in _by_reason(why)]
    used = tuple(item for item in slices if any(item in mine for mine in fits.values()))
    types = {item.type for item in used}
    return Choice(fits, used, tuple(item for item in nodes if item.type in types), tuple(notes))


def _in_nodes(offered: Sequence[Slice]) -> tuple[list[Slice], list[Slice]]:
    """Return the accelerators for replicas, and the offers that are nodes.

    If cards of a type are sold several at a time, all offers of the type are nodes; single cards in any
    number are nodes of each size. Replicas in nodes have 1, 2, 4, … cards.
    """
    types = {item.type for item in offered if item.is_node}
    nodes = [item for item in offered if item.type in types]
    slices: dict[str, Slice] = {item.name: item for item in offered if item.type not in types}
    for kind in dict.fromkeys(item.type for item in nodes):
        mine = [item for item in nodes if item.type == kind]
        most, prefix = max(item.cards for item in mine), kind.removesuffix(mine[0].accelerator)
        for cards in (size for size in NODE_SIZES if size <= most):
            name = prefix + slice_name(mine[0].accelerator, cards)
            slices[name] = Slice(name, kind, mine[0].accelerator, cards, None)
    return list(slices.values()), nodes


def _offered(start: StarterFacts) -> tuple[list[Slice], list[str]]:
    """Return the accelerators on offer, and notes about offers that are not used."""
    slices: dict[tuple[str, bool], Slice] = {}
    notes: list[str] = []
    for offer in start.offers:
        if offer.count is None and offer.accelerator in start.rented and not start.in_nodes(offer):
            if offer.cards > 1:
                price = start.rented[offer.accelerator]
                notes.append(f"cards of {offer.name} are rented one by one, at {price} each")
            continue  # the document states their price with the number of owned cards
        if offer.count is not None and offer.cards > offer.count and offer.accelerator not in start.rented:
            exist = f"{offer.count} {'exists' if offer.count == 1 else 'exist'}"
            notes.append(f"{offer.name} is omitted: it takes {counted(offer.cards, 'card')}, but {exist}")
        elif start.in_nodes(offer) and offer.count is not None and offer.count % offer.cards:
            left = counted(offer.count % offer.cards, "card")
            notes.append(f"{left} of {offer.name} fill no node of {offer.cards} and are not used")
        for item in _slices_of(offer, start):
            other = slices.setdefault((item.name, item.count is None), item)
            if other.price != item.price:
                slices[item.name, item.count is None], dearer = sorted((other, item), key=_price_of)
                notes.append(f"{item.name} at {dearer.price} is omitted: there is a cheaper offer")
    return list(slices.values()), notes


def _price_of(item: Slice) -> float:
    return 0.0 if item.price is None else item.price


def _slices_of(offer: Offer, start: StarterFacts) -> Iterator[Slice]:
    """Yield the accelerators of an offer: as sold and, for single cards, also groups of up to eight."""
    prefix = f"{offer.place}/" if start.is_unlimited and offer.place else ""
    endless = start.is_unlimited or offer.accelerator in start.rented
    limit = math.inf if endless or offer.count is None else offer.count
    for times in SLICES if offer.cards == 1 and not prefix else (1,):
        cards = offer.cards * times
        if cards <= limit:
            name = slice_name(offer.accelerator, cards)
            price = Price(offer.price * times, offer.price.currency)
            is_node, count = start.in_nodes(offer), offer.count
            instance = prefix + offer.instance if offer.instance else ""
            yield Slice(
                prefix + name,
                prefix + offer.accelerator,
                offer.accelerator,
                cards,
                price,
                is_node,
                count,
                instance,
            )


def _misfits(
    model: str, slices: Sequence[Slice], start: StarterFacts, weights: str | None = None
) -> dict[Slice, str]:
    """Return the accelerators on which a model does not fit, each with the reason.

    Raises:
        SpecError: the model does not exist, or has no requests.
    """
    facts = find_model(start.folder / model if is_path(model) else model)
    longest = max(start.cases_of(model), key=lambda case: case.in_tokens + case.out_tokens, default=None)
    if longest is None:
        raise SpecError(f"model {model!r} has no requests; give a rate for it, or remove it")
    deployment = Deployment(
        weights=weights or start.weights, in_tokens=longest.in_tokens, out_tokens=longest.out_tokens
    )
    misfits = ((item, _misfit(facts, item, deployment)) for item in slices)
    return {item: why for item, why in misfits if why is not None}


def _misfit(facts: ModelFacts, item: Slice, deployment: Deployment) -> str | None:
    """Return the reason why a model does not fit on an accelerator; None if it fits."""
    accelerator = load_catalogue().accelerator(item.accelerator)
    devices = item.cards * accelerator.devices
    if accelerator.over_pcie and devices > MAX_OVER_PCIE:
        return f"at most {MAX_OVER_PCIE} devices can share a model over PCIe (more are slower than estimated)"
    split = split_problem(facts, devices)
    if split is not None:
        return f"its {split}"
    try:
        estimate_profile(facts, accelerator, replace(deployment, tp=devices))
    except DoesNotFitError as error:
        return (
            f"it needs {error.needed_gib:.1f} GiB per device, but the engine may use {error.usable_gib:.1f}"
        )
    return None


def _by_reason(why: Mapping[Slice, str]) -> list[str]:
    """Describe accelerators with their reasons, grouped by reason."""
    names = grouped((reason, item.name) for item, reason in why.items())
    return [f"{', '.join(mine)}: {reason}" for reason, mine in names.items()]


def _fits_nothing(model: str, why: Mapping[Slice, str], start: StarterFacts) -> str:
    """Explain why a model fits on no accelerator, and suggest remedies."""
    text = f"model {model!r} fits none of the accelerators: {'; '.join(_by_reason(why))}"
    return "; ".join((text, *_remedies(model, list(why), start)))


def _remedies(model: str, slices: Sequence[Slice], start: StarterFacts) -> Iterator[str]:
    """Yield the weight formats and accelerators with which a model would fit, as text."""
    for weights in _SMALLER_WEIGHTS if start.weights is None else ():
        misfits = _misfits(model, slices, start, weights)
        holding = next((item for item in slices if item not in misfits), None)
        if holding is not None:
            yield f"with {weights} weights it fits on {holding.name}"
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
        yield f"it fits on {larger.name.removeprefix('1x')}"
