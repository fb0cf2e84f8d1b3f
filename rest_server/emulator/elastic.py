"""Emulated fleet whose replicas start and stop to match the desired replicas of workloads, as in Kubernetes.

A new replica waits for free cards, takes its start-up time, and then gets a port and requests. A replica that
stops gets no more requests, completes those that it has, and closes its port.
"""

import asyncio
import itertools
import math
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from optimizer.plan import Plan
from optimizer.plan.placements import placements_of
from optimizer.render.alternatives import plans_elsewhere
from optimizer.render.manifests import unique_names, workload_pairs
from optimizer.spec.system import System
from optimizer.stabilisation.free_cards import FreeCards
from rest_server.emulator.asgi import App
from rest_server.emulator.backend import Backend
from rest_server.emulator.engine import LAG_S
from rest_server.emulator.fleet import EmulatedPool, backend_of, placements, replica_apps
from rest_server.emulator.metrics import Histogram
from rest_server.emulator.settings import FleetSettings
from rest_server.emulator.workloads import DEPLOYMENTS, LEADER_WORKER_SETS, PodState, Workload

TICK_S = 0.1
"""Time between two checks of the desired replicas [s]."""
DRAIN_S = 30.0
"""Maximum time for which a stopped replica completes its requests [s]."""


@dataclass(slots=True)
class Pod:
    """A replica of a workload, in one of the states of its life."""

    number: int
    created: int
    """Position of the replica in the order in which replicas were created."""
    state: PodState = "pending"
    until_s: float = math.inf
    """Time at which its start or its drain ends [s, monotonic clock]."""
    backend: Backend | None = None
    port: int = 0


@dataclass(slots=True)
class _Pool:
    """The replicas of a workload, with the pool from which new ones are created."""

    pool: EmulatedPool
    pods: list[Pod] = field(default_factory=list)


