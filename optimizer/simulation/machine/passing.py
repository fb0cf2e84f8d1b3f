"""Runs requests through a tandem: stages before the server, the server, and stages after it."""

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.simulation.machine.collecting import run_batches
from optimizer.simulation.machine.job_limit import JOBS, advance_jobs, tandem_state
from optimizer.simulation.machine.stations import run_station
from optimizer.simulation.tandem import ALL_JOBS, Station, Tandem


def run_line(
    line: Tandem, come_ms: FloatArray, stage_ms: FloatArray, start_ms: FloatArray, last_ms: FloatArray
) -> tuple[float, float, int]:
    """Run all requests through an empty tandem.

    Args:
        come_ms: ascending, shape (R,).
        stage_ms: service times at each stage, shape (stages, R).
        start_ms: filled with the start of each request's batch; NaN if rejected.
        last_ms: filled with the times at which requests leave; NaN if rejected.

    Returns:
        Busy time of the server, ∫ batch dt, and number of batches.
    """
    if line.jobs != ALL_JOBS:
        return _run_jobs(line, come_ms, stage_ms, start_ms, last_ms)
    rows = np.arange(len(come_ms))
    count = len(line.before)
    there_ms = come_ms
    for station, times in zip(line.before, stage_ms[:count], strict=True):
        rows, there_ms = _passed(station, rows, there_ms, times)
    begun_ms, done_ms = np.empty(len(rows)), np.empty(len(rows))
    batches = run_batches(line.server, there_ms, begun_ms, done_ms, np.empty(len(rows), np.int64))
    start_ms[rows] = begun_ms
    served = np.flatnonzero(~np.isnan(done_ms))  # in order of arrival, and so of completion
    last_ms[rows] = np.nan
    rows, there_ms = rows[served], done_ms[served]
    for station, times in zip(line.after, stage_ms[count:], strict=True):
        rows, there_ms = _passed(station, rows, there_ms, times)
    last_ms[rows] = there_ms
    return batches


def _passed(
    station: Station, rows: IntArray, come_ms: FloatArray, times_ms: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Return the requests in the order in which they leave a stage, and the times of leaving [ms]."""
    left_ms = np.empty(len(rows))
    run_station(come_ms, times_ms[rows], np.zeros(min(station.workers, len(rows) + 1)), left_ms)
    if station.workers == 1:
        return rows, left_ms
    order = np.argsort(left_ms, kind="stable")
    return rows[order], left_ms[order]


def _run_jobs(
    line: Tandem, come_ms: FloatArray, stage_ms: FloatArray, start_ms: FloatArray, last_ms: FloatArray
) -> tuple[float, float, int]:
    """Run all requests through an empty tandem with a limit on the jobs inside."""
    yard, states = tandem_state(line, stage_ms), np.zeros(1, JOBS)
    advance_jobs(yard, states, np.array(come_ms), 0, len(come_ms), line.jobs, last_ms, np.inf)
    start_ms[:] = yard.start_ms
    state = states[0]
    return float(state["busy_ms"]), float(state["batch_ms"]), int(state["batches"])


def stage_times_ms(stations: tuple[Station, ...], count: int, rng: np.random.Generator) -> FloatArray:
    """Draw lognormal service times of `count` requests at each stage [ms], shape (stages, count)."""
    times = np.empty((len(stations), count))
    for row, station in zip(times, stations, strict=True):
        variance = np.log1p(station.cv * station.cv)
        if variance > 0:
            row[:] = rng.lognormal(np.log(station.mean_ms) - variance / 2, np.sqrt(variance), count)
        else:
            row[:] = station.mean_ms
    return times
