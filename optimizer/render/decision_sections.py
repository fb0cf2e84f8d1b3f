"""Sections of a report for decision makers: costs, cards to buy, growth, risks, reasons and assumptions."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from optimizer.checking.sizes import STEEP
from optimizer.kinds.table import kinds_of
from optimizer.quantities import be, counted, counted_of, precise
from optimizer.queueing.measures import LATENCIES
from optimizer.render.estimates import outside_range
from optimizer.render.explanation_sections import explanation_sections
from optimizer.render.money import Money
from optimizer.render.plan_sections import node_price_notes
from optimizer.render.sweep_sections import sweep_sections
from optimizer.schema import Accelerator
from optimizer.section import Column, Paragraph, Section, name, table, titled_list
from optimizer.spec.system import System
from optimizer.studies.report import Report
from optimizer.studies.sweep.sweep_document import Sweep, SweepPoint
from optimizer.text import some_names

TIGHT = 0.05
"""Largest margin (one minus latency over target) at which a target is listed as a risk."""
REASONS = {"overview", "cards", "limits", "options", "targets"}
"""Names of the tables of an explanation that a report shows."""
REPAIRS = "What would serve everything"
"""Title of the list of changes that would serve all load."""
ELSEWHERE = {"Not served in full", "What would serve more"}
"""Titles of sections of an explanation that the report already shows in other tables."""


def growth_sections(report: Report) -> Iterator[Section]:
    """Yield the section on growth of the loads, if it was planned."""
    if report.growth is not None:
        cards = "with the same cards" if report.overview.limited else "with any number of cards"
        yield _growth(report.growth, Money.of(report.plan), cards)


def risk_sections(report: Report, system: System) -> Iterator[Section]:
    """Yield the section on risks, if there are any."""
    yield from titled_list("Risks", _risks(report, system), bullet="- ")


def _risks(report: Report, system: System) -> Iterator[str]:
    """Yield a sentence for each risk of the plan, the worst first."""
    plan, pools = report.plan, report.overview.pools
    short = {item.server for item in plan.unserved}
    steep = [warning for warning in plan.warnings if warning.code == STEEP]
    yield from (f"{warning.path.removeprefix('servers.')}: {warning.message}." for warning in steep)
    if plan.unserved:
        names = some_names([item.server for item in plan.unserved])
        yield f"{counted(len(plan.unserved), 'server')} {be(len(plan.unserved))} not served in full: {names}."
    if plan.lacks_reserve:
        yield f"{plan.reserve_text[0].upper()}{plan.reserve_text[1:]}."
    if report.simulation is not None:
        doubtful = [pool.server for pool in report.simulation.pools if pool.verdict != "held"]
        if doubtful:
            yield f"In simulation targets are missed or too close to call: {some_names(doubtful)}."
    if plan.estimated_pools:
        count = counted_of(plan.estimated_pools, len(pools), "pool")
        yield f"Token times of {count} are estimated, not measured."
    others = [warning for warning in plan.warnings if warning.code != STEEP]
    yield from (f"To check in the document: {warning}." for warning in others)
    yield from _fit_errors(report, system)
    yield from (f"{note}." for note in outside_range([plan]))
    tight = [
        f"{row.server} ({figure.measure} {1 - figure.value / figure.limit:.0%})"
        for row in pools
        if row.server not in short
        for metric in LATENCIES
        for figure in row.targets_on(metric)
        if figure.limit > 0 and figure.value > (1 - TIGHT) * figure.limit
    ]
    if tight:
        yield f"Less than {TIGHT:.0%} of a target is left: {some_names(tight)}."


def _fit_errors(report: Report, system: System) -> Iterator[str]:
    """Yield a sentence on the prediction errors of profiles that were fitted to measurements."""
    profiles = [system.profiles[row.model, row.accelerator] for row in report.overview.placed]
    errors = [item.provenance.errors for item in profiles if item.provenance is not None]
    if errors:
        ttft, itl = (max(getattr(item, key) for item in errors) for key in ("ttft", "itl"))
        yield (
            f"Fits of measured token times ({counted(len(errors), 'pool')}) have errors of up to "
            f"{ttft:.0%} of the TTFT and {itl:.0%} of the ITL."
        )


# --- growth ----------------------------------------------------------------------------------------------


def _growth(sweep: Sweep, money: Money, cards: str) -> Section:
    section = next(section for section in sweep_sections(sweep) if section.name == "points")
    section.title, section.name = "If loads grow", "growth"
    text = f"Plans for multiples of the loads, {cards}. {_growth_text(sweep.points, money)}"
    section.text = [Paragraph(text.rstrip())]
    return section


def _growth_text(points: Sequence[SweepPoint], money: Money) -> str:
    """State the largest multiple of the load that is served in full, its cost, and the service beyond it."""
    full = [point for point in points if not point.unserved]
    short = next((point for point in points if point.unserved), None)
    parts = []
    if full and full[-1].values[0] > 1:
        cost = money.text(full[-1].total_cost_cents_per_h)
        parts.append(f"{precise(full[-1].values[0])} times the load is served in full, for {cost}.")
    if full and short is not None:
        count = short.unserved
        parts.append(
            f"At {precise(short.values[0])} times, {counted(count, 'server')} {be(count)} not served in full."
        )
    if short is not None:
        parts.append("What is not served costs nothing, so that the cost can fall.")
    return " ".join(parts)


# --- reasons ---------------------------------------------------------------------------------------------


def repair_sections(report: Report) -> list[Section]:
    """Return the section with the changes that would serve all load; empty if nothing is unserved."""
    return [section for section in _explained(report) if section.name == "repairs"]


def reason_sections(report: Report) -> list[Section]:
    """Return the sections that explain the plan: its reasons, and the value of cards, options and targets."""
    limited = any(use.limit is not None for use in report.plan.capacity)
    names = REASONS if limited else REASONS - {"cards"}
    return [section for section in _explained(report) if section.name in names and section.rows]


def _explained(report: Report) -> list[Section]:
    """Return the tables of the report's explanation; other sections become notes of the table before them."""
    explained: list[Section] = []
    for section in [] if report.explanation is None else explanation_sections(report.explanation):
        if section.title.startswith(REPAIRS):
            explained.append(replace(section, title=REPAIRS, name="repairs"))
        elif section.columns or section.title in ELSEWHERE:
            explained.append(section)
        elif explained:
            title = [f"{section.title}:"] if section.title else []
            explained[-1].notes += [*title, *(paragraph.text for paragraph in section.text)]
    return explained