class ElasticFleet:
    """Emulated fleet of workloads whose replicas start and stop."""

    def __init__(self, system: System, plan: Plan, settings: FleetSettings) -> None:
        """Start with the replicas of a plan, all of them ready.

        Args:
            system: the planned system.
            plan: its plan.
            settings: settings of the fleet.
        """
        self.backends: list[Backend] = []
        """Replicas that get requests; the router uses the same list."""
        self.lag = Histogram(LAG_S)
        """Histogram of the delays of all engines [s]."""
        self._system, self._settings = system, settings
        self._names = unique_names(workload_pairs(system))
        self._pools = {
            self._names[pair]: _Pool(pool)
            for pair, pool in pools_by_pair(system, plan).items()
            if pair in self._names
        }
        pairs = {name: pair for pair, name in self._names.items()}
        planned = {
            (server, pool.accelerator): max(1, round(settings.share * pool.num_replicas))
            for server, pools in plan.allocations.items()
            for pool in pools
            if pool.num_replicas
        }
        self.workloads = {
            name: self._workload(name, pairs[name], planned.get(pairs[name], 0))
            for name in sorted(self._pools)
        }
        self._cards = FreeCards.beside(system, placements_of(plan))
        self._numbers: dict[str, int] = {}
        self._created = itertools.count()

    def _workload(self, name: str, pair: tuple[str, str], replicas: int) -> Workload:
        """Return the workload of a server on an accelerator: a Deployment or a LeaderWorkerSet.

        It is a LeaderWorkerSet if a replica needs the cards of several nodes.
        """
        size = self._settings.cluster.nodes_of(pair[1], *self._system.units_per_replica(*pair))
        resource = LEADER_WORKER_SETS if size > 1 else DEPLOYMENTS
        return Workload(name, *pair, replicas, resource, size)

    def pods(self, name: str) -> list[tuple[int, PodState]]:
        """Return the number and the state of each replica of a workload."""
        return [(pod.number, pod.state) for pod in self._pools[name].pods]

    @property
    def example_pools(self) -> list[EmulatedPool]:
        """Return one pool of each workload."""
        return [item.pool for item in self._pools.values()]

    async def run(self, opening: "PodPorts", changed: Callable[[], None]) -> None:
        """Start and stop replicas repeatedly; call `changed` whenever they might have changed."""
        while True:
            await self.follow(opening)
            changed()
            await asyncio.sleep(TICK_S)

    async def follow(self, opening: "PodPorts", *, at_once: bool = False) -> None:
        """Start and stop replicas to match the desired numbers.

        Args:
            opening: opens and closes the ports of replicas.
            at_once: whether new replicas are ready immediately.
        """
        now_s = time.monotonic()
        for name, workload in self.workloads.items():
            pods = self._pools[name].pods
            self._stop_surplus(workload, pods, now_s)
            while sum(pod.state != "draining" for pod in pods) < workload.replicas:
                self._numbers[name] = self._numbers.get(name, -1) + 1
                pods.append(Pod(self._numbers[name], next(self._created)))
        waiting = [
            (pod.created, workload, pod)
            for name, workload in self.workloads.items()
            for pod in self._pools[name].pods
        ]
        for _, workload, pod in sorted(waiting, key=lambda item: item[0]):  # the oldest gets cards first
            await self._advance(workload, pod, opening, now_s if not at_once else math.inf)

    def _stop_surplus(self, workload: Workload, pods: list[Pod], now_s: float) -> None:
        """Stop replicas beyond the desired number: first those that are not ready, then the newest."""
        order: dict[str, int] = {"pending": 0, "starting": 1, "ready": 2}
        live = sorted(
            (pod for pod in pods if pod.state != "draining"), key=lambda pod: (order[pod.state], -pod.number)
        )
        for pod in live[: max(0, len(live) - workload.replicas)]:
            if pod.state == "ready":
                assert pod.backend is not None
                self.backends.remove(pod.backend)
                pod.state, pod.until_s = "draining", now_s + DRAIN_S
            else:
                self._remove(workload, pods, pod)

    def _remove(self, workload: Workload, pods: list[Pod], pod: Pod) -> None:
        if pod.state != "pending":
            self._cards.take(workload.server, workload.accelerator, -1)
        pods.remove(pod)

    async def _advance(self, workload: Workload, pod: Pod, opening: "PodPorts", now_s: float) -> None:
        place = workload.server, workload.accelerator
        if pod.state == "pending" and self._cards.fitting(*place, 1):
            self._cards.take(*place, 1)
            model, settings = self._system.servers[workload.server].model, self._settings
            startup_s = settings.startup_of(model, workload.accelerator)
            pod.state, pod.until_s = "starting", now_s + startup_s / settings.speed
        if pod.state == "starting" and now_s >= pod.until_s:
            pod.backend, pod.port = await self._opened(workload, pod, opening)
            self.backends.append(pod.backend)
            pod.state = "ready"
        if pod.state == "draining":
            assert pod.backend is not None
            if not pod.backend.app.load or now_s >= pod.until_s:
                opening.close(pod.port)
                self._remove(workload, self._pools[workload.name].pods, pod)

    async def _opened(self, workload: Workload, pod: Pod, opening: "PodPorts") -> tuple[Backend, int]:
        """Return a new replica that listens on its own port, and the port."""
        pool = self._pools[workload.name].pool
        ((app, runs),) = replica_apps(self._system, pool, self._settings, self.lag, pod.number)
        listening = await opening.open(app)
        port = listening.getsockname()[1]
        url = f"http://{listening.getsockname()[0]}:{port}"
        name = f"{workload.name}-{pod.number}"
        return backend_of(self._system, self._settings, name, url, app, runs), port


class PodPorts:
    """Opens and closes the ports of replicas in the server process of the fleet."""

    def __init__(
        self, apps: dict[int, App], host: str, protocol: Callable[[], asyncio.Protocol], backlog: int
    ) -> None:
        self._apps, self._host, self._protocol, self._backlog = apps, host, protocol, backlog
        self._servers: dict[int, asyncio.Server] = {}

    async def open(self, app: App) -> socket.socket:
        """Listen on a free port for an application, and return the socket."""
        listening = socket.create_server((self._host, 0), backlog=self._backlog)
        port = listening.getsockname()[1]
        self._apps[port] = app
        loop = asyncio.get_running_loop()
        self._servers[port] = await loop.create_server(self._protocol, sock=listening, backlog=self._backlog)
        return listening

    def close(self, port: int) -> None:
        """Stop listening on a port."""
        self._servers.pop(port).close()
        del self._apps[port]

    def close_all(self) -> None:
        """Stop listening on all ports."""
        for port in list(self._servers):
            self.close(port)


def pools_by_pair(system: System, plan: Plan) -> dict[tuple[str, str], EmulatedPool]:
    """Return the pool of each server on each accelerator on which it can be served.

    If the plan does not use a pair, its pool is that of a plan with only that accelerator.
    """
    found = _pools_of(system, plan)
    for alone, other in plans_elsewhere(system, found.keys()):
        found = _pools_of(alone, other) | found
    return found


def _pools_of(system: System, plan: Plan) -> dict[tuple[str, str], EmulatedPool]:
    return {
        (pool.runs[0].planned, pool.runs[0].pool.accelerator): pool
        for pool in placements(system, plan)
        if pool.runs[0].card is None and not pool.runs[0].cards
    }
