"""Renders a report as an HTML file or as Markdown, or its pools as CSV.

Equal reports give equal bytes. Names are user input, so they are always escaped.
"""

import base64
import csv
import hashlib
import io
import re
from collections.abc import Iterable
from dataclasses import replace
from importlib.resources import files
from typing import Literal, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from optimizer.kinds.kind import Kind
from optimizer.kinds.table import KINDS, KindPoolFields, KindRowFields, kind_of_pool, kinds_of
from optimizer.render.plots import draw
from optimizer.render.report_sections import plan_headline, report_sections, status
from optimizer.section import FOR_PROGRAMS, Paragraph, Section
from optimizer.spec.arguments import checks_documents
from optimizer.spec.system import System
from optimizer.studies.figures.figure_document import Figure
from optimizer.studies.figures.plans import PANELS, PlannedSystem, left_out
from optimizer.studies.overview import PoolRow
from optimizer.studies.report import Report
from optimizer.text import printable, spreadsheet_text

PageFormat = Literal["html", "markdown", "csv"]

_FIELDS = (
    "server", "service_class", "model", "priority", "in_tokens", "out_tokens", "accelerator", "type",
    "num_replicas", "max_batch", "units", "cost_cents_per_h", "arrival_rate_rpm", "max_arrival_rate_rpm",
    "itl_ms", "itl_target_ms", "ttft_ms", "ttft_target_ms", "wait_ms", "utilization", "loss",
    *KindPoolFields.model_fields, *KindRowFields.model_fields, "estimated", "provenance", "outside",
)  # fmt: skip
"""Fields of a pool, in the order of the CSV columns."""
SERVED = "servedFraction"
"""CSV heading of the served fraction of a server's load."""
_NO_POOL = {"numReplicas": 0, "units": 0, "cost": 0.0, "arrivalRate": 0.0, "maxArrivalRate": 0.0}
"""CSV values of the row of a server without pools."""
_TITLE = "Plan of the inference fleet"
_MARKDOWN_SIGNS = re.compile(r"[\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_])|:(?=//)")
"""Pattern for characters that are escaped in Markdown; underscores within words are not."""


class PageMetadata(NamedTuple):
    """Version, source and date stated on a report page; unknown ones are omitted."""

    version: str = ""
    """Version of inferplan."""
    source: str = ""
    """Name of the input file or folder."""
    date: str = ""
    """Date stated on the page. The caller supplies it, so that equal input gives equal pages."""

    def sentence(self) -> str:
        """Return the known metadata as a sentence; empty if nothing is known."""
        parts = [f"Made by inferplan{f' {self.version}' if self.version else ''}"]
        parts += [f"from {printable(self.source)}"] if self.source else []
        parts += [f"as of {printable(self.date)}"] if self.date else []
        return f"{' '.join(parts)}."


@checks_documents
def render_report(
    report: Report, system: System, page_format: PageFormat, origin: PageMetadata | None = None
) -> str:
    """Return a report as a page of text.

    Args:
        report: result of `make_report`.
        system: the reported system.
        page_format: html, markdown or csv (a row for each pool, and for each server without any).
        origin: version, source and date for the page; not used in CSV.
    """
    if page_format == "csv":
        return _csv(report)
    if page_format == "markdown":
        return _markdown(report, system, origin or PageMetadata())
    return _html(report, system, origin or PageMetadata())


