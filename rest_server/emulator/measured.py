"""Loads of a document for a running fleet, and what is measured beside the simulator and the plan."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.errors import SpecError
from optimizer.kinds.table import kind_of_pool
from optimizer.quantities import counted, quantity, significant
from optimizer.section import Column, Paragraph, Section, name, table
from optimizer.simulation.replicas import DEFAULT_REQUESTS, Effort
from optimizer.simulation.workload import MergedLoad, OpenLoad
from optimizer.spec.system import System
from optimizer.studies.simulation.pools import PoolRun, simulate_pool, stream_of
from rest_server.emulator.driver import MeasuredLoad, ServerLoad

METRICS = {"ttft": "TTFT", "itl": "ITL", "e2e": "end-to-end", "latency": "latency"}
LEFT_OUT = 0.1
"""Share of the requests discarded at the start and again at the end, as in a simulation."""
PERCENTILE = 95


@dataclass(frozen=True, slots=True)
class DrivenMetric:
    """A metric of a server: measured, simulated, and predicted by the plan."""

    server: str
    metric: str
    unit: str
    measured: float | None
    measured_p95: float | None
    simulated: float | None
    simulated_p95: float | None
    predicted: float | None


def loads_of(
    system: System, runs: Sequence[PoolRun], running: Mapping[str, int] | None, requests: int, seed: int
) -> list[ServerLoad]:
    """Return the requests to each server: the planned load of a replica, times the replicas that run.

    Raises:
        SpecError: none of the servers runs there.
    """
    rates: dict[str, float] = {}
    for run in runs:
        rates[run.server] = rates.get(run.server, 0.0) + run.rate_rps * run.pool.num_replicas
    if running is not None:
        planned = {name: sum(r.pool.num_replicas for r in runs if r.server == name) for name in rates}
        rates = {name: rate * running.get(name, 0) / planned[name] for name, rate in rates.items()}
    rates = {name: rate for name, rate in rates.items() if rate > 0}
    if not rates:
        raise SpecError("URL: none of the document's servers runs there; GET /emulator/replicas lists them")
    last_s, loads = requests / max(rates.values()), []
    for server, rate in rates.items():
        run = next(run for run in runs if run.server == server)
        load = run.load.streams[run.place] if isinstance(run.load, MergedLoad) else run.load
        assert isinstance(load, OpenLoad)
        own = np.random.SeedSequence([seed, stream_of(server, "")])
        drawn = replace(load, rate_rps=rate).draw(max(round(rate * last_s), 20), own)
        streams = "itl" in {shown.metric for shown in kind_of_pool(run.pool).metrics}
        loads.append(ServerLoad(server, system.named[server].model, streams, rate, drawn))
    return loads


def compared(found: MeasuredLoad, runs: Sequence[PoolRun], seed: int) -> Iterator[DrivenMetric]:
    """Yield the metrics of a server; those of several pools are not compared."""
    mine = [run for run in runs if run.server == found.load.server]
    run = mine[0] if len(mine) == 1 else None
    pool = None if run is None else simulate_pool(run, Effort(requests=DEFAULT_REQUESTS, seed=seed))
    for metric, values in found.latencies_ms.items():
        kept = _counted(values)
        simulated = None if pool is None else getattr(pool, "ttft" if metric == "latency" else metric)
        predicted = None if simulated is None else simulated.predicted_mean
        yield DrivenMetric(
            found.load.server,
            METRICS[metric],
            "ms",
            float(kept.mean()) if len(kept) else None,
            float(np.percentile(kept, PERCENTILE)) if len(kept) else None,
            None if simulated is None else simulated.mean.value,
            None if simulated is None else simulated.p95.value,
            predicted,
        )
    simulated_loss = None if pool is None else 100 * pool.loss.value
    predicted_loss = None if run is None else 100 * run.pool.loss
    yield DrivenMetric(
        found.load.server, "rejected", "%", 100 * found.loss, None, simulated_loss, None, predicted_loss
    )


def _counted(values: FloatArray) -> FloatArray:
    left_out = int(len(values) * LEFT_OUT)
    kept = values[left_out : len(values) - left_out]
    return kept[~np.isnan(kept)]


def sections_of(
    rows: Sequence[DrivenMetric], found: Sequence[MeasuredLoad], client_cpu_s: float
) -> list[Section]:
    """Return the comparison, and what the client itself costs."""
    sent = sum(len(one.sent_ms) for one in found)
    late_ms = float(np.percentile(np.concatenate([one.late_ms for one in found]), PERCENTILE))
    span_s = max(float(np.nanmax(one.sent_ms)) for one in found) / 1000
    text = (
        f"{counted(sent, 'request')} in {quantity(span_s, 3)} s; the client itself used "
        f"{1e6 * client_cpu_s / sent:,.0f} us of CPU per request, and 95 % of the requests were sent at most "
        f"{quantity(late_ms, 2)} ms late"
    )
    digits = significant(4)
    columns = (
        name("server", "server"),
        name("metric", "metric"),
        name("unit", "unit"),
        Column("measured", "measured", form=digits),
        Column("simulated", "simulated", form=digits),
        Column("plan", "predicted", form=digits),
        Column("p95 measured", "measured_p95", form=digits, rank=1),
        Column("p95 simulated", "simulated_p95", form=digits, rank=1),
    )
    return [Section(text=[Paragraph(text)]), table("Latencies", columns, rows)]
