"""Prepares the runs of a fit, splits them into fitted and held-out ones, and selects the parameters."""

from collections.abc import Sequence
from dataclasses import replace

from optimizer.errors import FitError
from optimizer.fitting.options import UNKNOWN, FitOptions
from optimizer.fitting.readers.report import Benchmark
from optimizer.fitting.runs import Arrivals, BenchmarkRun, shape_name, shapes_of
from optimizer.quantities import be, counted, quantity

OVERLAP = 1.2
"""Mean number of requests in flight below which no effect of the batch is measurable."""
MIN_FIGURES = 3
"""Minimum number of measured times in all runs of a fit."""


def one_model(benchmarks: Sequence[Benchmark], given: str | None) -> str:
    """Return the name of the model, as given or as stated in the reports.

    Raises:
        FitError: the reports state several models.
    """
    names = sorted({benchmark.model for benchmark in benchmarks if benchmark.model})
    if len(names) > 1:
        raise FitError(f"the reports cover several models, {', '.join(names)}; fit each one separately")
    return given or (names[0] if names else UNKNOWN)


def cards_of(benchmarks: Sequence[Benchmark]) -> int:
    """Return the number of accelerators of one replica as stated in the reports; 1 if not stated.

    Raises:
        FitError: the reports state different numbers.
    """
    stated = sorted({benchmark.cards for benchmark in benchmarks if benchmark.cards})
    if len(stated) > 1:
        numbers = " and ".join(map(str, stated))
        raise FitError(
            f"the reports are of engines with {numbers} cards; fit each one separately, or give --cards"
        )
    return stated[0] if stated else 1


def prepared(run: BenchmarkRun, options: FitOptions) -> BenchmarkRun:
    """Return the run with the options' limit on requests in flight.

    Raises:
        FitError: the run has neither a duration nor a number of requests.
    """
    if run.is_steady:
        raise FitError(
            f"{run.source}: neither duration_s nor requests is given; a run can be fitted only as it was made"
        )
    limit = options.max_in_flight
    return run if limit is None or run.is_alone else replace(run, max_in_flight=limit)


def check_enough(runs: Sequence[BenchmarkRun], left_out: int, remarks: Sequence[str]) -> None:
    """Check that the runs have enough measured times.

    Args:
        runs: the runs to fit.
        left_out: number of runs without times.
        remarks: decisions about runs, which name those that are left out.

    Raises:
        FitError: there are too few measured times.
    """
    timed = [run for run in runs if run.measured.itl_ms is not None]
    if not timed and any(run.answers.mean > 1 for run in runs):
        hint = f" (runs without times: {left_out:,})" if left_out else ""
        raise FitError(f"no run has a measured ITL{hint}; give reports with times, or the column itl_ms")
    figures = sum((run.measured.itl_ms is not None) + (run.measured.ttft_ms is not None) for run in runs)
    if figures < MIN_FIGURES:
        raise FitError(
            f"{counted(figures, 'measured time')} {be(figures)} too few to fit anything; measure "
            f"{MIN_FIGURES} or more: one request at a time, and several rates{'; '.join(['', *remarks])}"
        )


def check_capacity(runs: Sequence[BenchmarkRun], kv_tokens: int | None) -> list[str]:
    """Check the stated capacity of the KV cache; return a warning if runs had more tokens in flight.

    Raises:
        FitError: a mean request of a run exceeds the capacity.
    """
    if kv_tokens is None:
        return []
    longest = max(runs, key=lambda run: run.prompts.mean + run.answers.mean)
    if longest.prompts.mean + longest.answers.mean > kv_tokens:
        raise FitError(
            f"kv-capacity: {counted(kv_tokens, 'token')} hold no request of {longest.source}, "
            f"{quantity(longest.prompts.mean)} + {quantity(longest.answers.mean)} tokens; give the number of "
            "tokens of the whole cache, such as 300000"
        )
    held = {run.source: mean_in_flight(run) * (run.prompts.mean + run.answers.mean / 2) for run in runs}
    source, most = max(held.items(), key=lambda item: item[1])
    note = (
        f"kv-capacity: {counted(kv_tokens, 'token')} hold less than the {quantity(most, 2)} tokens of the "
        f"requests in flight of {source}: they wait in the model; correct it, unless requests share prefixes"
    )
    return [note] if most > kv_tokens else []


