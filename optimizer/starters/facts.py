"""The facts that a document is made of: models, offers, requests and targets; and their contradictions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from optimizer.documents import MAX_QUANTITY
from optimizer.errors import SpecError
from optimizer.spec.schema import SaturationPolicy
from optimizer.starters.prices import Offer
from optimizer.starters.use_cases import UseCase, use_case
from optimizer.units import REQUESTS_PER_MINUTE, UnitError

Template = Literal["one-model", "fleet", "clouds"]
TEMPLATES: dict[Template, str] = {
    "one-model": "one model on the cards that exist",
    "fleet": "several models and classes of service on the cards that exist",
    "clouds": "what clouds offer, side by side, without limits",
}
ByName = Mapping[str | None, float]
"""Values by the name of a use case; None: for all others."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests of one use case for a model, or for each."""

    use_case: str
    rate: str
    """As documents write it: ``10/s``, ``600``."""
    model: str | None = None
    """None: each model gets this rate."""


@dataclass(frozen=True, slots=True)
class ClassTargets:
    """The targets of a class, and which of them replace those of its use case."""

    limits_ms: Mapping[str, float]
    """By latency: ``ttft``, ``itl``, ``e2e``; only those that there are."""
    percentile: float | None
    """Percentile at which they must hold; None: the mean."""
    given: bool
    """Whether any of them replaces that of the use case."""


@dataclass(frozen=True, slots=True)
class Start:
    """The facts that a document is made of."""

    template: Template
    models: tuple[str, ...]
    """Names of the catalogue, or paths of a config.json, relative to the document."""
    offers: tuple[Offer, ...]
    demands: tuple[Demand, ...]
    file: str = "system.yaml"
    """What the document will be called, for its own comments."""
    folder: Path = Path()
    """Where it will stand; the paths of a config.json start there."""
    weights: str | None = None
    """Format of the weights of all models; None: as published."""
    targets_ms: Mapping[str, ByName] = field(default_factory=dict)
    """Targets that replace those of use cases [ms], by latency; 0: no target."""
    percentiles: ByName = field(default_factory=dict)
    """Percentiles at which targets must hold; the mean for others."""
    saturation: SaturationPolicy | None = None
    """Who gets partial service when not everything fits; None: the document does not say."""

    @property
    def use_cases(self) -> list[str]:
        """The use cases in the order of their priorities."""
        return list(dict.fromkeys(item.use_case for item in self.demands))

    def models_of(self, name: str) -> tuple[str, ...]:
        """Return the models that have requests of a use case."""
        asked = [item.model for item in self.demands if item.use_case == name]
        return tuple(model for model in self.models if None in asked or model in asked)

    def cases_of(self, model: str) -> list[UseCase]:
        """Return the use cases of a model."""
        return [use_case(item.use_case) for item in self.demands if item.model in {None, model}]

    def targets_of(self, name: str) -> ClassTargets:
        """Return the targets of a use case: its own, unless others are given."""
        case = use_case(name)
        own = {"ttft": case.ttft_ms, "itl": case.itl_ms, "e2e": 0.0}
        given = {latency: _of(name, values) for latency, values in self.targets_ms.items()}
        replaced = {latency: limit for latency, limit in given.items() if limit is not None}
        limits = {latency: limit for latency, limit in (own | replaced).items() if limit}
        percentile = _of(name, self.percentiles)
        return ClassTargets(limits, percentile, bool(replaced) or percentile is not None)


def _of(name: str, values: ByName) -> float | None:
    """Return the value of a use case, or that of all others."""
    return values[name] if name in values else values.get(None)


def is_path(model: str) -> bool:
    """Return whether a model is the path of a config.json, and no name."""
    return model.endswith(".json")


def model_name(model: str) -> str:
    """Return what a model is called: its name, or the folder of its config.json."""
    if not is_path(model):
        return model
    parts = [part for part in model.replace("\\", "/").split("/") if part not in {"", ".", ".."}]
    return parts[-2] if len(parts) > 1 else parts[-1].removesuffix(".json")


def check_template(template: Template, models: tuple[str, ...], offers: tuple[Offer, ...]) -> None:
    """Check that a template suits the models and offers that are known so far.

    Raises:
        SpecError: it takes fewer models, or needs the number of cards.
    """
    if template == "one-model" and len(models) > 1:
        raise SpecError(f"the template one-model takes one model, not {len(models)}; choose fleet")
    unknown = [offer.name for offer in offers if offer.count is None]
    if template != "clouds" and unknown:
        raise SpecError(
            f"accelerator {unknown[0]}: how many cards exist? The template {template} plans within "
            "them; say it, or choose clouds"
        )


def check_start(start: Start) -> None:
    """Check facts against one another.

    Raises:
        SpecError: one is missing, out of range, or contradicts another.
    """
    for given, what in (
        (start.models, "a model"),
        (start.offers, "an accelerator"),
        (start.demands, "a use case with its rate"),
    ):
        if not given:
            raise SpecError(f"nothing to start from: name {what}")
    check_template(start.template, start.models, start.offers)
    _check_prices(start.offers)
    if start.template != "clouds":
        _check_counts(start.offers)
    for demand in start.demands:
        _check_demand(demand, start)
    for flag, values in {**start.targets_ms, "percentile": start.percentiles}.items():
        for name in values:
            if name is not None and name not in start.use_cases:
                known = ", ".join(start.use_cases)
                raise SpecError(f"{flag} of {name}: no requests of this use case; there are {known}")


def _check_prices(offers: tuple[Offer, ...]) -> None:
    first = offers[0]
    for offer in offers:
        if offer.cards < 1:
            raise SpecError(f"accelerator {offer.name}: must have at least one card")
        if offer.price < 0:
            raise SpecError(f"accelerator {offer.name}: the price must be at least 0, not {offer.price}")
        if offer.price.currency != first.price.currency:
            raise SpecError(
                f"accelerator {offer.name}: its price is in {offer.price.currency}, that of {first.name} in "
                f"{first.price.currency}; give all prices in one currency"
            )


def _check_counts(offers: tuple[Offer, ...]) -> None:
    known: dict[str, Offer] = {}
    for offer in offers:
        other = known.setdefault(offer.accelerator, offer)
        if other.count != offer.count:
            raise SpecError(
                f"accelerator {offer.accelerator}: {other.count} cards exist for {other.name}, but "
                f"{offer.count} for {offer.name}; slices share their cards, so give one number"
            )


def check_rate(text: str) -> None:
    """Check a rate as documents write it.

    Raises:
        SpecError: it is no rate, or not more than 0.
    """
    try:
        rate = REQUESTS_PER_MINUTE.read(text)
    except UnitError as error:
        raise SpecError(str(error)) from None
    if not 0 < rate <= MAX_QUANTITY:
        raise SpecError(f"must be more than 0, not {text}")


def _check_demand(demand: Demand, start: Start) -> None:
    use_case(demand.use_case)
    try:
        check_rate(demand.rate)
    except SpecError as error:
        raise SpecError(f"rate of {demand.use_case}: {error}") from None
    if demand.model is not None and demand.model not in start.models:
        raise SpecError(f"rate of {demand.use_case}: model {demand.model!r} is not among the models")
    alike = [item for item in start.demands if item.use_case == demand.use_case]
    if any(item is not demand and item.model in {None, demand.model} for item in alike):
        raise SpecError(f"rate of {demand.use_case}: given twice for one model")
