"""Emulated fleet whose replicas start and stop to match the desired replicas of workloads, as in Kubernetes.

A new replica waits for free cards, takes its start-up time, and then gets a port and requests. A replica that
stops gets no more requests, completes those that it has, and closes its port.
"""

import asyncio
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from optimizer.arrays import grouped
from optimizer.features.disaggregation.streams import RolePool
from optimizer.plan import Plan
from optimizer.plan.placements import placements_of
from optimizer.render.alternatives import plans_elsewhere
from optimizer.render.cluster_table import read_cluster_table
from optimizer.render.manifests import unique_names, workload_pairs
from optimizer.spec.system import System
from optimizer.stabilisation.free_cards import FreeCards
from rest_server.emulator.backend import Backend
from rest_server.emulator.engine import LAG_S
from rest_server.emulator.fleet import EmulatedPool, backend_of, placements, replica_apps
from rest_server.emulator.metrics import Histogram
from rest_server.emulator.serve import FleetServer
from rest_server.emulator.settings import FleetSettings
from rest_server.emulator.workloads import DEPLOYMENTS, LEADER_WORKER_SETS, PodState, Workload

TICK_S = 0.1
"""Time between two checks of the desired replicas [s]."""
DRAIN_S = 30.0
"""Maximum time for which a stopped replica completes its requests [s]."""


@dataclass(slots=True)
class Pod:
    """A replica of a workload, in one of the states of its life."""

    workload: Workload
    number: int
    state: PodState = "pending"
    until_s: float = math.inf
    """Time at which its start or its drain ends [s, monotonic clock]."""
    backend: Backend | None = None
    port: int = 0