# --- assumptions -----------------------------------------------------------------------------------------


def basis_sections(report: Report, system: System) -> Iterator[Section]:
    """Yield the sections on the assumptions of the plan and on the prices of accelerators."""
    yield from titled_list("Assumptions", _assumptions(report, system), bullet="- ")
    money, used = Money.of(report.plan), {row.accelerator for row in report.overview.placed}

    def each(item: Accelerator) -> float:
        return item.cost_cents_per_h / item.multiplicity

    columns = (
        name("accelerator", "name"),
        name("type", "type"),
        Column("cards", "multiplicity", form=",d"),
        money.column("price", lambda item: item.cost_cents_per_h),
        money.column("price per card", each),
        name("in the plan", lambda item: "yes" if item.name in used else "no"),
    )
    notes = [*node_price_notes(system, money)]
    yield table("Prices", columns, system.accelerators.values(), "prices", notes=notes)


def _assumptions(report: Report, system: System) -> Iterator[str]:
    pools, options = report.overview.placed, system.options
    yield (
        "The loads of the table Assignment hold all the time; requests arrive independently of each other "
        "(Poisson), unless a server states arrivalCV."
    )
    if any(kind.lengths for kind in kinds_of(pools)):
        yield (
            "Token lengths are means; lengths spread with a coefficient of variation of 1, unless a server "
            "states its own."
        )
    yield "A target limits the mean over all requests, unless it names a percentile or a share."
    models = sorted({system.profiles[pool.model, pool.accelerator].queue_model for pool in pools})
    by = f", by the queue model {' and '.join(models)}" if models else ""
    yield f"Figures in steady state{by}; costs in {Money.of(report.plan).unit}."
    yield (
        "Prices are paid for every hour of the month and the year; energy, network traffic and staff are "
        "not included."
    )
    if options.saturation_policy != "None":
        yield f"If cards do not suffice, load is served in part by the policy {options.saturation_policy}."
