"""Fit of a profile to benchmark reports."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from optimizer.errors import FitError
from optimizer.fitting.accuracy import errors_of, relative_error
from optimizer.fitting.bounds import bounds_of, tell_bounds
from optimizer.fitting.estimation import FitProblem, FitResult, Progress, refit_without, simulate_all
from optimizer.fitting.identifiability import fit_identifiable
from optimizer.fitting.notes import sentences
from optimizer.fitting.parameters import BY_NAME, FULL_LAW, LIGHT_LAW, coefficients, starts
from optimizer.fitting.profile import FitReport, FittedProfile, MeasuredPoint
from optimizer.fitting.readers.report import Benchmark
from optimizer.fitting.replay import MANY_REQUESTS, BenchmarkReplay, RunMetrics
from optimizer.fitting.runs import Arrivals, BenchmarkRun, shape_name, shapes_of
from optimizer.fitting.server import ServerSettings
from optimizer.quantities import be, counted, quantity
from optimizer.spec.provenance import FitErrors, Provenance, domain_of
from optimizer.timing import PerfParms

LOW_LOAD = 0.85
"""Share of a shape's maximum rate below which cross-validation errors are evaluated."""
MIN_FIGURES = 3
"""Minimum number of measured times."""
OVERLAP = 1.2
"""Requests in flight below which nothing shows what grows with the batch."""
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class MeasuredSetup:
    """Model, accelerator and engine that were measured."""

    model: str | None = None
    """Name of the model; None selects the name in the reports."""
    accelerator: str = UNKNOWN
    cards: int | None = None
    """Accelerators of one replica; None selects those of the reports, otherwise one."""
    weights: str | None = None
    engine: str | None = None
    """Engine and its version."""


@dataclass(frozen=True, slots=True)
class FitOptions:
    """Options of a fit."""

    hold_out: int = 0
    """Number of highest rates of each shape held out; if not 0, runs at full throughput are held out as
    well."""
    terms: tuple[str, ...] = FULL_LAW
    max_in_flight: int | None = None
    """Concurrency limit of the client, if a report states none."""
    leave_out: bool = True
    """Whether to cross-validate by leaving out shapes."""
    key: MeasuredSetup = field(default_factory=MeasuredSetup)
    replicas: int | None = None
    """Equal replicas behind the address that was measured; None selects those of the reports."""
    settings: ServerSettings = field(default_factory=ServerSettings)


def fit(
    benchmarks: Sequence[Benchmark], options: FitOptions, progress: Progress = lambda _: None
) -> FittedProfile:
    """Fit the latency model to reports of one model on one accelerator.

    Args:
        benchmarks: the reports.
        options: options of the fit.
        progress: called with progress messages.

    Raises:
        FitError: the reports cover several models, or have too few measurements.
    """
    model = _one_model(benchmarks, options.key.model)
    told = sentences(note for benchmark in benchmarks for note in benchmark.decisions)
    if not any(benchmark.runs for benchmark in benchmarks):
        raise FitError(f"no run is left: {'; '.join(told)}")
    runs = [_prepared(run, options) for benchmark in benchmarks for run in benchmark.runs]
    usable = [run for run in runs if not (run.measured.itl_ms is None and run.measured.ttft_ms is None)]
    kept, held_out = _split(usable, options.hold_out)
    _check_enough(kept, len(runs) - len(usable))
    problem = FitProblem.of(kept, limits := options.settings.limits())
    terms, light = _terms(kept, options.terms)
    solution, dropped = fit_identifiable(problem, terms, starts(kept), progress)
    replays = [BenchmarkReplay.of(run, limits, MANY_REQUESTS) for run in (*kept, *held_out)]
    figures = simulate_all(replays, [coefficients(solution.names, solution.values)])[0]
    seen, held = figures[: len(kept)], figures[len(kept) :]
    law, law_errors = (
        _perf_parms(solution.names, values) for values in (solution.values, solution.standard_errors())
    )
    cards = options.key.cards or _cards(benchmarks)
    bounds = bounds_of(model, options.key.accelerator, cards, options.key.weights)
    accepted = max(benchmark.accepted_tokens for benchmark in benchmarks)
    broken = [] if bounds is None else tell_bounds(bounds, law, law_errors, accepted)
    notes = [note for benchmark in benchmarks for note in benchmark.notes]
    warnings = [*broken, *told, *light, *dropped, *_shape_warnings(kept), *options.settings.notes(), *notes]
    report = FitReport(
        standard_errors=law_errors,
        condition_number=min(solution.condition(), 1e15),
        fitted_terms=tuple(BY_NAME[name].key for name in solution.names),
        errors=errors_of(kept, seen),
        held_out=_of_rates(held_out, held),
        held_out_throughput=_of_throughput(held_out, held),
        left_out=_left_out(problem, solution, kept, progress) if options.leave_out else {},
        warnings=tuple(dict.fromkeys([*warnings, *_unusable_notes(len(runs) - len(usable))])),
    )
    return FittedProfile(
        name=model,
        accelerator=options.key.accelerator,
        acc_count=cards,
        iteration=law,
        **options.settings.profile_fields(_most_in_flight(usable)),
        provenance=_provenance(benchmarks, options.key, kept, report.errors),
        fit=report,
        points=(*_points(kept, seen, fitted=True), *_points(held_out, held, fitted=False)),
    )