class ElasticFleet:
    """Emulated fleet of workloads whose replicas start and stop."""

    def __init__(self, system: System, plan: Plan, settings: FleetSettings) -> None:
        """Start with the replicas of a plan, all of them ready.

        Args:
            system: the planned system.
        """
        self.backends: list[Backend] = []
        """Replicas that get requests; the router uses the same list."""
        self.lag = Histogram(LAG_S)
        """Histogram of the delays of all engines [s]."""
        system = plan.planned_in(system)
        self._system, self._settings = system, settings
        self._cluster = read_cluster_table(settings.cluster)
        pools = pools_by_pair(system, plan)
        pairs = {name: pair for pair, name in unique_names(workload_pairs(system)).items() if pair in pools}
        self.pools = {name: pools[pair] for name, pair in pairs.items()}
        """Pool of each workload, from which new replicas are created."""
        self._pods: list[Pod] = []
        """All replicas, the oldest first."""
        planned = {
            (server, pool.accelerator): max(1, round(settings.share * pool.num_replicas))
            for server, placed in plan.allocations.items()
            for pool in placed
            if pool.num_replicas
        }
        self.workloads = {
            name: self._workload(name, pairs[name], planned.get(pairs[name], 0)) for name in sorted(pairs)
        }
        self._cards = FreeCards.beside(system, placements_of(plan))
        self._numbers = {name: itertools.count() for name in pairs}

    def _workload(self, name: str, pair: tuple[str, str], replicas: int) -> Workload:
        """Return the workload of a server on an accelerator: a Deployment or a LeaderWorkerSet.

        It is a LeaderWorkerSet if a replica needs the cards of several nodes.
        """
        size = self._cluster.nodes_of(pair[1], *self._system.units_per_replica(*pair))
        resource = LEADER_WORKER_SETS if size > 1 else DEPLOYMENTS
        server = self._system.servers[pair[0]]
        role = server.role if isinstance(server, RolePool) else ""
        return Workload(name, *pair, replicas, resource, size, role=role)

    def pods(self, name: str) -> list[tuple[int, PodState]]:
        """Return the number and the state of each replica of a workload."""
        return [(pod.number, pod.state) for pod in self._pods if pod.workload.name == name]

    async def run(self, server: FleetServer, changed: Callable[[], None]) -> None:
        """Start and stop replicas repeatedly; call `changed` whenever they might have changed."""
        while True:
            await self.follow(server)
            changed()
            await asyncio.sleep(TICK_S)

    async def follow(self, server: FleetServer, *, at_once: bool = False) -> None:
        """Start and stop replicas to match the desired numbers.

        Args:
            server: opens and closes the ports of replicas.
            at_once: whether new replicas are ready immediately.
        """
        now_s = time.monotonic()
        live_of = grouped((pod.workload.name, pod) for pod in self._pods if pod.state != "draining")
        for workload in self.workloads.values():
            live = live_of.get(workload.name, [])
            self._stop_surplus(live, len(live) - workload.replicas, now_s)
            for _ in range(workload.replicas - len(live)):
                self._pods.append(Pod(workload, next(self._numbers[workload.name])))
        for pod in list(self._pods):  # the oldest gets cards first
            await self._advance(pod, server, now_s if not at_once else math.inf)

    def _stop_surplus(self, live: list[Pod], surplus: int, now_s: float) -> None:
        """Stop some of the replicas of a workload: first those that are not ready, then the newest."""
        order: dict[str, int] = {"pending": 0, "starting": 1, "ready": 2}
        live = sorted(live, key=lambda pod: (order[pod.state], -pod.number))
        for pod in live[: max(0, surplus)]:
            if pod.state == "ready":
                assert pod.backend is not None
                self.backends.remove(pod.backend)
                pod.state, pod.until_s = "draining", now_s + DRAIN_S
            else:
                self._remove(pod)

    def _remove(self, pod: Pod) -> None:
        if pod.state != "pending":
            self._cards.take(pod.workload.server, pod.workload.accelerator, -1)
        self._pods.remove(pod)

    async def _advance(self, pod: Pod, server: FleetServer, now_s: float) -> None:
        workload = pod.workload
        place = workload.server, workload.accelerator
        if pod.state == "pending" and self._cards.fitting(*place, 1):
            self._cards.take(*place, 1)
            model, settings = self._system.servers[workload.server].model, self._settings
            startup_s = settings.startup_of(model, workload.accelerator)
            pod.state, pod.until_s = "starting", now_s + startup_s / settings.speed
        if pod.state == "starting" and now_s >= pod.until_s:
            await self._open(pod, server)
        if pod.state == "draining":
            assert pod.backend is not None
            if not pod.backend.app.load or now_s >= pod.until_s:
                server.close_port(pod.port)
                self._remove(pod)

    async def _open(self, pod: Pod, server: FleetServer) -> None:
        """Let a replica listen on its own port, and get requests."""
        pool = self.pools[pod.workload.name]
        ((app, runs),) = replica_apps(self._system, pool, self._settings, self.lag, pod.number)
        host, pod.port = await server.open_port(app)
        url, name = f"http://{host}:{pod.port}", f"{pod.workload.name}-{pod.number}"
        pod.backend = backend_of(self._system, self._settings, name, url, app, runs)
        self.backends.append(pod.backend)
        pod.state = "ready"


def pools_by_pair(system: System, plan: Plan) -> dict[tuple[str, str], EmulatedPool]:
    """Return the pool of each server on each accelerator on which it can be served.

    If the plan does not use a pair, its pool is that of a plan with only that accelerator. Prefill and decode
    pools are only on the accelerators of the plan.
    """
    pools = _pools_of(system, plan)
    by_role = {pair for pair in workload_pairs(system) if isinstance(system.servers[pair[0]], RolePool)}
    for alone, other in plans_elsewhere(system, pools.keys() | by_role):
        pools = _pools_of(alone, other) | pools
    return pools


def _pools_of(system: System, plan: Plan) -> dict[tuple[str, str], EmulatedPool]:
    return {
        (pool.runs[0].planned, pool.runs[0].pool.accelerator): pool
        for pool in placements(system, plan)
        if pool.runs[0].card is None and not pool.runs[0].cards
    }