def _html(report: Report, system: System, origin: PageMetadata) -> str:
    environment = Environment(
        loader=PackageLoader("optimizer.render", "."),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    found = _parts(report, system)
    shown = PlannedSystem(system, report.overview)
    script = files("optimizer.render").joinpath("sort_tables.js").read_text("utf-8")
    return environment.get_template("page.html.j2").render(
        title=_TITLE,
        status=status(report.overview),
        headline=plan_headline(report.overview),
        sections=found,
        made=origin.sentence(),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
        pictures={
            section.name: _picture(shown, section.picture)
            for section in found
            if section.picture and report.overview.pools
        },
    )


def _parts(report: Report, system: System) -> list[Section]:
    """Return the sections of a report that have content, with all values as text, and totals as last rows.

    They have all columns that have values, except columns that only spell out marks.
    """
    return [
        part
        for part in map(_as_text, report_sections(report, system))
        if part.text or part.rows or part.notes
    ]


def _as_text(section: Section) -> Section:
    held = [] if section.hidden else section.held()
    held = [i for i in held if section.columns[i].rank < FOR_PROGRAMS]
    columns = [section.columns[i] for i in held]
    rows = [tuple(section.columns[i].cell(row[i]) for i in held) for row in section.all_rows() if held]
    return replace(
        section,
        title=printable(section.title),
        text=[Paragraph(printable(paragraph.text)) for paragraph in section.text],
        columns=columns,
        rows=rows,
        notes=[*map(printable, section.notes)],
    )


def _picture(shown: PlannedSystem, name: str) -> str:
    figure = Figure(
        title="", note=left_out(shown, (name,)), panels=PANELS[name](shown, None), types=shown.types
    )
    return base64.b64encode(draw(figure, "svg")).decode("ascii")


def _markdown(report: Report, system: System, origin: PageMetadata) -> str:
    made = [] if origin == PageMetadata() else [_escaped(origin.sentence()), ""]
    lines = [f"# {_TITLE}", "", *made, _escaped(status(report.overview)), ""]
    lines += [_line(("figure", "value")), _line(("---", "---:"))]
    for fact in plan_headline(report.overview):
        value = _escaped(fact.value)
        lines.append(_line((_escaped(fact.name), f"**{value}**" if fact.alert else value)))
    for section in _parts(report, system):
        lines += [] if lines[-1] == "" else [""]
        lines += [f"## {section.title}", ""] if section.title else []
        for paragraph in section.text:
            lines += [_escaped(paragraph.text), ""]
        if section.rows:
            lines += [_line(column.heading for column in section.columns)]
            lines += [_line(["---:" if column.content == "number" else "---" for column in section.columns])]
            lines += [_line(map(_escaped, row)) for row in section.rows]
            lines += [""]
        for note in section.notes:
            lines += [_escaped(note), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    """Escape text for Markdown."""
    plain = _MARKDOWN_SIGNS.sub(r"\\\g<0>", printable(text))
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _csv(report: Report) -> str:
    """Return the pools of a report as CSV, with a row for each pool and each server without pools.

    Headings are keys of the JSON documents, and numbers have all digits. Names that a spreadsheet would treat
    as formulas are prefixed by an apostrophe, which marks text.
    """
    text = io.StringIO()
    pools = report.overview.pools
    names = _names_of_fields(report)
    measures = dict.fromkeys(figure.measure for pool in pools for figure in pool.targets)
    more = [heading for measure in measures for heading in (measure, f"{measure} limit")]
    aliases = {shown.alias: shown for kind in kinds_of(pools) for shown in kind.metrics if shown.alias}
    more = [*aliases, *more]
    headings = [*names, SERVED, *more]
    shares = {item.server: item.served_fraction for item in report.plan.unserved}
    rows = csv.DictWriter(text, headings, lineterminator="\n")
    rows.writeheader()
    for pool in pools:
        values = pool.model_dump(by_alias=True, exclude={"targets"})
        values |= {"outside": "; ".join(pool.outside), SERVED: shares.get(pool.server, 1.0)}
        kind = kind_of_pool(pool)
        values |= dict.fromkeys(_name_of_field(name) for name in _of_kinds(KINDS) - _of_kinds([kind]))
        values |= {shown.alias: getattr(pool, shown.field) for shown in kind.metrics if shown.alias}
        for figure in pool.targets:
            values |= {figure.measure: figure.value, f"{figure.measure} limit": figure.limit}
        rows.writerow({name: spreadsheet_text(values[name]) for name in headings if name in values})
    for empty in (*report.overview.unplaced, *report.overview.idle):
        values = empty.model_dump(by_alias=True) | _NO_POOL | {SERVED: shares.get(empty.server, 1.0)}
        rows.writerow({name: spreadsheet_text(values[name]) for name in headings if name in values})
    return text.getvalue()


def _names_of_fields(report: Report) -> list[str]:
    """Return the CSV headings of the fields that any pool of the report has."""
    pools = report.overview.pools
    rare = {"estimated", "provenance", "outside", *KindPoolFields.model_fields} - _of_kinds(KINDS)
    left_out = {name for name in rare if not any(getattr(pool, name) for pool in pools)}
    left_out |= _of_kinds(KINDS) - _of_kinds(kinds_of(pools))
    return [_name_of_field(name) for name in _FIELDS if name not in left_out]


def _of_kinds(kinds: Iterable[Kind]) -> set[str]:
    """Return the pool fields that at least one of the given kinds has."""
    return {field for kind in kinds for field in kind.fields}


def _name_of_field(name: str) -> str:
    return PoolRow.model_fields[name].alias or name