# --- the runs ---------------------------------------------------------------------------------------------


def _one_model(benchmarks: Sequence[Benchmark], given: str | None) -> str:
    names = sorted({benchmark.model for benchmark in benchmarks if benchmark.model})
    if len(names) > 1:
        raise FitError(f"the reports cover several models, {', '.join(names)}; fit each one separately")
    return given or (names[0] if names else UNKNOWN)


def _cards(benchmarks: Sequence[Benchmark]) -> int:
    """Return the accelerators of one replica that the reports state, one if they state none.

    Raises:
        FitError: they state different numbers.
    """
    stated = sorted({benchmark.cards for benchmark in benchmarks if benchmark.cards})
    if len(stated) > 1:
        numbers = " and ".join(map(str, stated))
        raise FitError(
            f"the reports are of engines with {numbers} cards; fit each one separately, or give --cards"
        )
    return stated[0] if stated else 1


def _prepared(run: BenchmarkRun, options: FitOptions) -> BenchmarkRun:
    if run.is_steady:
        raise FitError(
            f"{run.source}: neither duration_s nor requests is given; a run can be fitted only as it was made"
        )
    limit = options.max_in_flight
    named = replace(run, source=run.source.rpartition("/")[2])
    return named if limit is None or run.is_alone else replace(named, max_in_flight=limit)


def _unusable_notes(count: int) -> list[str]:
    return [f"runs excluded because they have neither a TTFT nor an ITL: {count:,}"] if count else []


def _check_enough(runs: Sequence[BenchmarkRun], left_out: int) -> None:
    timed = [run for run in runs if run.measured.itl_ms is not None]
    if not timed:
        hint = f" (runs without times: {left_out:,})" if left_out else ""
        raise FitError(f"no run has a measured ITL{hint}; give reports with times, or the column itl_ms")
    figures = sum((run.measured.itl_ms is not None) + (run.measured.ttft_ms is not None) for run in runs)
    if figures < MIN_FIGURES:
        raise FitError(
            f"{counted(figures, 'measured time')} {be(figures)} too few to fit anything; measure "
            f"{MIN_FIGURES} or more: one request at a time, and several rates"
        )


