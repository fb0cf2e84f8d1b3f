"""Reader of CSV files with one run per row: input of `predict`, and with measurements of `fit`."""

import csv
import io
import math
from collections.abc import Mapping

from optimizer.errors import FitError
from optimizer.fitting.readers.report import Benchmark, BenchmarkFile, Reader
from optimizer.fitting.runs import Arrivals, BenchmarkRun, RunMeasurements, TokenCounts
from optimizer.simulation.lengths import LengthDistribution

REQUIRED = ("in_tokens", "out_tokens")
RUN_COLUMNS = (
    *REQUIRED, "in_tokens_cv", "out_tokens_cv", "lengths", "arrivals", "rate_rps", "duration_s", "requests",
    "max_in_flight", "burst", "cached_share",
)  # fmt: skip
MEASURED_COLUMNS = RunMeasurements._fields
COLUMNS = (*RUN_COLUMNS, *MEASURED_COLUMNS, "source")
DEFAULT_LENGTHS, DEFAULT_ARRIVALS = LengthDistribution.UNIFORM, Arrivals.POISSON
MAX_VALUE = 1e9


def _recognises(report: BenchmarkFile) -> bool:
    names = [name.strip().lower() for name in report.first_line.split(",")]
    return all(name in names for name in REQUIRED)


def _read(report: BenchmarkFile) -> Benchmark:
    """Read the run of each row.

    Raises:
        FitError: a column is unknown, or a value is invalid.
    """
    lines = csv.DictReader(io.StringIO(report.text.lstrip("\ufeff")), restkey="", skipinitialspace=True)
    names = [name.strip().lower() for name in lines.fieldnames or ()]
    for name in names:
        if name not in COLUMNS:
            raise FitError(f"{report.name}: line 1: unknown column {name!r}; known are {', '.join(COLUMNS)}")
    if len(set(names)) < len(names):
        raise FitError(f"{report.name}: line 1: a column occurs twice")
    lines.fieldnames = names
    runs = []
    for number, row in enumerate(lines, start=2):
        place = f"{report.name}: line {number}"
        if "" in row or None in row.values():
            raise FitError(f"{place}: not {len(names)} cells, as the header has; the file might be truncated")
        runs.append(_run({key: cell.strip() for key, cell in row.items()}, place))
    if not runs:
        raise FitError(f"{report.name}: there is a header but no row; the file might be truncated")
    return Benchmark(tuple(runs), "points")


def _run(row: Mapping[str, str], place: str) -> BenchmarkRun:
    arrivals = Arrivals(_choice(row, "arrivals", tuple(Arrivals), DEFAULT_ARRIVALS, place))
    run = BenchmarkRun(
        _counts(row, "in_tokens", place),
        _counts(row, "out_tokens", place),
        arrivals,
        rate_rps=_number(row, "rate_rps", place),
        duration_s=_number(row, "duration_s", place),
        requests=_count(row, "requests", place),
        max_in_flight=_count(row, "max_in_flight", place),
        burst=_count(row, "burst", place) or 0,
        cached_share=_number(row, "cached_share", place, least=0.0) or 0.0,
        measured=RunMeasurements(*(_number(row, name, place) for name in MEASURED_COLUMNS)),
        source=row.get("source") or place,
    )
    if run.cached_share > 1 or (run.cached_share and run.is_steady):
        raise FitError(f"{place}: cached_share must be 0 to 1, of a run with duration_s or requests")
    if arrivals is Arrivals.CLOSED and run.max_in_flight is None:
        raise FitError(f"{place}: arrivals 'closed' need max_in_flight, the number of requests in flight")
    if arrivals is Arrivals.CLOSED and run.rate_rps is not None:
        raise FitError(f"{place}: arrivals 'closed' have no rate_rps; clear it, or use constant or poisson")
    if arrivals is not Arrivals.CLOSED and run.rate_rps is None:
        raise FitError(f"{place}: rate_rps is missing; give the offered rate, or arrivals 'closed'")
    return run


def _counts(row: Mapping[str, str], name: str, place: str) -> TokenCounts:
    mean = _number(row, name, place)
    if mean is None:
        raise FitError(f"{place}: {name} is missing")
    distribution = LengthDistribution(
        _choice(row, "lengths", tuple(LengthDistribution), DEFAULT_LENGTHS, place)
    )
    cv = _number(row, f"{name}_cv", place, least=0.0) or 0.0
    if distribution is LengthDistribution.FIXED and cv:
        raise FitError(f"{place}: {name}_cv is {cv:g} and lengths are 'fixed'; use uniform or lognormal")
    if distribution is LengthDistribution.UNIFORM and cv > 1 / math.sqrt(3):
        raise FitError(
            f"{place}: {name}_cv {cv:g} is above 0.577, the maximum for uniform lengths; use lognormal"
        )
    return TokenCounts(mean, cv, distribution)


def _choice(row: Mapping[str, str], name: str, known: tuple[str, ...], default: str, place: str) -> str:
    cell = (row.get(name) or default).lower()
    if cell not in known:
        raise FitError(f"{place}: {name} must be {', '.join(known)}, not {cell!r}")
    return cell


def _number(row: Mapping[str, str], name: str, place: str, *, least: float | None = None) -> float | None:
    """Return the number in a cell, at least `least`, or positive if that is None; None for an empty cell."""
    cell = row.get(name)
    if not cell:
        return None
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not (value > 0 if least is None else value >= least) or value > MAX_VALUE:
        bound = "more than 0" if least is None else f"{least:g} or more"
        raise FitError(f"{place}: {name} must be {bound} and at most {MAX_VALUE:g}, not {cell!r}")
    return value


def _count(row: Mapping[str, str], name: str, place: str) -> int | None:
    value = _number(row, name, place)
    if value is None:
        return None
    if value != int(value):
        raise FitError(f"{place}: {name} must be an integer, not {row[name]!r}")
    return int(value)


READER = Reader("CSV of points", _recognises, _read)
