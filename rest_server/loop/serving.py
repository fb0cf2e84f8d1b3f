"""HTTP port of the control loop: metrics, health, and on request the routes of llm-inferno's control loop.

With `referenceRoutes`, the collector (`GET /collect`), actuator (`POST /update`) and controller (`GET
/invoke`) of llm-inferno can be replaced one by one.
"""

import threading
from collections.abc import Iterator
from typing import Any

import uvicorn
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from optimizer.errors import SpecError
from rest_server.loop.controller import Controller
from rest_server.loop.reference import collected, updated

LOOPBACK = {"127.0.0.1", "::1", "localhost"}
STALE_PERIODS = 3
"""Number of periods without a cycle after which the loop counts as not ready."""


class LoopMetrics(Collector):
    """Collector of metrics of the last cycle, and of counters over all cycles."""

    def __init__(self, loop: Controller) -> None:
        self._loop = loop

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; before the first cycle there are no metrics of servers."""
        loop, record = self._loop, self._loop.last
        yield CounterMetricFamily("inferplan_loop_cycles", "Cycles.", value=loop.cycles)
        scalings = CounterMetricFamily(
            "inferplan_loop_scalings", "Workloads scaled, or refused.", labels=["result"]
        )
        for result, count in sorted(loop.scalings.items()):
            scalings.add_metric([result], count)
        yield scalings
        for name, text, labels, samples in () if record is None else _gauges(loop, record):
            family = GaugeMetricFamily(f"inferplan_loop_{name}", text, labels=labels)
            for *values, number in samples:
                if number is not None:
                    family.add_metric(values, number)
            yield family


def _gauges(
    loop: Controller, record: dict[str, Any]
) -> Iterator[tuple[str, str, list[str], list[tuple[Any, ...]]]]:
    """Yield name, description, labels and samples of each gauge; a sample has its labels, then its value."""
    yield "last_cycle_timestamp_seconds", "Start of the last cycle.", [], [(loop.last_s,)]
    yield "cycle_seconds", "Time of the last cycle.", [], [(record["tookSeconds"],)]
    yield "has_lease", "Whether this loop can scale.", [], [(not record["lease"],)]
    loads, workloads, drift = record["loads"].items(), record["workloads"], record["drift"].items()
    rates = {"offered_rps": "Arrival rate", "completions_rps": "Completions", "planned_rps": "Planned rate"}
    for key, text in rates.items():
        yield key, f"{text} [requests/s].", ["server"], [(server, load[key]) for server, load in loads]
    ages = [(server, load.get("age_s")) for server, load in loads]
    yield "load_age_seconds", "Time since the load was last measured.", ["server"], ages
    held = [(server, text.partition(":")[0], 1) for server, text in record["holds"].items()]
    yield "held", "Servers that keep their replicas.", ["server", "reason"], held
    purposes = {"for_rate": "rate", "for_backlog": "backlog"}
    planned = [
        (server, purpose, row[key])
        for server, row in record["planned"].items()
        for key, purpose in purposes.items()
    ]
    text = "Planned replicas, for arrivals or backlog."
    yield "planned_replicas", text, ["server", "purpose"], planned
    for key, name in {"replicas": "desired", "existing": "existing", "ready": "ready"}.items():
        numbers = [(item["server"], item["accelerator"], item[key]) for item in workloads]
        yield f"{name}_replicas", f"Number of {name} replicas.", ["server", "accelerator"], numbers
    for key, name, text in (
        ("ratio", "token_time_ratio", "Measured over predicted token time."),
        ("ttft_ratio", "ttft_ratio", "Measured over predicted TTFT."),
        ("alarm", "drift_alarm", "Whether a profile has drifted."),
    ):
        yield name, text, ["profile"], [(profile, row[key]) for profile, row in drift]


def application(loop: Controller, *, with_reference_routes: bool) -> Starlette:
    """Return the web application for the port of a control loop."""
    registry = CollectorRegistry()
    registry.register(LoopMetrics(loop))

    def metrics(_: Request) -> Response:
        return PlainTextResponse(generate_latest(registry), media_type="text/plain; version=0.0.4")

    def healthy(_: Request) -> Response:
        late = loop.is_late(STALE_PERIODS)
        return PlainTextResponse("late\n" if late else "ok\n", 503 if late else 200)

    def collect(_: Request) -> Response:
        if loop.last is None:
            return JSONResponse({"message": "no cycle has run yet; GET /invoke runs one"}, 503)
        return JSONResponse(collected(loop.system, loop.last, loop.config))

    async def update(request: Request) -> Response:
        try:
            body = await request.json()
            problems = await run_in_threadpool(updated, loop, body)
        except (ValueError, SpecError) as error:
            return JSONResponse({"message": str(error)}, 400)
        return JSONResponse({"message": "; ".join(problems)}, 409) if problems else JSONResponse("Done")

    async def invoke(_: Request) -> Response:
        return JSONResponse(await run_in_threadpool(loop.now))

    routes = [Route("/metrics", metrics), Route("/healthz", healthy)]
    if with_reference_routes:
        routes += [
            Route("/collect", collect),
            Route("/update", update, methods=["POST"]),
            Route("/invoke", invoke),
        ]
    return Starlette(routes=routes)


def serve_loop(loop: Controller) -> None:
    """Serve the port of a control loop in a thread, if it has one.

    Raises:
        SpecError: the port with llm-inferno's routes would not be on a loopback address.
    """
    config = loop.config
    if config.port is None:
        return
    if config.reference_routes and config.host not in LOOPBACK:
        raise SpecError(
            f"referenceRoutes: they have no keys, so host must be a loopback address, not {config.host!r}"
        )
    app = application(loop, with_reference_routes=config.reference_routes)
    server = uvicorn.Server(
        uvicorn.Config(
            app, host=config.host, port=config.port, log_config=None, access_log=False, lifespan="off"
        )
    )
    threading.Thread(target=server.run, daemon=True).start()
