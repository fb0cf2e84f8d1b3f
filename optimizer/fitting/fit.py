"""Fits a model profile to benchmark reports."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from optimizer.errors import FitError
from optimizer.fitting.estimation import FitProblem, Posterior, Progress, most_probable, simulate_all
from optimizer.fitting.judgement import (
    below_bounds,
    cost_of_assumed_lengths,
    shown_by_runs,
    spoiling_run,
    words_of,
)
from optimizer.fitting.notes import sentences
from optimizer.fitting.options import FitOptions
from optimizer.fitting.parameters import BY_NAME
from optimizer.fitting.priors import prior_of, starts
from optimizer.fitting.profile import FitReport, FittedProfile, MeasuredPoint
from optimizer.fitting.readers.report import Benchmark
from optimizer.fitting.replay import MANY_REQUESTS, BenchmarkReplay, RunMetrics
from optimizer.fitting.runs import BenchmarkRun, RunMeasurements, shape_name, shapes_of
from optimizer.fitting.selection import (
    cards_of,
    check_capacity,
    check_enough,
    distinct,
    mean_in_flight,
    one_model,
    prepared,
    rate_of,
    shape_warnings,
    split_runs,
)
from optimizer.profiles.engines import ServingEngine, read_engine
from optimizer.schema.provenance import Domain, FitErrors, Provenance
from optimizer.simulation.law import IterationCoefficients
from optimizer.timing import PerfParms

ReplayedRun = tuple[BenchmarkRun, RunMetrics]
"""A run and its predicted metrics."""
ERROR_DIGITS = 4
"""Significant digits of errors in documents."""
LOW_LOAD = 0.85
"""Fraction of a shape's maximum rate below which its runs count in cross-validation."""


def fit(
    benchmarks: Sequence[Benchmark], options: FitOptions, progress: Progress = lambda _: None
) -> FittedProfile:
    """Fit the latency model to reports of one model on one accelerator.

    Args:
        benchmarks: the reports.
        progress: called with progress messages.

    Raises:
        FitError: the reports cover several models, or have too few measurements.
        SpecError: the engine is unknown.
    """
    engine = read_engine(options.key.engine)
    model = one_model(benchmarks, options.key.model)
    remarks = sentences(note for benchmark in benchmarks for note in benchmark.decisions)
    if not any(benchmark.runs for benchmark in benchmarks):
        raise FitError(f"no run is left: {'; '.join(remarks)}")
    runs, repeated = distinct([prepared(run, options) for benchmark in benchmarks for run in benchmark.runs])
    usable = [run for run in runs if not (run.measured.itl_ms is None and run.measured.ttft_ms is None)]
    kept, held_out = split_runs(usable, options.hold_out)
    check_enough(kept, len(runs) - len(usable), remarks)
    crowded = check_capacity(kept, options.settings.kv_capacity_tokens)
    cards = options.key.cards or cards_of(benchmarks)
    prior = prior_of(model, options.key, cards, kept, options.terms)
    problem, free = FitProblem.of(kept, options.settings.limits()), options.settings.max_num_tokens is None
    best, problem = most_probable(problem, prior, starts(prior, kept), progress, free_tokens=free)
    settings = replace(options.settings, max_num_tokens=problem.max_num_tokens)
    replays = [BenchmarkReplay.of(run, settings.limits(), MANY_REQUESTS) for run in (*kept, *held_out)]
    replayed = list(zip((*kept, *held_out), simulate_all(replays, [best.law])[0], strict=True))
    warnings = [*repeated, *remarks, *cost_of_assumed_lengths(best, problem, kept), *words_of(best, kept)]
    warnings += [*shape_warnings(kept), *options.settings.notes(problem.max_num_tokens)]
    warnings += [note for benchmark in benchmarks for note in benchmark.notes]
    warnings += _unusable_notes(len(runs) - len(usable))
    broken = below_bounds(best, model, options.key, cards, max(each.accepted_tokens for each in benchmarks))
    report = FitReport(
        intervals=_intervals(best),
        fitted_terms=tuple(BY_NAME[name].key for name in shown_by_runs(best)),
        prior=prior.source,
        errors=errors_of(replayed[: len(kept)]),
        **_errors_of_held_out(replayed[len(kept) :]),
        left_out=_left_out(problem, best, kept, progress) if options.leave_out else {},
        spoiled_by=spoiling_run(best, problem, kept),
        warnings=tuple(dict.fromkeys([*broken, *crowded, *warnings])),
    )
    return FittedProfile(
        name=model,
        accelerator=options.key.accelerator,
        acc_count=cards,
        iteration=_perf_parms(best.law),
        **settings.profile_fields(),
        provenance=_provenance(benchmarks, options.key.weights, engine, kept, report.errors),
        fit=report,
        points=tuple(_point(*pair, fitted=i < len(kept)) for i, pair in enumerate(replayed)),
    )


# --- the result -------------------------------------------------------------------------------------------


