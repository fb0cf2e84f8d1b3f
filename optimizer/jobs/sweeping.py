"""Study that plans a system over ranges of parameters, and for sampled days."""

from importlib.metadata import version
from pathlib import Path
from typing import Annotated

from pydantic import Field

from optimizer.jobs.flag import Flag
from optimizer.jobs.pictures import PICTURE_TYPES, AnswerFormat, drawn
from optimizer.jobs.requests import ExactOptions, RequestError
from optimizer.jobs.study import Study
from optimizer.parallel import Progress, ignore_progress
from optimizer.render.sweep_sections import sweep_sections
from optimizer.spec.arguments import checks_documents
from optimizer.spec.load_traces import read_load_trace
from optimizer.spec.system import System
from optimizer.studies.sweep.checkpoint import Checkpoint, digest_of
from optimizer.studies.sweep.days import lognormal_days, sampled_days, trace_days
from optimizer.studies.sweep.parameters import read_variations
from optimizer.studies.sweep.sweep import sweep
from optimizer.studies.sweep.sweep_document import SampledDays, Sweep
from optimizer.studies.sweep.sweep_figure import sweep_figure

MAX_SAMPLES = 10_000


class SweepOptions(ExactOptions):
    """Parameters to vary, days to sample, and optimizer options that override the document's."""

    vary: Annotated[tuple[str, ...], Flag("NAME=VALUES", help="vary a parameter; repeatable")] = ()
    """Parameters with their values: load=0.5..3, count:H100=0..64, cost:A100=100,200 or another number of the
    document. All combinations of several parameters are planned.
    """
    samples: Annotated[int | None, Flag("N")] = Field(None, ge=1, le=MAX_SAMPLES)
    """Number of days with random loads to plan, which gives the cost of safe fleets; default: none."""
    load_cv: Annotated[float | None, Flag("CV")] = Field(None, ge=0, le=10)
    """Coefficient of variation of each server's load between days, with `samples`."""
    seed: Annotated[int, Flag("S", help="random seed of the days (0)")] = Field(0, ge=0, lt=2**64)
    """Random seed of the sampled days."""
    format: AnswerFormat = "json"
    """Format of the response: the numbers as JSON, or a picture."""
    trace: Annotated[str | Path | None, Flag("FILE", only="command")] = None
    """CSV file of loads over time, as for replay, from which days are sampled."""
    resume: Annotated[Path | None, Flag("FILE", only="command")] = None
    """Store finished plans in FILE, and resume from them."""


@checks_documents
def sweep_system(system: System, options: SweepOptions, progress: Progress = ignore_progress) -> Sweep:
    """Plan a system over ranges of parameters: cost, served share by priority, and binding limits.

    If one parameter varies between two integers, the result covers every integer between them. With
    `samples`, the response also contains the cost of fleets that serve all load on 50 to 99 % of sampled
    days. A large sweep can need more time than the service allows for a request.

    Raises:
        SpecError: a variation, a value or a file is invalid.
        SolverError: the solver failed.
    """
    _check(options)
    variations = read_variations(system, options.vary)
    text = f"{version('inferplan')} {system.to_spec().model_dump_json(by_alias=True)}"
    done = Checkpoint(options.resume, digest_of(text))
    result = sweep(system, variations, done, progress)
    if options.samples is None:
        return result
    return result.model_copy(update={"days": _days(system, options, options.samples, done, progress)})


def _days(
    system: System, options: SweepOptions, samples: int, done: Checkpoint, progress: Progress
) -> SampledDays:
    if options.trace is not None:
        loads = trace_days(system, read_load_trace(system, options.trace), samples, options.seed)
    else:
        assert options.load_cv is not None
        loads = lognormal_days(system, samples, options.load_cv, options.seed)
    return sampled_days(system, loads, done, progress, load_cv=options.load_cv, seed=options.seed)


def _check(options: SweepOptions) -> None:
    """Reject a request that varies nothing and samples no days, or contradicts itself."""
    if not options.vary and options.samples is None:
        raise RequestError("vary", "nothing to vary; give a variation such as load=0.5..3, or {samples}")
    if options.samples is None:
        for name in ("load_cv", "trace"):
            if getattr(options, name) is not None:
                raise RequestError(name, "is for sampled days; give {samples}, or remove it")
    elif (options.load_cv is None) == (options.trace is None):
        raise RequestError("samples", "give either {load_cv} or {trace}, which say how loads vary")


STUDY = Study(
    title="Sweep parameters of a system",
    options=SweepOptions,
    answer=Sweep,
    run=sweep_system,
    sections=sweep_sections,
    table_names=("points", "binding", "days"),
    media_types=PICTURE_TYPES,
    page=drawn(sweep_figure),
    working="sweeping",
    epilog=(
        "NAME is load, load:SERVER, targets (factors), count:TYPE (cards), card:TYPE (cents/h or 2 USD/h), "
        "ttft:CLASS/MODEL, avgInTokens:SERVER, a number of the optimizer section, or NAME:ITEM for a number "
        "of a server, class, accelerator or route. VALUES is a list, 1,2,4, or a range, 0.5..3 or 0.5..3/64 "
        "with 64 points; a range of cards alone covers all integers, with the exact values at which the "
        "plan changes."
    ),
)
