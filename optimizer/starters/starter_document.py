"""Creates a system document from a few facts: models, accelerators on offer, use cases with their rates.

`StarterFacts` become commented YAML. Token times are requested as estimates, so nothing has to be measured
first. Every target has its reason in a comment.
"""

import json
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from optimizer.candidates import find_candidates
from optimizer.checking.steep import steep_targets
from optimizer.profiles.catalogue import load_catalogue
from optimizer.queueing.measures import is_about
from optimizer.schema.files import Part, part_of, text_of
from optimizer.schema.yaml_format import yaml_value
from optimizer.spec.system import join_parts
from optimizer.starters.facts import Demand, StarterFacts, check_start, is_path, model_name
from optimizer.starters.slices import Choice, choose_slices
from optimizer.starters.use_cases import use_case

_WIDTH = 100
POLICY = "PriorityExhaustive"
"""Saturation policy of a document if the facts state none."""
_RAISED = (1.25, 1.5, 2.0, 3.0, 5.0)
"""Factors on hardly attainable targets of use cases, in the order in which they are tried."""
_ODD = " \t'\"#:,[]{}&*!|>%@`\\"
"""Characters because of which a name must be quoted in YAML."""


def document_of(start: StarterFacts) -> str:
    """Return a complete, commented system document as YAML.

    Raises:
        SpecError: a name does not exist, a fact is missing, or a model fits no accelerator on offer.
    """
    return _text_of(with_attainable_targets(start))


def with_attainable_targets(start: StarterFacts) -> StarterFacts:
    """Return the facts with higher targets where the cost of those of a use case explodes near their limits.

    Targets that are given are not changed.

    Raises:
        SpecError: under the same conditions as in `document_of`.
    """
    check_start(start)
    changed = start
    for factor in _RAISED:
        system = join_parts([_part(_text_of(changed), start)])
        steep = steep_targets(find_candidates(system))
        raised = {name: dict(limits) for name, limits in changed.raised_ms.items()}
        names = list(system.servers)
        for warning in steep:
            case = system.servers[names[warning.server]].service_class
            for latency, limit in start.targets_of(case).limits_ms.items():
                binds = not warning.target or is_about(warning.target, latency)
                if binds and not start.is_given(latency, case):
                    raised.setdefault(case, {})[latency] = limit * factor
        if raised == changed.raised_ms:
            break
        changed = replace(start, raised_ms=raised)
    return changed


def _text_of(start: StarterFacts) -> str:
    choice = choose_slices(start)
    lines = [
        *_heading(start),
        *_accelerators(choice),
        *_nodes(choice),
        *_models(choice, start),
        *_classes(start),
        *_servers(start),
        *_count(start, choice),
        *_optimizer(start),
    ]
    text = "\n".join(lines).rstrip() + "\n"
    join_parts([_part(text, start)])  # raises if the document is inconsistent
    return text


def notes_of(start: StarterFacts) -> tuple[str, ...]:
    """Return notes about offers that a document does not use, and about targets that are raised.

    Raises:
        SpecError: under the same conditions as in `document_of`.
    """
    check_start(start)
    raised = (
        f"the usual slo-{latency} of {name} is raised to {_time(limit)}, because the cost explodes near it"
        for name, limits in start.raised_ms.items()
        for latency, limit in limits.items()
    )
    return (*choose_slices(start).notes, *raised)


def _part(text: str, start: StarterFacts) -> Part:
    document = text_of(text, start.file, json_only=False, folder=start.folder.absolute())
    return part_of(document, document.value())


# --- the text ------------------------------------------------------------------------------------------


def _heading(start: StarterFacts) -> Iterator[str]:
    cards = "cloud offers side by side, without limits" if start.is_unlimited else "a limited number of cards"
    yield f"# A system for inferplan: {', '.join(map(model_name, start.models))} on {cards}."
    file = start.file
    yield f"# Next: inferplan check {file}; inferplan solve {file}; inferplan report {file} -o report.html"
    yield "# Every field is described in docs/reference.md; numbers can have units: 500ms, 10/s, $2.50/h."
    yield ""


