"""Work of the web page in a solver process: open, check, plan, compare, study and write.

Functions take a document as JSON and the changes of a visitor, and return plain values to show. They compute
only through `jobs`, so numbers on the page equal those of the commands.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from optimizer.checking.checks import check_text
from optimizer.documents import UnlimitedCards
from optimizer.errors import SpecError
from optimizer.jobs.comparing import CompareOptions, compare_plans
from optimizer.jobs.table import STUDIES
from optimizer.money import CENTS, cost_unit, in_cost_unit, read_price
from optimizer.pipeline import solve
from optimizer.plan import Plan
from optimizer.quantities import precise, quantity
from optimizer.render.answer_text import (
    cost_interval_text,
    measure_first_text,
    not_served_text,
    shortage_text,
)
from optimizer.render.colours import type_colours
from optimizer.render.comparison_sections import comparison_sections
from optimizer.render.estimates import estimates_notes
from optimizer.render.money import Money
from optimizer.render.plan_sections import plan_sections
from optimizer.render.report_memo import key_figures, typical_text
from optimizer.render.report_sections import status
from optimizer.schema.faults import Fault
from optimizer.schema.files import document_files, read_parts, read_text, text_of
from optimizer.schema.messages import validated
from optimizer.schema.samples import PREFIX, sample_or_path
from optimizer.schema.yaml_format import yaml_text
from optimizer.spec.changes import CHANGES, LATENCIES, QUANTITIES
from optimizer.spec.changes import OPTIONS as OPTION_FIELDS
from optimizer.spec.prices import price_of_card
from optimizer.spec.system import System, joined_document
from optimizer.studies.estimates import SLOW, EstimatePrice, price_of_estimates
from optimizer.studies.explanation.explanation_document import Explanation
from optimizer.studies.overview import describe
from optimizer.studies.service import service_by_priority
from optimizer.studies.shortage import find_shortage, shortage_of
from optimizer.studies.target_rows import server_rows
from optimizer.text import printable
from rest_server.limits import check_size
from rest_server.settings import Settings
from rest_server.sizing_memo import memo_of_process
from rest_server.v1.work import system_from
from rest_server.web.changes import OPTIONS, Changes
from rest_server.web.shown import (
    Controls,
    Opened,
    Outlook,
    PlanView,
    Quantity,
    Repair,
    StudyView,
    tables_of,
)

PRICE_TOLERANCE = 1e-9
"""Relative difference up to which prices per card count as equal."""
OUTLOOK_LIMIT_S = 10.0
"""Time limit for the typical cost, and for the cards that would serve everything [s]."""
SHOWN_ABOVE = {"allocations", "cards"}
"""Names of the sections of a plan that the page shows as its table of servers and as its charts."""
NUMBERS = {
    "budget": "Budget",
    "maxPower": "Power limit",
    "transitionPenalty": "Cost of a move, as a share of the cost of the replicas",
    "maxLoss": "Largest share of requests that a replica may reject",
}
"""Titles of numeric options, by name."""
PICTURED = {"sweep", "horizon"}
"""Studies whose result has a figure."""


def read_path(path: str) -> str:
    """Return the text of a sample, or of a path that was given to the program; several files are joined.

    Raises:
        SpecError: the document cannot be read.
    """
    opened = Path(sample_or_path(path))
    files = document_files(opened)
    if len(files) == 1:
        return read_text(files[0])
    try:
        return yaml_text(joined_document(read_parts(opened)))
    except SpecError:
        return "\n".join(read_text(file) for file in files)


def open_text(text: str, settings: Settings) -> Opened:
    """Open a document from text, with the findings of `check`."""
    checked = check_text(text)
    if checked.system is None:
        return Opened(text, checked.faults)
    document = text_of(text).value()
    assert isinstance(document, dict)
    try:
        system = system_from(document, settings)
    except SpecError as error:  # the system exceeds the size limits
        return Opened(text, (Fault((), str(error)),), checked.warnings)
    return Opened(text, (), checked.warnings, json.dumps(document).encode(), _controls(system))


def _document(system: System) -> dict[str, Any]:
    """Return a system as plain values, without defaults."""
    document: dict[str, Any] = system.to_spec().model_dump(mode="json", by_alias=True, exclude_unset=True)
    return document


def _controls(system: System) -> Controls:
    has_estimates = any(profile.is_estimated for profile in system.profiles.values())
    texts = {
        key: next(text for text, value in values.items() if value == _option(system, option))
        for key, (option, values) in OPTIONS.items()
        if key != "estimates" or has_estimates
    }
    targets = (
        Quantity(f"{latency}:{name}/{model}", f"{name}/{model} {latency.upper()}", "ms", limit, 10)
        for (name, model), target in system.targets.items()
        for latency, field in LATENCIES.items()
        if (limit := getattr(target, field))
    )
    return Controls(
        servers=tuple(CHANGES["load"].items(system)),
        counts=tuple(
            Quantity(f"count:{type_name}", type_name, "cards", _stated_cards(system, type_name), 1)
            for type_name in CHANGES["count"].items(system)
        ),
        prices=tuple(_prices(system)),
        targets=tuple(targets),
        numbers=tuple(
            _quantity(system, name, NUMBERS.get(name, name), _option(system, name))
            for name in QUANTITIES
            if name in OPTION_FIELDS and name != "headroomShare"
        ),
        options=texts,
        cost_unit=cost_unit(system.currency),
    )


def _option(system: System, name: str) -> Any:
    return getattr(system.options, OPTION_FIELDS[name])


def _quantity(system: System, key: str, name: str, value: float | None) -> Quantity:
    """Return the number of a change for the controls; costs are in the cost unit of the system."""
    known = CHANGES[key.partition(":")[0]]
    if known.unit != CENTS:
        return Quantity(key, name, known.unit, value, 1 if known.unit or known.whole else 0.1)
    shown = None if value is None else round(in_cost_unit(float(value), system.currency), 9)
    return Quantity(key, name, cost_unit(system.currency), shown, 0.1, system.currency)


def _prices(system: System) -> Iterator[Quantity]:
    """Yield the prices for the controls: per card if all accelerators of a type agree, else for each."""
    for type_name in CHANGES["card"].items(system):
        items = [item for item in system.accelerators.values() if item.type == type_name]
        each = [price_of_card(item) for item in items]
        if max(each) - min(each) <= PRICE_TOLERANCE * max(each):
            yield _quantity(system, f"card:{type_name}", type_name, each[0])
        else:
            for item in items:
                yield _quantity(system, f"cost:{item.name}", item.name, item.cost_cents_per_h)


def _stated_cards(system: System, type_name: str) -> int | None:
    """Return the stated number of cards of a type; None if none is stated, or if there is no limit."""
    cards = system.capacity.get(type_name)
    return cards.owned if isinstance(cards, UnlimitedCards) else cards


def changed_system(base: bytes, changes: Changes, settings: Settings) -> System:
    """Return the system of a document with changes.

    Raises:
        SpecError: a change does not match any item of the document, or makes the document inconsistent.
    """
    system = system_from(json.loads(base), settings)
    changed = changes.applied_to(system)
    check_size(changed.to_spec(), settings)
    return changed


def plan_view(base: bytes, changes: Changes, settings: Settings) -> PlanView:
    """Plan a document with changes, and prepare the plan for the page.

    Raises:
        SpecError: under the same conditions as in `changed_system`.
        SolverError: the solver failed.
    """
    system = changed_system(base, changes, settings)
    limit_s = min(system.options.time_limit_s, settings.max_solve_s)
    plan = solve(system, time_limit_s=limit_s, memo=memo_of_process(settings.sizing_memo_rows))
    overview, factor = describe(system, plan), _load_factor(system, changes)
    shortage = "" if plan.complete else f"{not_served_text(shortage_of(system, plan), factor)}."
    rows, service = server_rows(system, plan, overview), service_by_priority(plan, system)
    by_type = type_colours(sorted({item.type for item in system.accelerators.values()}))
    return PlanView(
        status=status(overview),
        tiles=tuple(key_figures(overview, rows, service)),
        servers=rows,
        tables=tables_of(item for item in plan_sections(plan, system)[1:] if item.name not in SHOWN_ABOVE),
        types=tuple(item for item in overview.types if item.type in by_type),
        service=service,
        cost=in_cost_unit(plan.total_cost_cents_per_h, plan.currency),
        colours={name: by_type[item.type] for name, item in system.accelerators.items()} | by_type,
        currency=plan.currency,
        plan=plan.to_json().encode(),
        warnings=tuple(printable(str(item)) for item in plan.warnings),
        answer=_answer(system, plan, None, None if shortage else factor),
        shortage=shortage,
        notes=tuple(printable(f"{note}.") for note in estimates_notes(plan)),
    )


def _load_factor(system: System, changes: Changes) -> float | None:
    """Return the factor on all loads; None without one."""
    text = changes.given.get("load")
    return None if text is None else CHANGES["load"].read(system, text)


def _answer(system: System, plan: Plan, price: EstimatePrice | None, factor: float | None) -> str:
    """Return the cost of a plan, and what to measure first, as sentences; empty if nothing is to say.

    Args:
        system: the system that it serves.
        plan: the plan.
        price: its cautious and typical cost, if they are known.
        factor: factor on all loads, which is stated; None without one.
    """
    is_cautious = plan.estimated_pools > 0 and system.options.estimates == SLOW
    if not (is_cautious or price or factor):
        return ""
    cautious = " at cautious token times" if is_cautious and price is None else ""
    sentences = cost_interval_text(plan, price, factor) + cautious, measure_first_text(plan, price)
    return " ".join(f"{text}." for text in sentences if text)


def outlook_view(base: bytes, changes: Changes, plan_json: bytes, settings: Settings) -> Outlook:
    """Work out the typical cost of a plan, and the cards that would serve everything.

    Args:
        base: the document as JSON.
        changes: changes of the document.
        plan_json: the plan of the document with its changes.
        settings: settings of the service.

    Raises:
        SpecError: under the same conditions as in `changed_system`.
        SolverError: the solver failed.
    """
    system, plan = changed_system(base, changes, settings), Plan.model_validate_json(plan_json)
    memo, money = memo_of_process(settings.sizing_memo_rows), Money.of(plan)
    price = price_of_estimates(system, plan, limit_s=OUTLOOK_LIMIT_S, memo=memo)
    shortage = find_shortage(system, plan, limit_s=OUTLOOK_LIMIT_S, memo=memo)
    way = None if shortage is None else shortage.way_out
    remedy = None
    if way is not None and way.added and not way.beyond:
        remedy = _more_cards(way.added, money.text(way.cost_cents_per_h), system)
    factor = _load_factor(system, changes)
    return Outlook(
        answer=_answer(system, plan, price, factor if shortage is None else None),
        cost_note=typical_text(price, money),
        shortage="" if shortage is None else shortage_text(shortage, money, factor),
        remedy=remedy,
    )


def limits_view(base: bytes, changes: Changes, settings: Settings) -> StudyView:
    """Compare the limited with the unlimited plan of a document with changes.

    Raises:
        SpecError: under the same conditions as in `changed_system`.
        SolverError: the solver failed.
    """
    given = {key: text for key, text in changes.given.items() if key != "cards"}
    system = changed_system(base, Changes(given=given), settings)
    return StudyView(tables_of(comparison_sections(compare_plans(system, None, CompareOptions()))))


def study_view(base: bytes, changes: Changes, name: str, options: str, settings: Settings) -> StudyView:
    """Run a study of a document with changes, and prepare its result for the page.

    Args:
        base: the document as JSON.
        name: name of the study.
        options: options of the study as JSON.
        settings: settings of the service.

    Raises:
        SpecError: an option or a change is invalid.
        SolverError: the solver failed.
    """
    study = STUDIES[name].study
    request = validated(study.options, json.loads(options))
    system = request.applied(changed_system(base, changes, settings))
    answer = study.answered(system, request)
    assert study.sections is not None
    picture = b""
    if name in PICTURED and study.page is not None:
        picture = study.page(answer, system, request.model_copy(update={"format": "svg"}))
    repairs = tuple(_repairs(answer, system)) if isinstance(answer, Explanation) else ()
    return StudyView(tables_of(study.sections(answer)), picture, repairs)


def _repairs(explanation: Explanation, system: System) -> Iterator[Repair]:
    """Yield the repairs of an explanation that controls of the page can make."""
    repair, money = explanation.repair, Money.of(explanation.plan)
    if repair is None:
        return
    shown = set()
    for item in (repair.cheapest, repair.fewest, *repair.of_one_type):
        if item is None or not item.added or tuple(item.added.items()) in shown:
            continue
        shown.add(tuple(item.added.items()))
        yield _more_cards(item.added, money.text(item.total_cost_cents_per_h), system)
    for target in repair.relaxations:
        name = f"{target.service_class}/{target.model}"
        limits = f"{precise(target.target_ms)} → {quantity(target.needed_ms, 10)} ms"
        text = f"{name} {target.metric.upper()} {limits}"
        yield Repair(text, {f"{target.metric}:{name}": f"{target.needed_ms:.12g}"})


def _more_cards(added: Mapping[str, int], cost: str, system: System) -> Repair:
    """Return the repair that adds cards.

    Args:
        added: number of cards to add by accelerator type.
        cost: total cost of the plan with these cards, as text.
        system: the system.
    """
    text = " ".join(f"+{count:,} {name}" for name, count in added.items())
    cards = {name: (_stated_cards(system, name) or 0) + count for name, count in added.items()}
    return Repair(f"{text}, {cost}", {f"count:{name}": f"{count}" for name, count in cards.items()})


def report_file(base: bytes, changes: Changes, file_format: str, settings: Settings) -> bytes:
    """Return the report on a document with changes.

    Args:
        base: the document, pickled.
        file_format: html, or csv for the table of pools.
        settings: settings of the service.

    Raises:
        SpecError: under the same conditions as in `changed_system`.
        SolverError: the solver failed.
    """
    study = STUDIES["report"].study
    system = changed_system(base, changes, settings)
    request = study.options(format=file_format, scale=_load_factor(system, changes))
    assert study.page is not None
    return study.page(study.answered(system, request), system, request)


def written_document(base: bytes, changes: Changes, settings: Settings) -> str:
    """Return a document with changes as YAML.

    Raises:
        SpecError: under the same conditions as in `changed_system`.
    """
    return yaml_text(_document(changed_system(base, changes, settings)))


def first_document(facts: str, settings: Settings) -> Opened:
    """Create a first document from the facts in the form.

    Args:
        facts: JSON with `models`, `offers` (accelerator, price, count) and `demands` (use case, rate).
        settings: settings of the service.

    Raises:
        SpecError: a name does not exist, or a fact is missing or invalid.
    """
    from optimizer.starters.facts import Demand, StarterFacts
    from optimizer.starters.prices import Offer
    from optimizer.starters.starter_document import document_of, notes_of, with_attainable_targets

    given = json.loads(facts)
    start = StarterFacts(
        models=tuple(given["models"]),
        offers=tuple(
            Offer(item["accelerator"], 1, _price(item["price"]), count=item["count"])
            for item in given["offers"]
        ),
        demands=tuple(Demand(item["case"], item["rate"]) for item in given["demands"]),
        targets_ms={
            latency: {item["case"]: item[latency] for item in given["demands"] if item.get(latency)}
            for latency in ("ttft", "itl")
        },
    )
    start = with_attainable_targets(start)
    document = open_text(document_of(start), settings)
    return replace(document, notes=notes_of(start))


def _price(text: str) -> Any:
    from optimizer.money import Price
    from optimizer.units import UnitError

    try:
        price = read_price(text)
    except UnitError as error:
        raise SpecError(f"price: {error}") from None
    if not isinstance(price, Price):
        raise SpecError(f"price: give its currency, such as $2.50/h, not {text!r}")
    return price


def is_sample(source: str) -> bool:
    """Return whether the name of a document is that of a sample system."""
    return source.startswith(PREFIX)
