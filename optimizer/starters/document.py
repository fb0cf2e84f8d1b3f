"""A system document from few facts: models, what can be bought, use cases with their rates.

Takes a `Start`, gives commented YAML. Token times are asked for as estimates, so that nothing has to be
measured first; what stands in it are the user's facts and the use cases', each with its reason.
"""

import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from optimizer.errors import SpecError
from optimizer.money import Price
from optimizer.profiles.catalogue import load_catalogue
from optimizer.profiles.deployment import Deployment
from optimizer.profiles.estimate import DoesNotFitError, estimate_profile, find_model
from optimizer.spec.yaml_format import yaml_value
from optimizer.starters.prices import Offer
from optimizer.starters.use_cases import use_case
from optimizer.units import REQUESTS_PER_MINUTE, UnitError, is_number

Template = Literal["one-model", "fleet", "clouds"]
TEMPLATES: dict[Template, str] = {
    "one-model": "one model on the cards that exist",
    "fleet": "several models and classes of service on the cards that exist",
    "clouds": "what clouds offer, side by side, without limits",
}
SLICES = (1, 2, 4, 8)
"""Cards of one replica that are offered to the planner, as far as a model fits them."""
_MOST_OVER_PCIE = 2
"""Devices beyond which tensor parallelism over PCIe is far slower than any estimate says."""
_WIDTH = 100
_ODD = " \t'\"#:,[]{}&*!|>%@`\\"
"""Characters of a name that is put in quotes."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests of one use case for a model, or for each."""

    use_case: str
    rate: str
    """As documents write it: ``10/s``, ``600``."""
    model: str | None = None
    """None: each model gets this rate."""


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


def document_of(start: Start) -> str:
    """Return a complete system document.

    Raises:
        SpecError: a name does not exist, a fact is missing, or a model fits nothing that is offered.
    """
    _check(start)
    slices = _slices(start)
    fits = {model: _fitting(model, slices, start) for model in start.models}
    used = [item for item in slices if any(item in mine for mine in fits.values())]
    lines = [
        *_heading(start),
        *_accelerators(used),
        *_models(fits),
        *_classes(start),
        *_servers(start),
        *_count(start),
    ]
    return "\n".join(lines) + "\n"


def _check(start: Start) -> None:
    for given, what in (
        (start.models, "a model"),
        (start.offers, "an accelerator"),
        (start.demands, "a use case with its rate"),
    ):
        if not given:
            raise SpecError(f"nothing to start from: name {what}")
    if start.template == "one-model" and len(start.models) > 1:
        raise SpecError(f"the template one-model takes one model, not {len(start.models)}; choose fleet")
    unknown = [offer.name for offer in start.offers if offer.count is None]
    if start.template != "clouds" and unknown:
        raise SpecError(
            f"accelerator {unknown[0]}: how many cards exist? The template {start.template} plans within "
            "them; say it, or choose clouds"
        )
    for demand in start.demands:
        _check_demand(demand, start)


def _check_demand(demand: Demand, start: Start) -> None:
    use_case(demand.use_case)
    try:
        REQUESTS_PER_MINUTE.read(demand.rate)
    except UnitError as error:
        raise SpecError(f"rate of {demand.use_case}: {error}") from None
    if demand.model is not None and demand.model not in start.models:
        raise SpecError(f"rate of {demand.use_case}: model {demand.model!r} is not among the models")
    alike = [item for item in start.demands if item.use_case == demand.use_case]
    if any(item is not demand and item.model in {None, demand.model} for item in alike):
        raise SpecError(f"rate of {demand.use_case}: given twice for one model")


@dataclass(frozen=True, slots=True)
class _Slice:
    """Cards that one replica may take."""

    name: str
    type: str
    accelerator: str
    cards: int
    price: Price


def _slices(start: Start) -> list[_Slice]:
    """Return what replicas may take: offers of several cards as they are, of single cards up to eight."""
    found: dict[str, _Slice] = {}
    for offer in start.offers:
        prefix = f"{offer.place}/" if start.template == "clouds" and offer.place else ""
        for times in SLICES if offer.cards == 1 and not prefix else (1,):
            cards = offer.cards * times
            if offer.count is not None and cards > offer.count:
                continue
            name = offer.accelerator if cards == 1 else f"{cards}x{offer.accelerator}"
            price = Price(offer.price * times, offer.price.currency)
            found.setdefault(
                prefix + name,
                _Slice(prefix + name, prefix + offer.accelerator, offer.accelerator, cards, price),
            )
    return list(found.values())


def _fitting(model: str, slices: Sequence[_Slice], start: Start) -> list[_Slice]:
    """Return the slices that hold a model with requests of its longest use case.

    Raises:
        SpecError: none does.
    """
    facts = find_model(start.folder / model if _is_path(model) else model)
    cases = [use_case(item.use_case) for item in start.demands if item.model in {None, model}]
    longest = max(cases, key=lambda case: case.in_tokens + case.out_tokens, default=None)
    if longest is None:
        raise SpecError(f"model {model!r} has no requests; give a rate for it, or leave it out")
    found, why = [], None
    for item in slices:
        devices = load_catalogue().accelerator(item.accelerator).devices
        deployment = Deployment(
            tp=item.cards * devices, in_tokens=longest.in_tokens, out_tokens=longest.out_tokens
        )
        over_pcie = load_catalogue().accelerator(item.accelerator).over_pcie
        if facts.heads % deployment.tp or (over_pcie and deployment.tp > _MOST_OVER_PCIE):
            continue
        try:
            estimate_profile(facts, item.accelerator, deployment)
        except DoesNotFitError as error:
            why = error
        else:
            found.append(item)
    if not found:
        raise SpecError(f"model {model!r} fits none of the accelerators: {why or 'its heads do not divide'}")
    return found