def _terms(runs: Sequence[BenchmarkRun], terms: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Return the parameters that can show in some runs, and a sentence if requests hardly overlap."""
    most = max(in_flight(run) for run in runs)
    if most >= OVERLAP:
        return tuple(terms), []
    seen = (*LIGHT_LAW, "client_offset_ms") if len({shape[0] for shape in shapes_of(runs)}) > 1 else LIGHT_LAW
    told = (
        f"requests hardly overlap, at most {quantity(most, 3)} in flight: gamma and what grows with the "
        "batch are not known, and alpha includes reading the context; a run with many users would tell"
    )
    return tuple(name for name in terms if name in seen), [told]


def _split(runs: Sequence[BenchmarkRun], hold_out: int) -> tuple[list[BenchmarkRun], list[BenchmarkRun]]:
    """Return the runs to fit and the held-out ones: the highest rates of each shape, and full throughput."""
    if not hold_out:
        return list(runs), []
    held: set[int] = {i for i, run in enumerate(runs) if run.is_full}
    for shape in shapes_of(runs):
        rated = [i for i, run in enumerate(runs) if run.shape == shape and run.rate_rps is not None]
        held.update(sorted(rated, key=lambda i: -(runs[i].rate_rps or 0.0))[:hold_out])
    return (
        [run for i, run in enumerate(runs) if i not in held],
        [run for i, run in enumerate(runs) if i in held],
    )


def _shape_warnings(runs: Sequence[BenchmarkRun]) -> list[str]:
    shapes = shapes_of(runs)
    found = []
    if len(shapes) == 1:
        found.append(
            f"one shape only, {shape_name(shapes[0])}: what grows with the prompt, with the context and with "
            "the batch cannot be told apart; figures hold for this shape alone"
        )
    else:
        for i, what in enumerate(("prompt", "answer")):
            if len({shape[i] for shape in shapes}) == 1:
                found.append(
                    f"one {what} length only, {counted(shapes[0][i], 'token')}: other {what}s are not known"
                )
    if not any(run.is_alone for run in runs):
        found.append("no run with one request at a time: α and the client's offset rest on the lowest rates")
    return found


# --- the result -------------------------------------------------------------------------------------------


def _left_out(
    problem: FitProblem, solution: FitResult, runs: Sequence[BenchmarkRun], progress: Progress
) -> dict[str, FitErrors]:
    """Return the errors at the lower rates of each shape when the fit leaves it out.

    The parameters are refitted without the shape, starting from the full fit.
    """
    shapes = shapes_of(runs)
    if len(shapes) < 3:
        return {}
    progress("shapes left out")
    found = {}
    for shape in shapes:
        mine = [i for i, run in enumerate(runs) if run.shape == shape]
        low = [i for i in mine if not runs[i].is_full and _share_of_most(runs, i, mine) < LOW_LOAD]
        rows = np.isin(problem.rows.run, mine)
        values = refit_without(problem, solution, rows)
        if not low or values is None:
            continue
        progress(f"without {shape_name(shape)}")
        law = coefficients(solution.names, values)
        figures = simulate_all([problem.whole[i] for i in low], [law])[0]
        found[shape_name(shape)] = errors_of([runs[i] for i in low], figures)
    return found


def _of_rates(runs: Sequence[BenchmarkRun], figures: Sequence[RunMetrics]) -> FitErrors | None:
    """Return the errors of the runs with a rate; None if there are none."""
    pairs = [(run, found) for run, found in zip(runs, figures, strict=True) if not run.is_full]
    return errors_of([run for run, _ in pairs], [found for _, found in pairs]) if pairs else None


def _of_throughput(runs: Sequence[BenchmarkRun], figures: Sequence[RunMetrics]) -> float | None:
    """Return the median relative error of the throughput of clients that send without waiting."""
    errors = [
        abs(error)
        for run, found in zip(runs, figures, strict=True)
        if run.is_full and (error := relative_error(run, found, "throughput_rps")) is not None
    ]
    return float(np.median(errors)) if errors else None


def _share_of_most(runs: Sequence[BenchmarkRun], i: int, mine: Sequence[int]) -> float:
    most = max((runs[j].rate_rps or 0.0 for j in mine), default=0.0)
    return (runs[i].rate_rps or 0.0) / most if most > 0 else 0.0


def _perf_parms(names: Sequence[str], values: Sequence[float] | np.ndarray) -> PerfParms:
    given = dict(zip(names, map(float, values), strict=True))
    return PerfParms.model_validate({name: _rounded(value) for name, value in given.items()})


def _rounded(value: float) -> float:
    """Return a value rounded to six digits, as in documents."""
    return float(f"{value:.6g}")


def _most_in_flight(runs: Sequence[BenchmarkRun]) -> int:
    return max(1, round(max(in_flight(run) for run in runs)))


def in_flight(run: BenchmarkRun) -> float:
    """Return the mean number of requests in flight by Little's law."""
    measured = run.measured
    rate = measured.throughput_rps or run.rate_rps or 0.0
    life_ms = (measured.ttft_ms or 0.0) + max(run.answers.mean - 1, 0.0) * (measured.itl_ms or 0.0)
    found = rate * life_ms / 1000
    if rate == 0 and run.arrivals is Arrivals.CLOSED:
        return float(run.max_in_flight or 1)
    return found if run.max_in_flight is None else min(found, run.max_in_flight)


def _provenance(
    benchmarks: Sequence[Benchmark], key: MeasuredSetup, runs: Sequence[BenchmarkRun], errors: FitErrors
) -> Provenance:
    dates = sorted(benchmark.date for benchmark in benchmarks if benchmark.date)
    sources = list(dict.fromkeys(run.source.partition(": ")[0] for run in runs))
    tools = list(dict.fromkeys(benchmark.tool for benchmark in benchmarks))
    shown = ", ".join(sources[:3]) + (f" and {len(sources) - 3} more" if len(sources) > 3 else "")
    rows = [
        (r.prompts.mean, r.answers.mean, r.measured.throughput_rps or r.rate_rps or 0.0, in_flight(r))
        for r in runs
    ]
    return Provenance(
        source=shown,
        tool=", ".join(tools),
        date=None if not dates else dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}",
        engine=key.engine,
        weights=key.weights,
        runs=len(runs),
        domain=domain_of([(_rounded(a), _rounded(b), _rounded(c), _rounded(d)) for a, b, c, d in rows]),
        errors=errors,
    )


def _points(
    runs: Sequence[BenchmarkRun], figures: Sequence[RunMetrics], *, fitted: bool
) -> list[MeasuredPoint]:
    return [_point(run, found, fitted=fitted) for run, found in zip(runs, figures, strict=True)]


def _point(run: BenchmarkRun, found: RunMetrics, *, fitted: bool) -> MeasuredPoint:
    def known(value: float) -> float | None:
        return _rounded(value) if np.isfinite(value) else None

    return MeasuredPoint.of(run).model_copy(
        update={
            "fitted": fitted,
            "predicted_ttft_ms": known(found.ttft_ms),
            "predicted_itl_ms": known(found.itl_ms),
            "predicted_throughput_rps": known(found.throughput_rps),
        }
    )
