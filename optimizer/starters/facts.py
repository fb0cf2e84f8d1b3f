"""Facts from which a starter document is created: models, offers, demands and targets; and their checks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from optimizer.documents import MAX_QUANTITY
from optimizer.errors import SpecError
from optimizer.money import Price
from optimizer.schema import Load, SaturationPolicy
from optimizer.starters.prices import Offer
from optimizer.starters.use_cases import UseCase, use_case
from optimizer.units import REQUESTS_PER_MINUTE, UnitError, is_number

ByName = Mapping[str | None, float]
"""Values by use case; the key None applies to all other use cases."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests of one use case for one model, or for each model."""

    use_case: str
    rate: str
    """Rate with a unit, as written in documents: ``10/s``, ``600/min``."""
    model: str | None = None
    """Name of the model; None if each model has this rate."""
    traced: Load | None = None
    """Load of recorded requests, whose shapes replace the lengths of the use case; None without a trace."""


@dataclass(frozen=True, slots=True)
class ClassTargets:
    """Latency targets of a service class."""

    limits_ms: Mapping[str, float]
    """Limits by latency, `ttft`, `itl` or `e2e` [ms]; latencies without a limit are absent."""
    percentile: float | None
    """Percentile to which the limits apply; None for the mean."""
    given: bool
    """Whether any limit overrides the targets of the use case."""