# --- the text ------------------------------------------------------------------------------------------


def _heading(start: Start) -> Iterator[str]:
    yield f"# A system for inferplan: {TEMPLATES[start.template]}."
    file = start.file
    yield f"# Next: inferplan check {file}; inferplan solve {file}; inferplan report {file} -o report.html"
    yield "# Every field is described in docs/reference.md; numbers may have units: 500ms, 10/s, $2.50/h."
    yield ""


def _accelerators(slices: Sequence[_Slice]) -> Iterator[str]:
    yield "# What replicas may run on. Slices of one type share its cards; cost is the price of the slice."
    yield "accelerators:"
    for item in slices:
        facts = load_catalogue().accelerator(item.accelerator)
        fields = [f"name: {_text(item.name)}", f"type: {_text(item.type)}"]
        if item.cards > 1:
            fields.append(f"multiplicity: {item.cards}")
        fields.append(f"cost: {item.price}")
        if facts.power_w and facts.idle_power_w:
            idle, full = facts.idle_power_w * item.cards, facts.power_w * item.cards
            fields.append(f"power: {{idle: {idle:g}W, full: {full:g}W}}")
        yield f"  - {{{', '.join(fields)}}}"
    yield ""


def _models(fits: dict[str, list[_Slice]]) -> Iterator[str]:
    yield from _comment(
        "Every model on every slice that holds it. The token times are estimated from the model's "
        "architecture and the data sheet of the accelerator; plans count with the slow end of the estimate. "
        "Once you have measured, put alpha, beta and gamma in place of estimate."
    )
    yield "models:"
    for model, slices in fits.items():
        for item in slices:
            parms = "estimate"
            if _is_path(model):
                parms = f"{{estimate: {{config: {_text(model)}}}}}"
            yield f"  - {{name: {_text(_name(model))}, acc: {_text(item.name)}, perfParms: {parms}}}"
    yield ""


def _classes(start: Start) -> Iterator[str]:
    yield "# What is promised. Priority 1 is served first; targets are means over all requests."
    yield "serviceClasses:"
    for priority, name in enumerate(dict.fromkeys(item.use_case for item in start.demands), start=1):
        case = use_case(name)
        yield from (f"  {line}" for line in _comment(f"{case.title}. {case.why}"))
        yield from (f"  {line}" for line in _comment(f"Source of {case.source}."))
        yield f"  - name: {name}"
        yield f"    priority: {priority}"
        yield "    modelTargets:"
        for model in _models_of(start, name):
            yield (
                f"      - {{model: {_text(_name(model))}, slo-ttft: {_time(case.ttft_ms)}, "
                f"slo-itl: {_time(case.itl_ms)}}}"
            )
    yield ""


def _servers(start: Start) -> Iterator[str]:
    yield "# What is to be placed: one model for one class, with its requests and their mean lengths."
    yield "servers:"
    for demand in start.demands:
        case = use_case(demand.use_case)
        if case.in_tokens_cv is not None and case.out_tokens_cv is not None:
            yield (
                f"  # {demand.use_case}: lengths vary (coefficient of variation {case.in_tokens_cv:g} in, "
                f"{case.out_tokens_cv:g} out, in the source)."
            )
        for model in (demand.model,) if demand.model else start.models:
            load = (
                f"arrivalRate: {demand.rate if is_number(demand.rate) else _text(demand.rate)}, "
                f"avgInTokens: {case.in_tokens:g}, "
                f"avgOutTokens: {case.out_tokens:g}"
            )
            yield f"  - name: {_text(f'{demand.use_case}-{_name(model)}')}"
            yield f"    class: {demand.use_case}"
            yield f"    model: {_text(_name(model))}"
            yield f"    currentAlloc: {{load: {{{load}}}}}"
    yield ""


def _count(start: Start) -> Iterator[str]:
    if start.template == "clouds":
        yield f"# Clouds have any number of cards. What each offer costs: inferplan candidates {start.file}"
        yield "optimizer: {unlimited: true}"
        return
    yield f"# Cards that exist, by type; without that limit: inferplan solve {start.file} --unlimited"
    yield "count:"
    counts: dict[str, int] = {}
    for offer in start.offers:
        counts.setdefault(offer.accelerator, offer.count or 0)
    for kind, count in counts.items():
        yield f"  - {{type: {_text(kind)}, count: {count}}}"


def _models_of(start: Start, name: str) -> tuple[str, ...]:
    """Return the models that have requests of a use case."""
    asked = [item.model for item in start.demands if item.use_case == name]
    return tuple(model for model in start.models if None in asked or model in asked)


def _is_path(model: str) -> bool:
    return model.endswith(".json")


def _name(model: str) -> str:
    """Return what a model is called: its name, or the folder of its config.json."""
    if not _is_path(model):
        return model
    parts = [part for part in model.replace("\\", "/").split("/") if part not in {"", ".", ".."}]
    return parts[-2] if len(parts) > 1 else parts[-1].removesuffix(".json")


def _time(time_ms: float) -> str:
    return f"{time_ms / 1000:g}s" if time_ms >= 1000 else f"{time_ms:g}ms"


def _comment(text: str) -> Iterator[str]:
    return iter(textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# "))


def _text(text: str) -> str:
    """Return text as YAML has it, in quotes only where it would be read as something else."""
    if text.isprintable() and not any(sign in _ODD for sign in text) and yaml_value(text, "") == text:
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())