def _accelerators(choice: Choice) -> Iterator[str]:
    yield "# Accelerators for replicas. Slices of one type share its cards; cost is the price of the slice."
    if choice.nodes:
        yield "# Cards in nodes have no cost of their own: the node has it."
    for note in choice.notes:
        yield from _comment(f"{note}.")
    yield "accelerators:"
    for item in choice.used:
        facts = load_catalogue().accelerator(item.accelerator)
        fields = [f"name: {_text(item.name)}", f"type: {_text(item.type)}"]
        if item.cards > 1:
            fields.append(f"multiplicity: {item.cards}")
        if item.price is not None:
            fields.append(f"cost: {item.price}")
        if facts.power_w and facts.idle_w:
            idle, full = facts.idle_w * item.cards, facts.power_w * item.cards
            fields.append(f"power: {{idle: {idle:g}W, full: {full:g}W}}")
        yield f"  - {{{', '.join(fields)}}}"
    yield ""


def _nodes(choice: Choice) -> Iterator[str]:
    """Yield the lines of the offers of whole nodes."""
    if not choice.nodes:
        return
    yield from _comment(
        "Nodes are paid for whole, and replicas of several models share their cards. The plan decides how "
        "many nodes of each type it uses, up to maxNodes."
    )
    yield "nodes:"
    owned = {item.name for item in choice.nodes if item.count is not None}
    instances = Counter(item.instance for item in choice.nodes)
    for item in choice.nodes:
        suffix = "rented" if item.count is None and item.name in owned else "node"
        is_unique = item.instance and instances[item.instance] == 1
        name = item.instance if is_unique else f"{item.name}-{suffix}"
        fields = [f"name: {_text(name)}", f"type: {_text(item.type)}"]
        fields += [f"cards: {item.cards}", f"cost: {item.price}"]
        fields += [] if item.count is None else [f"maxNodes: {item.count // item.cards}"]
        yield f"  - {{{', '.join(fields)}}}"
    yield ""


def _models(choice: Choice, start: StarterFacts) -> Iterator[str]:
    yield from _comment(
        "Each model on each slice that it fits on. Token times are estimated from the model's architecture "
        "and the accelerator's data sheet; plans use the slow end of the estimate. "
        "Once you have measured, replace estimate by alpha, beta and gamma."
    )
    yield "models:"
    for model, slices in choice.fits.items():
        settings = [f"config: {_text(model)}"] if is_path(model) else []
        settings += [] if start.weights is None else [f"weights: {_text(start.weights)}"]
        parms = f"{{estimate: {{{', '.join(settings)}}}}}" if settings else "estimate"
        for item in slices:
            yield f"  - {{name: {_text(model_name(model))}, acc: {_text(item.name)}, perfParms: {parms}}}"
    yield ""


def _classes(start: StarterFacts) -> Iterator[str]:
    meaning = "apply to the stated percentiles" if start.percentiles else "are means over all requests"
    yield f"# Service classes. Priority 1 is served first; latency targets {meaning}."
    yield "serviceClasses:"
    for priority, name in enumerate(start.use_cases, start=1):
        targets = start.targets_of(name)
        usual = replace(start, raised_ms={}).targets_of(name).limits_ms
        yield from (f"  {line}" for line in _reasons(name, given=targets.given))
        for latency, limit in start.raised_ms.get(name, {}).items():
            yield from (f"  {line}" for line in _comment(
                f"But slo-{latency} is raised from the usual {_time(usual[latency])} to {_time(limit)}: an "
                "idle replica already takes almost all of the usual limit, so its cost would explode."
            ))  # fmt: skip
        yield f"  - name: {name}"
        yield f"    priority: {priority}"
        yield "    modelTargets:"
        fields = [f"slo-{latency}: {_time(limit)}" for latency, limit in targets.limits_ms.items()]
        fields += [] if targets.percentile is None else [f"percentile: {targets.percentile:g}"]
        for model in start.models_of(name):
            yield f"      - {{{', '.join([f'model: {_text(model_name(model))}', *fields])}}}"
    yield ""


def _reasons(name: str, *, given: bool) -> Iterator[str]:
    """Yield comments with the reasons for the targets of a class.

    Args:
        name: name of the use case.
        given: whether targets were given that override those of the use case.
    """
    case = use_case(name)
    if given:
        lengths = case.source.partition("; targets:")[0]
        yield from _comment(f"{case.title}. Its targets are as requested.")
        yield from _comment(f"Source of {lengths}.")
    else:
        yield from _comment(f"{case.title}. {case.why}")
        yield from _comment(f"Source of {case.source}.")