@dataclass(frozen=True, slots=True)
class StarterFacts:
    """Facts from which a starter document is created."""

    models: tuple[str, ...]
    """Models: names of the catalogue, or paths of config.json files relative to the document."""
    offers: tuple[Offer, ...]
    demands: tuple[Demand, ...]
    file: str = "system.yaml"
    """File name of the document, used in its comments."""
    folder: Path = Path()
    """Folder of the document, to which the paths of config.json files are relative."""
    weights: str | None = None
    """Weight format of all models; None selects the published format."""
    targets_ms: Mapping[str, ByName] = field(default_factory=dict)
    """Targets that override those of use cases [ms], by latency; 0: no target."""
    percentiles: ByName = field(default_factory=dict)
    """Percentiles to which targets apply, by use case; other use cases have targets for the mean."""
    saturation: SaturationPolicy | None = None
    """Saturation policy of the document; None if it states none."""
    raised_ms: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Latency targets of use cases that are raised, because the usual ones are hardly attainable [ms], by use
    case and latency.
    """

    @property
    def is_unlimited(self) -> bool:
        """Whether no offer states a number of cards, as offers of clouds do."""
        return all(offer.count is None for offer in self.offers)

    @property
    def rented(self) -> dict[str, Price]:
        """Lowest price of a rented card, by accelerator that is also owned."""
        owned = {offer.accelerator for offer in self.offers if offer.count is not None}
        rented: dict[str, Price] = {}
        for offer in self.offers:
            if offer.count is None and offer.accelerator in owned:
                price = Price(round(offer.price / offer.cards, 6), offer.price.currency)
                rented[offer.accelerator] = min(price, rented.get(offer.accelerator, price))
        return rented

    def in_nodes(self, offer: Offer) -> bool:
        """Return whether an offer is a node, which is bought or rented with all its cards.

        Cards that exist are in nodes if no offer of their type is a single card.
        """
        alike = [other.cards for other in self.offers if other.accelerator == offer.accelerator]
        return offer.cards > 1 and (self.is_unlimited or min(alike) > 1)

    @property
    def use_cases(self) -> list[str]:
        """Names of the use cases, in the order of their priorities."""
        return list(dict.fromkeys(item.use_case for item in self.demands))

    def is_given(self, latency: str, name: str) -> bool:
        """Return whether a latency target is given for a use case, so that it is not the usual one."""
        return _of(name, self.targets_ms.get(latency, {})) is not None

    def models_of(self, name: str) -> tuple[str, ...]:
        """Return the models that serve requests of a use case."""
        asked = [item.model for item in self.demands if item.use_case == name]
        return tuple(model for model in self.models if None in asked or model in asked)

    def cases_of(self, model: str) -> list[UseCase]:
        """Return the use cases that a model serves."""
        return [use_case(item.use_case) for item in self.demands if item.model in {None, model}]

    def targets_of(self, name: str) -> ClassTargets:
        """Return the targets of a use case, including values that override them."""
        case = use_case(name)
        own = {"ttft": case.ttft_ms, "itl": case.itl_ms, "e2e": 0.0}
        given = {latency: _of(name, values) for latency, values in self.targets_ms.items()}
        replaced = {latency: limit for latency, limit in given.items() if limit is not None}
        raised = self.raised_ms.get(name, {})
        limits = {latency: limit for latency, limit in (own | replaced | dict(raised)).items() if limit}
        percentile = _of(name, self.percentiles)
        return ClassTargets(limits, percentile, bool(replaced) or percentile is not None)


def _of(name: str, values: ByName) -> float | None:
    """Return the value for a use case, or else the default for all use cases; None if there is neither."""
    return values[name] if name in values else values.get(None)


def is_path(model: str) -> bool:
    """Return whether a model is given as the path of a config.json."""
    return model.endswith(".json")


def model_name(model: str) -> str:
    """Return the name of a model; for the path of a config.json, the name of its folder."""
    if not is_path(model):
        return model
    parts = [part for part in model.replace("\\", "/").split("/") if part not in {"", ".", ".."}]
    return parts[-2] if len(parts) > 1 else parts[-1].removesuffix(".json")


def check_start(start: StarterFacts) -> None:
    """Check that the facts are complete and consistent.

    Raises:
        SpecError: a fact is missing, out of range, or contradicts another.
    """
    for given, what in (
        (start.models, "a model"),
        (start.offers, "an accelerator"),
        (start.demands, "a use case with its rate"),
    ):
        if not given:
            raise SpecError(f"incomplete facts: give {what}")
    _check_prices(start.offers)
    _check_counts(start)
    _check_rented(start.offers)
    for demand in start.demands:
        _check_demand(demand, start)
    for flag, values in {**start.targets_ms, "percentile": start.percentiles}.items():
        for name in values:
            if name is not None and name not in start.use_cases:
                known = ", ".join(start.use_cases)
                raise SpecError(f"{flag} of {name}: there are no requests of this use case; known: {known}")


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
                f"{first.price.currency}; give all prices in one currency, or use those of a file in one: "
                f"--currency {first.price.currency}"
            )


def _check_counts(start: StarterFacts) -> None:
    """Check the numbers and the prices of owned cards; each offer of nodes has its own number."""
    known: dict[str, Offer] = {}
    owned = (offer for offer in start.offers if offer.count is not None and not start.in_nodes(offer))
    for offer in owned:
        other = known.setdefault(offer.accelerator, offer)
        if other.count != offer.count:
            raise SpecError(
                f"accelerator {offer.accelerator}: {other.count} cards for {other.name}, but "
                f"{offer.count} for {offer.name}; slices share their cards, so give one number"
            )


def _check_rented(offers: tuple[Offer, ...]) -> None:
    """Check that rented cards cost at least as much as owned ones of the same type, which are used first."""
    for owned in offers:
        for rented in offers:
            if owned.count is None or rented.count is not None or owned.accelerator != rented.accelerator:
                continue
            if rented.price / rented.cards < owned.price / owned.cards:
                raise SpecError(
                    f"accelerator {owned.accelerator}: a rented card costs less than an owned one, so owned "
                    "ones would never be used; give what they cost to run, or leave one of the two out"
                )


def check_rate(text: str) -> None:
    """Check the text of a rate, which must have a unit: a number alone would be read per minute.

    Raises:
        SpecError: the text is not a rate above 0, or has no unit.
    """
    try:
        rate = REQUESTS_PER_MINUTE.read(text)
    except UnitError as error:
        raise SpecError(str(error)) from None
    if not 0 < rate <= MAX_QUANTITY:
        raise SpecError(f"must be more than 0, not {text}")
    if is_number(text):
        raise SpecError(f"{text} has no unit; write {text}/s or {text}/min")


def _check_demand(demand: Demand, start: StarterFacts) -> None:
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