def _left_out(
    problem: FitProblem, posterior: Posterior, runs: Sequence[BenchmarkRun], progress: Progress
) -> dict[str, FitErrors]:
    """Cross-validate: return the errors at the lower rates of each shape if it is excluded from the fit.

    The parameters without the shape are those of the normal approximation. A shape is a pair of request
    lengths.
    """
    shapes = shapes_of(runs)
    if len(shapes) < 3:
        return {}
    progress("shapes left out")
    errors = {}
    for shape in shapes:
        mine = [i for i, run in enumerate(runs) if run.shape == shape]
        low = [i for i in mine if not runs[i].is_full and _share_of_most(runs, i, mine) < LOW_LOAD]
        if not low:
            continue
        progress(f"without {shape_name(shape)}")
        law = posterior.prior.law(posterior.moved_without(np.isin(problem.rows.run, mine)))
        figures = simulate_all([problem.replays[i] for i in low], [law])[0]
        errors[shape_name(shape)] = errors_of([(runs[i], each) for i, each in zip(low, figures, strict=True)])
    return errors


def _share_of_most(runs: Sequence[BenchmarkRun], i: int, mine: Sequence[int]) -> float:
    most = max((runs[j].rate_rps or 0.0 for j in mine), default=0.0)
    return (runs[i].rate_rps or 0.0) / most if most > 0 else 0.0


def _intervals(posterior: Posterior) -> dict[str, tuple[float, float]]:
    ends = posterior.intervals().items()
    return {BY_NAME[name].key: (_rounded(low), _rounded(high)) for name, (low, high) in ends}


def _perf_parms(law: IterationCoefficients) -> PerfParms:
    return PerfParms.model_validate({name: _rounded(value) for name, value in law._asdict().items() if value})


def _unusable_notes(count: int) -> list[str]:
    return [f"runs excluded because they have neither a TTFT nor an ITL: {count:,}"] if count else []


def _provenance(
    benchmarks: Sequence[Benchmark], weights: str | None, engine: ServingEngine,
    runs: Sequence[BenchmarkRun], errors: FitErrors,
) -> Provenance:  # fmt: skip
    dates = sorted(benchmark.date for benchmark in benchmarks if benchmark.date)
    sources = list(dict.fromkeys(run.source.partition(": ")[0] for run in runs))
    tools = list(dict.fromkeys(benchmark.tool for benchmark in benchmarks))
    shown = ", ".join(sources[:3]) + (f" and {len(sources) - 3} more" if len(sources) > 3 else "")
    measured = zip(
        *((run.prompts.mean, run.answers.mean, rate_of(run), mean_in_flight(run)) for run in runs),
        strict=True,
    )
    ends = ((_rounded(min(values)), _rounded(max(values))) for values in measured)
    return Provenance(
        source=shown,
        tool=", ".join(tools),
        date=None if not dates else dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}",
        engine=str(engine) if engine.stated else None,
        weights=weights,
        runs=len(runs),
        domain=Domain(**dict(zip(Domain.model_fields, ends, strict=True))),
        errors=errors,
    )


def _point(run: BenchmarkRun, run_metrics: RunMetrics, *, fitted: bool) -> MeasuredPoint:
    predicted = {name: getattr(run_metrics, name) for name in RunMeasurements._fields}
    known = {f"predicted_{name}": _rounded(value) for name, value in predicted.items() if np.isfinite(value)}
    return MeasuredPoint.of(run).model_copy(update={"fitted": fitted, **known})


# --- errors -----------------------------------------------------------------------------------------------


def errors_of(runs: Sequence[ReplayedRun]) -> FitErrors:
    """Return the errors of TTFT and ITL: Σ|predicted − measured| / Σ measured, and median relative error."""
    ttft, itl = (_errors_in(runs, name) for name in ("ttft_ms", "itl_ms"))
    return FitErrors(
        ttft=ttft[0], ttft_median=ttft[1], itl=itl[0], itl_median=itl[1], runs=max(ttft[2], itl[2])
    )


def _errors_of_held_out(runs: Sequence[ReplayedRun]) -> dict[str, Any]:
    """Return the errors of held-out runs: those at rates, and the throughput of closed loops; or None."""
    rated, closed = ([pair for pair in runs if pair[0].is_full == full] for full in (False, True))
    _, of_throughput, compared = _errors_in(closed, "throughput_rps")
    return {
        "held_out": errors_of(rated) if rated else None,
        "held_out_throughput": of_throughput if compared else None,
    }


def _errors_in(runs: Sequence[ReplayedRun], name: str) -> tuple[float, float, int]:
    """Return the relative error of a metric over all runs, its median, and the number of runs compared."""
    pairs = [
        (getattr(errors, name), getattr(run.measured, name))
        for run, errors in runs
        if getattr(run.measured, name) is not None and np.isfinite(getattr(errors, name))
    ]
    if not pairs:
        return 0.0, 0.0, 0
    predicted, measured = np.array(pairs).T
    off = np.abs(predicted - measured)
    total, middle = off.sum() / measured.sum(), np.median(off / measured)
    return _rounded(total, ERROR_DIGITS), _rounded(middle, ERROR_DIGITS), len(pairs)


def _rounded(value: float, digits: int = 6) -> float:
    """Round a value to significant digits, as in documents."""
    return float(f"{value:.{digits}g}")
