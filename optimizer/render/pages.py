"""Renders a report as an HTML file or as Markdown, or its pools as CSV.

Equal reports give equal bytes. Names are user input, so they are always escaped.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Literal, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from optimizer.render.plots import draw
from optimizer.render.pool_table import pool_table
from optimizer.render.report_memo import memo_figures
from optimizer.render.report_sections import MEMO, report_sections, status
from optimizer.section import FOR_PROGRAMS, Section
from optimizer.spec.arguments import checks_documents
from optimizer.spec.system import System
from optimizer.studies.figures.figure_document import BarPanel, Figure
from optimizer.studies.figures.plans import PANELS, PlannedSystem
from optimizer.studies.report import Report
from optimizer.studies.target_rows import TargetRow, server_rows
from optimizer.text import printable

PageFormat = Literal["html", "markdown", "csv"]

MAX_TIGHTEST = 12
"""Maximum number of servers in the picture of the memo, which has to fit on the first page."""
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
    scale: float | None = None
    """Factor by which the loads of the input are multiplied; None without one."""

    @property
    def title(self) -> str:
        """Title of the page, with the name of the fleet if it is known."""
        name = printable(self.source).removesuffix(".yaml").removesuffix(".yml").removesuffix(".json")
        return f"Plan of the inference fleet{f' {name}' if name else ''}"

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
    system = report.overview.plan.planned_in(system)
    if page_format == "csv":
        return pool_table(report.overview, system).csv()
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
    rows = server_rows(system, report.plan, report.overview)
    parts = _parts(report, system, rows, origin.scale)
    shown = PlannedSystem(system, report.overview)
    script = files("optimizer.render").joinpath("sort_tables.js").read_text("utf-8")
    return environment.get_template("page.html.j2").render(
        title=origin.title,
        status=status(report.overview),
        headline=memo_figures(report, system, rows),
        memo=[part for part in parts if part.name in MEMO],
        sections=[part for part in parts if part.name not in MEMO],
        made=origin.sentence(),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
        pictures={
            section.name: _picture(shown, section.picture)
            for section in parts
            if section.picture and report.overview.pools
        },
    )


def _parts(report: Report, system: System, rows: Sequence[TargetRow], scale: float | None) -> list[Section]:
    """Return the sections of a report that have content, with all values as text, and totals as last rows.

    They have all columns that have values, except columns that only spell out marks.
    """
    return [
        part
        for part in map(_as_text, report_sections(report, system, rows, scale))
        if part.text or part.rows or part.notes or (part.picture and report.overview.pools)
    ]


def _as_text(section: Section) -> Section:
    held = [] if section.hidden else section.held()
    held = [i for i in held if section.columns[i].rank < FOR_PROGRAMS]
    columns = [section.columns[i] for i in held]
    rows = [tuple(section.columns[i].cell(row[i]) for i in held) for row in section.all_rows() if held]
    return replace(
        section,
        title=printable(section.title),
        text=[paragraph._replace(text=printable(paragraph.text)) for paragraph in section.text],
        columns=columns,
        rows=rows,
        notes=[*map(printable, section.notes)],
    )


def _picture(shown: PlannedSystem, name: str) -> str:
    (panel,) = (item for item in PANELS[name](shown, None) if isinstance(item, BarPanel))
    count = len(panel.bars)
    note = f"the {MAX_TIGHTEST} tightest of {count:,} servers" if count > MAX_TIGHTEST else ""
    panel = panel.model_copy(update={"bars": panel.bars[:MAX_TIGHTEST]})
    figure = Figure(title="", note=note, panels=(panel,), types=shown.types)
    return base64.b64encode(draw(figure, "svg")).decode("ascii")


def _markdown(report: Report, system: System, origin: PageMetadata) -> str:
    rows = server_rows(system, report.plan, report.overview)
    made = [_escaped(origin.sentence()), ""] if origin.version else []
    lines = [f"# {_escaped(origin.title)}", "", *made, _escaped(status(report.overview)), ""]
    lines += [_line(("figure", "value", "")), _line(("---", "---:", "---"))]
    for fact in memo_figures(report, system, rows):
        value = _escaped(fact.value)
        shown = f"**{value}**" if fact.state == "missed" else value
        lines.append(_line((_escaped(fact.name), shown, _escaped(fact.note))))
    for section in _parts(report, system, rows, origin.scale):
        if section.picture and not section.rows:
            continue
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
