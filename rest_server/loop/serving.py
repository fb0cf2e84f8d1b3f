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
        if record is None:
            return
        yield GaugeMetricFamily(
            "inferplan_loop_last_cycle_timestamp_seconds", "Start of the last cycle.", value=loop.last_s
        )
        yield GaugeMetricFamily(
            "inferplan_loop_cycle_seconds", "Time of the last cycle.", value=record["tookSeconds"]
        )
        yield GaugeMetricFamily(
            "inferplan_loop_has_lease", "Whether this loop can scale.", value=not record["lease"]
        )
        yield from _loads(record)
        yield from _workloads(record)
        yield from _drift(record)


def _loads(record: dict[str, Any]) -> Iterator[Metric]:
    names = {"offered_rps": "Arrival rate", "completions_rps": "Completions", "planned_rps": "Planned rate"}
    for key, text in names.items():
        family = GaugeMetricFamily(f"inferplan_loop_{key}", f"{text} [requests/s].", labels=["server"])
        for server, load in record["loads"].items():
            family.add_metric([server], load[key])
        yield family
    held = GaugeMetricFamily(
        "inferplan_loop_held", "Servers that keep their replicas.", labels=["server", "reason"]
    )
    for server, text in record["holds"].items():
        held.add_metric([server, text.partition(":")[0]], 1)
    yield held


def _workloads(record: dict[str, Any]) -> Iterator[Metric]:
    planned = GaugeMetricFamily(
        "inferplan_loop_planned_replicas", "Planned replicas, for arrivals or backlog.",
        labels=["server", "purpose"],
    )  # fmt: skip
    for server, found in record["planned"].items():
        planned.add_metric([server, "rate"], found["for_rate"])
        planned.add_metric([server, "backlog"], found["for_backlog"])
    yield planned
    names = {"replicas": "desired", "existing": "existing", "ready": "ready"}
    for key, name in names.items():
        family = GaugeMetricFamily(
            f"inferplan_loop_{name}_replicas", f"Number of {name} replicas.", labels=["server", "accelerator"]
        )
        for item in record["workloads"]:
            family.add_metric([item["server"], item["accelerator"]], item[key])
        yield family


def _drift(record: dict[str, Any]) -> Iterator[Metric]:
    ratio = GaugeMetricFamily(
        "inferplan_loop_token_time_ratio", "Measured over predicted token time.", labels=["profile"]
    )
    first = GaugeMetricFamily(
        "inferplan_loop_ttft_ratio", "Measured over predicted TTFT.", labels=["profile"]
    )
    alarm = GaugeMetricFamily(
        "inferplan_loop_drift_alarm", "Whether a profile has drifted.", labels=["profile"]
    )
    for profile, found in record["drift"].items():
        for family, value in ((ratio, found["ratio"]), (first, found["ttft_ratio"])):
            if value is not None:
                family.add_metric([profile], value)
        alarm.add_metric([profile], found["alarm"])
    yield from (ratio, first, alarm)


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