def _servers(start: StarterFacts) -> Iterator[str]:
    yield "# Servers to place: one model for one class, with its request rate and mean lengths."
    yield "servers:"
    for demand in start.demands:
        case = use_case(demand.use_case)
        stated = case.in_tokens_cv is not None and case.out_tokens_cv is not None
        if stated and demand.traced is None:
            yield (
                f"  # {demand.use_case}: lengths vary (coefficient of variation {case.in_tokens_cv:g} in, "
                f"{case.out_tokens_cv:g} out, in the source)."
            )
            yield "  # Percentiles assume 1; to use these, state inTokensCV and outTokensCV in load."
        for model in (demand.model,) if demand.model else start.models:
            yield f"  - name: {_text(f'{demand.use_case}-{model_name(model)}')}"
            yield f"    class: {demand.use_case}"
            yield f"    model: {_text(model_name(model))}"
            yield from _load(demand)
    yield ""


def _load(demand: Demand) -> Iterator[str]:
    """Yield the lines of a load: mean lengths, or the request shapes of a trace."""
    case = use_case(demand.use_case)
    if demand.traced is None:
        lengths = f"avgInTokens: {case.in_tokens:g}, avgOutTokens: {case.out_tokens:g}"
        yield f"    currentAlloc: {{load: {{arrivalRate: {_text(demand.rate)}, {lengths}}}}}"
        return
    yield "    currentAlloc:"
    yield "      load:"
    yield f"        arrivalRate: {_text(demand.rate)}"
    yield "        # Clusters of the recorded requests by prompt length."
    yield "        shapes:"
    for shape in demand.traced.shapes:
        fields = shape.model_dump(by_alias=True, exclude_unset=True, exclude_none=True)
        yield f"          - {{{', '.join(f'{key}: {value}' for key, value in fields.items())}}}"


def _count(start: StarterFacts, choice: Choice) -> Iterator[str]:
    if start.is_unlimited:
        return
    used = {item.accelerator for item in choice.used} - {item.accelerator for item in choice.nodes}
    if not used:
        return
    yield f"# Available cards by type; to ignore this limit: inferplan solve {start.file} --unlimited"
    rented = {name: price for name, price in start.rented.items() if name in used}
    if rented:
        yield "# more: the price of each card beyond count, of which any number can be rented."
    yield "count:"
    owned = {offer.accelerator: offer.count for offer in start.offers if offer.count is not None}
    for type_name in dict.fromkeys(offer.accelerator for offer in start.offers):
        if type_name in used and type_name in owned:
            more = f", more: {rented[type_name]}" if type_name in rented else ""
            yield f"  - {{type: {_text(type_name)}, count: {owned[type_name]}{more}}}"
        elif type_name in used:
            yield f"  - {{type: {_text(type_name)}, count: unlimited}}"
    yield ""


def _optimizer(start: StarterFacts) -> Iterator[str]:
    """Yield the lines with planning options.

    The saturation policy has its reason in a comment, and is omitted if cards are unlimited.
    """
    if start.is_unlimited:
        yield f"# Clouds have unlimited cards. To compare the offers: inferplan candidates {start.file}"
        policy = "" if start.saturation is None else f", saturationPolicy: {start.saturation}"
        yield f"optimizer: {{unlimited: true{policy}}}"
        return
    yield from _comment(
        f"If the cards do not suffice, {POLICY} serves the remaining servers in part, the highest "
        "priority first. With None a server is served in full or not at all, so cards can stay idle. "
        "docs/policies.md compares the policies."
    )
    yield from _comment(
        "Other options: headroomShare: 20% (room for growth), budget: 150 USD/h, maxPower: 20kW. Spare "
        "replicas belong to a server: spareReplicas: 1."
    )
    yield f"optimizer: {{saturationPolicy: {start.saturation or POLICY}}}"


def _time(time_ms: float) -> str:
    return f"{time_ms / 1000:g}s" if time_ms >= 1000 else f"{time_ms:g}ms"


def _comment(text: str) -> Iterator[str]:
    return iter(textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# "))


def _text(text: str) -> str:
    """Return text as a YAML scalar, quoted only if necessary."""
    if text.isprintable() and not any(sign in _ODD for sign in text) and yaml_value(text, "") == text:
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())