def distinct(runs: Sequence[BenchmarkRun]) -> tuple[list[BenchmarkRun], list[str]]:
    """Return the runs without those that repeat another one, and a sentence about each that does."""
    benchmark_runs: dict[BenchmarkRun, BenchmarkRun] = {}
    notes = []
    for run in runs:
        first = benchmark_runs.setdefault(replace(run, source=""), run)
        if first is not run:
            notes.append(f"{run.source} is the same measurement as {first.source}: it counts once")
    return list(benchmark_runs.values()), notes


def hardly_overlap(runs: Sequence[BenchmarkRun]) -> list[str]:
    """Return a warning if requests overlap so little that no effect of the batch is measurable."""
    most = max(mean_in_flight(run) for run in runs)
    note = (
        f"requests hardly overlap, at most {quantity(most, 3)} in flight: gamma and what grows with the "
        "batch are not known, and alpha includes reading the context; add a run with many users"
    )
    return [] if most >= OVERLAP else [note]


def split_runs(runs: Sequence[BenchmarkRun], hold_out: int) -> tuple[list[BenchmarkRun], list[BenchmarkRun]]:
    """Split runs into those to fit and those held out: the highest rates, or numbers of users, of each shape.

    If a shape has runs at rates, all its closed loops of several users are held out as well.
    """
    if not hold_out:
        return list(runs), []
    held: set[int] = set()
    for shape in shapes_of(runs):
        mine = [i for i, run in enumerate(runs) if run.shape == shape]
        rated = [i for i in mine if runs[i].rate_rps is not None]
        full = [i for i in mine if runs[i].is_full]
        ordered = sorted(rated or full, key=lambda i: -(runs[i].rate_rps or runs[i].max_in_flight or 0.0))
        held.update(ordered[:hold_out], full if rated else ())
    return (
        [run for i, run in enumerate(runs) if i not in held],
        [run for i, run in enumerate(runs) if i in held],
    )


def shape_warnings(runs: Sequence[BenchmarkRun]) -> list[str]:
    """Return warnings about effects that the shapes (request lengths) of the runs cannot identify."""
    shapes = shapes_of(runs)
    result = []
    if len(shapes) == 1:
        result.append(
            f"one shape only, {shape_name(shapes[0])}: what grows with the prompt, with the context and with "
            "the batch cannot be told apart; figures hold for this shape alone"
        )
    else:
        for i, what in enumerate(("prompt", "answer")):
            if len({shape[i] for shape in shapes}) == 1:
                result.append(
                    f"one {what} length only, {counted(shapes[0][i], 'token')}: other {what}s are not known"
                )
    if not any(run.is_alone for run in runs):
        result.append("no run with one request at a time: α and the client's offset rest on the lowest rates")
    return result


def rate_of(run: BenchmarkRun) -> float:
    """Return the throughput of a run, or else its offered rate [requests/s]; 0 if both are unknown."""
    return run.measured.throughput_rps or run.rate_rps or 0.0


def mean_in_flight(run: BenchmarkRun) -> float:
    """Return the mean number of requests in flight of a run by Little's law."""
    measured, rate = run.measured, rate_of(run)
    life_ms = (measured.ttft_ms or 0.0) + max(run.answers.mean - 1, 0.0) * (measured.itl_ms or 0.0)
    mean = rate * life_ms / 1000
    if rate == 0 and run.arrivals is Arrivals.CLOSED:
        return float(run.max_in_flight or 1)
    return mean if run.max_in_flight is None else min(mean, run.max_in_flight)
