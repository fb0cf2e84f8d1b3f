"""Sub-commands for reports and figures: `report`, `plot`."""

import argparse
import os
import sys
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from optimizer.cli.command import Command, add_path, picture_format
from optimizer.cli.flags import add_request, in_flags, request_of
from optimizer.cli.solving import (
    add_cluster,
    add_load,
    announced,
    check_simulates,
    read_system,
    show_warnings,
    simulating,
)
from optimizer.errors import SpecError
from optimizer.jobs.figures import FigureOptions, show_figure
from optimizer.jobs.fitting import show_fit
from optimizer.jobs.flag import Flag
from optimizer.jobs.reporting import ReportOptions, report_plan
from optimizer.jobs.requests import RequestError
from optimizer.render.progress import working
from optimizer.spec.system import load_system
from optimizer.spec.writing import write_bytes, write_text
from optimizer.studies.figures.figure_document import Figure

if TYPE_CHECKING:
    from optimizer.render.pages import PageMetadata
    from optimizer.render.plots import Format

PLOTS = {
    "plan": "the next three plots on one page, with the nodes of a plan that has any",
    "load": "arrival rate and tokens of each model and class",
    "assignment": "accelerator and replicas of each model and class",
    "types": "cards, replicas and cost of each accelerator type",
    "targets": "latencies of each server as shares of their targets",
    "nodes": "cards of the nodes, with the replicas on them",
    "batch": "largest load and latencies by batch limit",
    "latency": "mean and percentiles of latencies against load, with the targets; rejected requests",
    "distribution": "distribution of request latencies: closed form and simulated",
    "cost": "cost against load, by accelerator",
}
"""Kinds of figures of a system, with descriptions; a test compares them with those of the library."""
OF_PROFILES = {"fit": "measured and predicted times of a fitted profile, which PATH then names"}
"""Kinds of figures of a profile, with descriptions."""
SIMULATED = {"distribution"}
"""Kinds of figures that need a simulation."""


class ReportFlags(ReportOptions):
    """Flags of `report`: the output files and the options of the report."""

    output: Annotated[Path | None, Flag("FILE", short="-o")] = None
    """Write one HTML file with embedded pictures."""
    markdown: Annotated[Path | None, Flag("FILE")] = None
    """Write the report as Markdown, without pictures."""
    csv: Annotated[Path | None, Flag("FILE")] = None
    """Write a CSV file with a row for each pool and target, and for each server without a pool."""
    date: Annotated[str | None, Flag("TEXT")] = None
    """Date to print on the page (SOURCE_DATE_EPOCH's, else none)."""


def _add_report(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Without a file to write, the Markdown page goes to stdout."
    add_path(parser)
    add_load(parser)
    add_request(parser, ReportFlags)
    add_cluster(parser)
    parser.add_argument("--json", action="store_true", help="write the report as JSON to stdout")


def _origin(arguments: argparse.Namespace) -> "PageMetadata":
    """Return the metadata of the report; the date is never today's, so equal input produces equal pages."""
    from optimizer import __version__
    from optimizer.render.pages import PageMetadata

    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    given = datetime.fromtimestamp(int(epoch), UTC).date().isoformat() if epoch.isdecimal() else ""
    source = "standard input" if arguments.path == "-" else Path(arguments.path).name or arguments.path
    date = given if arguments.date is None else arguments.date
    return PageMetadata(__version__, source, date, arguments.scale)


def _report(arguments: argparse.Namespace) -> None:
    from optimizer.render.pages import PageFormat, render_report

    options = request_of(ReportFlags, arguments)
    system = read_system(arguments, options)
    files: dict[PageFormat, Path | None] = {
        "html": arguments.output, "markdown": arguments.markdown, "csv": arguments.csv
    }  # fmt: skip
    _check_files(arguments)
    check_simulates(arguments)
    if arguments.simulate:
        with simulating(arguments) as progress:
            report = report_plan(system, options, progress)
    else:
        with working("writing the report"):
            report = report_plan(system, options)
    show_warnings(report.plan.warnings)
    with working("writing the report"):
        for page_format, path in files.items():
            if path is not None:
                write_text(render_report(report, system, page_format, _origin(arguments)), path)
    if arguments.json:
        print(report.to_json())
    elif not any(files.values()):
        sys.stdout.write(render_report(report, system, "markdown", _origin(arguments)))


def _check_files(arguments: argparse.Namespace) -> None:
    """Reject output files that overwrite each other or are likely mistakes, before anything is solved."""
    named = [path for path in (arguments.output, arguments.markdown, arguments.csv) if path is not None]
    for path in named:
        if named.count(path) > 1 and path.suffix:
            raise SpecError(f"{path}: given for two formats of the report; name another file for one of them")
    if arguments.output is not None and arguments.output.suffix.lower() not in {"", ".html", ".htm"}:
        raise SpecError(
            f"-o: {arguments.output}: the page is HTML; the name must end in .html or .htm; for Markdown, "
            "name --markdown FILE"
        )


def _add_plot(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    figures = "\n".join(f"  {name:<14}{text}" for name, text in (PLOTS | OF_PROFILES).items())
    parser.epilog = f"what to plot:\n{figures}"
    parser.add_argument(
        "kind", metavar="KIND", choices=(*PLOTS, *OF_PROFILES), help="what to plot; see below"
    )
    add_path(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, help="write FILE.svg, FILE.png or FILE.pdf"
    )
    add_request(parser, FigureOptions)
    parser.add_argument("--json", action="store_true", help="write the numbers shown as JSON to stdout")


def _plot(arguments: argparse.Namespace) -> None:
    from optimizer.render.plots import draw

    file_format = _picture_format(arguments)
    with working("plotting"), announced() if arguments.kind in SIMULATED else nullcontext():
        figure = show_fit(arguments.path) if arguments.kind in OF_PROFILES else _figure(arguments)
        if not figure.panels and not arguments.json:
            raise SpecError(f"{figure.title}: {figure.note}")
        if file_format is not None:
            write_bytes(draw(figure, file_format), arguments.output)
    if arguments.json:
        print(figure.to_json())


def _figure(arguments: argparse.Namespace) -> Figure:
    options = request_of(FigureOptions, arguments)
    try:
        return show_figure(options.applied(load_system(arguments.path)), options)
    except RequestError as error:
        raise in_flags(error, arguments) from None


def _picture_format(arguments: argparse.Namespace) -> "Format | None":
    """Return the format of the output file, by its suffix; None if only JSON is requested."""
    if arguments.output is not None:
        return picture_format(arguments.output)
    if arguments.json:
        return None
    raise SpecError("-o: missing; name the file to write, such as plot.svg, or ask for --json")


COMMANDS = {"report": Command(_add_report, _report), "plot": Command(_add_plot, _plot)}
