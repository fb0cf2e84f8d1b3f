"""Creates the emulated replicas of a plan: their engines, ports and servers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from optimizer.arrays import grouped
from optimizer.errors import AnalysisError
from optimizer.plan import Plan
from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.limits import UNLIMITED
from optimizer.simulation.live.replica import LiveReplica
from optimizer.simulation.live.turns import LiveTurns
from optimizer.simulation.pools import PrefillReplica
from optimizer.simulation.replicas import LineReplica, SimulatedReplica, StaticReplica, TokenReplica
from optimizer.simulation.workload import MergedLoad
from optimizer.spec.system import System
from optimizer.studies.simulation.pools import PoolRun, open_load_of, pool_runs, stream_of
from rest_server.emulator.backend import UNLIMITED_SLOTS, Backend
from rest_server.emulator.batch import BatchReplicaApp
from rest_server.emulator.engine import Engine
from rest_server.emulator.life import Life
from rest_server.emulator.metrics import Histogram
from rest_server.emulator.replica import LONGEST_TOKENS, Model, TokenReplicaApp
from rest_server.emulator.roles import ROLE_APPS
from rest_server.emulator.settings import FleetSettings


@dataclass(frozen=True, slots=True)
class EmulatedPool:
    """Identical replicas of a plan."""

    runs: tuple[PoolRun, ...]
    """Servers that share each replica, or that take turns on its card; a single one if it is not shared."""
    replicas: int
    """Number of replicas, or of cards that are shared in time."""

    @property
    def replica(self) -> SimulatedReplica | PrefillReplica:
        """One of the replicas."""
        first = self.runs[0]
        return first.replica if first.both is None else first.both.part


def placements(system: System, plan: Plan, share: float = 1.0) -> list[EmulatedPool]:
    """Return the pools of a plan with a fraction of their replicas, but at least one replica each.

    Raises:
        SpecError: the plan is not for this system.
    """
    groups = grouped(
        ((run.cards, run.planned if run.card is None else "", run.pool.accelerator), run)
        for run in pool_runs(system, plan)
    )
    return [EmulatedPool(tuple(runs), max(1, round(share * runs[0].units))) for runs in groups.values()]


def backends(
    system: System,
    placed: list[EmulatedPool],
    settings: FleetSettings,
    lag: Histogram,
    url: Callable[[int], str],
) -> list[Backend]:
    """Return all replicas of an emulated fleet, with their engines.

    Args:
        system: the planned system.
        placed: the placements.
        lag: histogram of the delays of all engines [s].
        url: function that returns the address of replica i.

    Raises:
        AnalysisError: a replica cannot be emulated.
    """
    result: list[Backend] = []
    for placement in placed:
        for k in range(placement.replicas):
            for app, runs in replica_apps(system, placement, settings, lag, k):
                name = f"{runs[0].planned}-{len(result)}"
                result.append(backend_of(system, settings, name, url(len(result)), app, runs))
    return result


def backend_of(
    system: System,
    settings: FleetSettings,
    name: str,
    url: str,
    app: TokenReplicaApp | BatchReplicaApp,
    runs: tuple[PoolRun, ...],
) -> Backend:
    """Return the router's view of a replica, which can serve several servers."""
    servers, replica = tuple(run.server for run in runs), EmulatedPool(runs, 1).replica
    model, accelerator = system.in_plans[servers[0]].model, runs[0].pool.accelerator
    app.life.startup_s = settings.startup_of(model, accelerator)
    delay_ms = {run.server: run.delay_ms for run in runs if run.delay_ms}
    slots = UNLIMITED_SLOTS
    if isinstance(replica, TokenReplica | StaticReplica):
        slots = replica.limits.max_batch
    elif isinstance(replica, LineReplica):
        slots = replica.line.server.size
    rate_rps = sum(run.rate_rps for run in runs)
    owner = runs[0].owner if runs[0].both is not None else ""
    return Backend(
        name, servers, runs[0].planned, model, accelerator, url, app, delay_ms, slots, rate_rps, owner=owner
    )  # fmt: skip


def replica_apps(
    system: System, placement: EmulatedPool, settings: FleetSettings, lag: Histogram, k: int
) -> Iterator[tuple[TokenReplicaApp | BatchReplicaApp, tuple[PoolRun, ...]]]:
    """Yield the applications of one replica, with their servers.

    A time-shared card has one application for each of its servers.
    """
    runs, first = placement.runs, placement.runs[0]
    spawned = np.random.SeedSequence([settings.seed, stream_of(first.planned, first.pool.accelerator), k])
    replica = placement.replica
    if first.card is not None:
        engine = Engine(partial(LiveTurns, first.card.servers), settings.speed, lag)
        life = Life(engine)
        for run in runs:
            assert run.card is not None
            place = run.card.place
            server = first.card.servers[place]
            yield BatchReplicaApp(system.in_plans[run.server].model, server, engine, life, place), (run,)
        return
    if not isinstance(replica, LineReplica | TokenReplica | StaticReplica | PrefillReplica):
        raise AnalysisError(f"{first.server}: its replicas cannot be emulated; remove the server")
    levels = _levels(first)
    rng = np.random.default_rng(spawned)

    def new() -> LiveReplica:
        return replica.live(max(levels) + 1, rng)

    engine = Engine(new, settings.speed, lag)
    model = system.in_plans[first.server].model
    if isinstance(replica, LineReplica):
        yield BatchReplicaApp(model, replica.line.server, engine, Life(engine), 0), runs
        return
    kv = replica.kv_tokens if isinstance(replica, PrefillReplica) else replica.limits.kv_tokens
    longest = min(kv, LONGEST_TOKENS)
    names = {run.server: levels[run.place] for run in runs}
    load = open_load_of(first)
    prefixes = [shape for shape in load.shapes if shape.prefix_tokens]
    times = replica.times if isinstance(replica.times, IterationCoefficients) else None
    served = Model(
        model, names, longest, kv if kv < UNLIMITED else None, load.out_lengths, times,
        caches_prefixes=bool(prefixes), stores_once=any(shape.stored_once for shape in prefixes),
    )  # fmt: skip
    new_app: Callable[..., TokenReplicaApp] = TokenReplicaApp
    if first.both is not None:
        new_app = partial(ROLE_APPS[first.both.role], pools=first.both.replica)
    yield new_app(served, engine, Life(engine), int(spawned.generate_state(1)[0])), runs


def _levels(run: PoolRun) -> list[int]:
    """Return the rank of the priority of each server that shares a replica; 0 is the highest."""
    if not isinstance(run.load, MergedLoad):
        return [0]
    ranks = sorted(set(run.load.priorities))
    return [ranks.index(priority) for priority in run.load.priorities]
