"""The study that sweeps parameters of a system, and samples days."""

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from optimizer.jobs.flag import Flag
from optimizer.jobs.pictures import PICTURE_TYPES, AnswerFormat, drawn
from optimizer.jobs.requests import ExactOptions, RequestError
from optimizer.jobs.study import Study
from optimizer.spec.load_traces import read_load_trace
from optimizer.spec.system import System
from optimizer.studies.sweep.checkpoint import Checkpoint, Tell, digest_of, tell_nobody
from optimizer.studies.sweep.days import lognormal_days, sampled_days, trace_days
from optimizer.studies.sweep.document import SampledDays, Sweep
from optimizer.studies.sweep.figure import sweep_figure
from optimizer.studies.sweep.parameters import read_variations
from optimizer.studies.sweep.sweep import sweep

if TYPE_CHECKING:
    from optimizer.section import Section

MAX_SAMPLES = 10_000


class SweepOptions(ExactOptions):
    """Parameters to vary, days to sample, and options that override the document's."""

    vary: tuple[str, ...] = ()
    """Parameters with their values: load=0.5..3, count:H100=0..64, cost:A100=100,200 or a number of the
    optimizer; several for all combinations."""
    samples: Annotated[int | None, Flag("N")] = Field(None, ge=1, le=MAX_SAMPLES)
    """Number of days to sample for the cost of being safe; default: none."""
    load_cv: Annotated[float | None, Flag("CV")] = Field(None, ge=0, le=10)
    """Coefficient of variation of each server's load from day to day, with `samples`."""
    seed: Annotated[int, Flag("S", help="random seed of the days (0)")] = Field(0, ge=0, lt=2**64)
    """Random seed of the days."""
    format: AnswerFormat = "json"
    """The numbers as JSON, or a picture."""


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """Parameters to vary, days to sample, or both."""

    system: System
    vary: tuple[str, ...] = ()
    """Variations: ``load=0.5..3``, ``count:H100=0..64``."""
    samples: int | None = None
    """Number of days to sample; None: no days."""
    load_cv: float | None = None
    """Coefficient of variation of each server's daily load."""
    trace: str | Path | None = None
    """A CSV file of loads over time, from whose days the samples are drawn."""
    seed: int = 0
    """Random seed."""
    resume: Path | None = None
    """A file that keeps finished plans, so that a stopped sweep goes on; None: nothing is kept."""


def sweep_system(request: SweepRequest, tell: Tell = tell_nobody) -> Sweep:
    """Return the plans of a system over ranges of parameters, and what it costs to be safe on sampled days.

    Raises:
        SpecError: a variation, a value or a file is wrong.
        SolverError: the solver failed.
    """
    _check(request)
    system = request.system
    variations = read_variations(system, request.vary)
    text = f"{version('inferplan')} {system.to_spec().model_dump_json(by_alias=True)}"
    done = Checkpoint(request.resume, digest_of(text))
    found = sweep(system, variations, done, tell)
    return found if request.samples is None else found.model_copy(update={"days": _days(request, done, tell)})


def _days(request: SweepRequest, done: Checkpoint, tell: Tell) -> SampledDays:
    system, samples, cv = request.system, request.samples, request.load_cv
    assert samples is not None
    if request.trace is not None:
        loads = trace_days(system, read_load_trace(system, request.trace), samples, request.seed)
    else:
        assert cv is not None
        loads = lognormal_days(system, samples, cv, request.seed)
    return sampled_days(system, loads, done, tell, load_cv=cv, seed=request.seed)


def _check(request: SweepRequest) -> None:
    """Refuse a request that asks for nothing, or contradicts itself."""
    if not request.vary and request.samples is None:
        raise RequestError("vary", "nothing to vary; give a variation such as load=0.5..3, or {samples}")
    if request.samples is None:
        for name in ("load_cv", "trace"):
            if getattr(request, name) is not None:
                raise RequestError(name, "is for sampled days; give {samples}, or remove it")
        return
    if not 1 <= request.samples <= MAX_SAMPLES:
        raise RequestError("samples", f"is {request.samples:,}; give 1 to {MAX_SAMPLES:,} days")
    if (request.load_cv is None) == (request.trace is None):
        raise RequestError("samples", "give either {load_cv} or {trace}, which say how loads vary")
    if request.load_cv is not None and not 0 <= request.load_cv <= 10:
        raise RequestError("load_cv", f"is {request.load_cv:g}; give 0 to 10")


def _sweep(system: System, options: SweepOptions) -> Sweep:
    """Plan a system over ranges of parameters: cost, served share by priority, and the limits that bind.

    Between two integers of one parameter, service and value are known for every value. With `samples`, the
    answer also has the cost of being safe on 50 to 99 % of days whose loads vary. A large sweep can need more
    time than the service allows a request.
    """
    return sweep_system(
        SweepRequest(system, tuple(options.vary), options.samples, options.load_cv, seed=options.seed)
    )


def _sections(found: Sweep) -> "list[Section]":
    from optimizer.render.sweep_sections import sweep_sections

    return sweep_sections(found)


STUDY = Study(
    title="Sweep parameters of a system",
    options=SweepOptions,
    answer=Sweep,
    run=_sweep,
    sections=_sections,
    table_names=("points", "binding", "days"),
    media_types=PICTURE_TYPES,
    page=drawn(sweep_figure),
)
