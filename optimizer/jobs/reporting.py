"""Study that writes a report on the best plan of a system."""

from typing import Annotated, Literal

from optimizer.jobs.effort import EffortOptions
from optimizer.jobs.flag import Flag
from optimizer.jobs.study import Study
from optimizer.parallel import Progress, ignore_progress
from optimizer.spec.arguments import checks_documents
from optimizer.spec.system import System
from optimizer.studies.report import Report, make_report


class ReportOptions(EffortOptions):
    """Format and content of a report, and optimizer options that override the document's."""

    brief: bool = False
    """Omit the sections on growth and reasons, which plan the system again about a hundred times."""
    simulate: bool = False
    """Add a section that compares predicted with simulated metrics."""
    format: Annotated[Literal["json", "html", "markdown", "csv"], Flag(only="route")] = "json"
    """Format of the response: JSON; an HTML page with embedded pictures; the same page as Markdown without
    pictures; or CSV with a row for each pool.
    """


@checks_documents
def report_plan(system: System, options: ReportOptions, progress: Progress = ignore_progress) -> Report:
    """Report the best plan as a page for readers, or as JSON.

    The sections on growth and reasons plan the system again about a hundred times. A large system can need
    more time than the service allows for a request; `brief` omits these sections.

    Raises:
        SolverError: the solver failed.
    """
    effort = options.effort if options.simulate else None
    return make_report(system, brief=options.brief, effort=effort, progress=progress, backend=options.backend)


def _page(report: Report, system: System, options: ReportOptions) -> bytes:
    from optimizer.render.pages import PageMetadata, render_report

    assert options.format != "json"
    return render_report(report, system, options.format, PageMetadata(scale=options.scale)).encode()


STUDY = Study(
    title="Report a plan",
    options=ReportOptions,
    answer=Report,
    run=report_plan,
    media_types={
        "html": "text/html; charset=utf-8",
        "markdown": "text/markdown; charset=utf-8",
        "csv": "text/csv; charset=utf-8",
    },
    page=_page,
)
