"""Requests for an emulated fleet that give the pools of a plan their planned loads."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from optimizer.arrays import grouped, totals
from optimizer.errors import SpecError
from optimizer.kinds.simulated import open_load
from optimizer.kinds.table import kind_of_pool
from optimizer.plan import Plan
from optimizer.plan.document import EXTERNAL
from optimizer.plan.placements import rows_of, services_of
from optimizer.schema import Route
from optimizer.simulation.requests import Requests
from optimizer.simulation.workload import OpenLoad
from optimizer.spec.streams import owner_of
from optimizer.spec.system import System
from optimizer.studies.simulation.pools import PoolRun, open_load_of, stream_of
from optimizer.units import SECONDS_PER_MINUTE
from rest_server.emulator.driver import AnsweringServer, ServerLoad
from rest_server.emulator.measured import Course


@dataclass(frozen=True, slots=True)
class Asked:
    """Requests of clients to a server of the document, or to a route."""

    name: str
    main: str
    """Planned server whose model is named in requests to an address that does not know server names."""
    shares: Mapping[str, float]
    """Mean number of requests that each planned server gets for one request of a client."""
    load: OpenLoad
    """Load of the server or route that the plan serves."""
    streams: bool
    route: Route | None = None

    def drawn(self, rate_rps: float, count: int, seed: int) -> tuple[Requests, tuple[str, ...]]:
        """Draw random requests and, for a route, the kind of each request."""
        own = np.random.SeedSequence([seed, stream_of(self.name, "")])
        requests = replace(self.load, rate_rps=rate_rps).draw(count, own)
        if self.route is None:
            return requests, ()
        kinds = self.route.kinds
        rng = np.random.default_rng(own.spawn(1)[0])
        of = rng.choice(len(kinds), count, p=[kind.share for kind in kinds])
        tokens = {}
        for field, each in (("in_tokens", self.load.in_lengths), ("out_tokens", self.load.out_lengths)):
            ratios = np.array([getattr(kind, field) for kind in kinds]) / each.mean
            drawn = getattr(requests, field) * ratios[of]
            tokens[field] = np.maximum(np.rint(drawn).astype(np.int64), 1)
        names = tuple(kinds[k].name or f"kind {k + 1}" for k in of.tolist())
        return replace(requests, **tokens), names


def asked_of(system: System, plan: Plan, runs: Sequence[PoolRun]) -> Iterator[Asked]:
    """Yield the requests to each server or route that give the pools of a plan their loads."""
    rates = totals((run.server, run.rate_rps * run.pool.num_replicas) for run in runs)
    counted = totals((run.server, run.counted_rps) for run in runs)
    first = {run.server: run for run in reversed(runs)}
    hits = {use.server: use.hit_rate for use in plan.caches}
    groups = grouped((_asked_name(system, first[server]), server) for server in rates)
    for name, servers in groups.items():
        route = system.routed.get(servers[0])
        main = route.large if route is not None and route.large in servers else servers[0]
        run = first[main]
        if route is not None:
            rate_rps, load = route.arrival_rate_rpm / SECONDS_PER_MINUTE, open_load_of(run)
        else:
            rate_rps = sum(counted[server] / (1 - hits.get(server, 0.0)) for server in servers)
            load = open_load({**system.in_plans, **system.documented}[name].current.load, rate_rps)
        shares = {server: rates[server] / rate_rps for server in servers}
        streams = "itl" in {shown.metric for shown in kind_of_pool(run.pool).metrics}
        yield Asked(name, main, shares, replace(load, rate_rps=rate_rps), streams, route)
    for row in (row for rows in rows_of(plan).values() for row in rows if row.mode == "external"):
        name, share = row.server, 1 - hits.get(row.server, 0.0)
        rate_rps = row.rate_rpm / SECONDS_PER_MINUTE
        load = open_load(system.in_plans[name].current.load, rate_rps / share)
        yield Asked(name, name, {name: share}, load, streams=True)


def _asked_name(system: System, run: PoolRun) -> str:
    """Return the name to which a planned server's requests are sent: of its route, or of its document."""
    route = system.routed.get(run.server)
    if route is not None:
        return route.name
    return run.owner if run.both is not None else owner_of(system.in_plans[run.server])


def loads_of(
    system: System,
    plan: Plan,
    runs: Sequence[PoolRun],
    running: Mapping[tuple[str, str], int] | None,
    requests: int,
    seed: int,
    course: Course,
    only: str | None = None,
) -> list[ServerLoad]:
    """Return the requests to send, at a rate that gives no running replica more than its planned load.

    Args:
        system: the planned system.
        running: number of running replicas by server and accelerator; None if the address does not report it.
        requests: number of requests to the name with the highest rate; other names get theirs in the same
            time.
        seed: random seed.
        course: changes of the load compared with the plan.
        only: the only name to which requests are sent; None for all.

    Raises:
        SpecError: none of the servers runs at the address.
    """
    system = plan.planned_in(system)
    here, ratios = _running(plan, runs, running)
    owners = {run.server: run.owner for run in runs if run.both is not None}
    shares = [
        (asked, min(ratios[server] for server in asked.shares if ratios[server]))
        for asked in asked_of(system, plan, runs)
        if only in {None, asked.name, *asked.shares} and any(ratios[server] for server in asked.shares)
    ]
    if not shares:
        raise SpecError("URL: none of the document's servers runs there; GET /emulator/replicas lists them")
    last_s, loads = requests / max(asked.load.rate_rps * ratio for asked, ratio in shares), []
    for asked, ratio in shares:
        rate_rps = asked.load.rate_rps * ratio
        sent, kinds = asked.drawn(rate_rps, max(round(rate_rps * last_s), 20), seed)
        if course.trace is not None:
            sent, kinds = course.trace, ()
        parts = {
            server: AnsweringServer(
                system.in_plans[server].model,
                share,
                ratio / ratios[server],
                here[server],
                noted=owners.get(server, server),
            )
            for server, share in asked.shares.items()
            if ratios[server]
        }
        cv = np.inf if course.ramp is not None or course.trace is not None else asked.load.arrival_cv
        model, rate_rps = system.in_plans[asked.main].model, rate_rps * course.scale
        loads.append(
            ServerLoad(
                asked.name, model, asked.streams, rate_rps, course.changed(sent), cv, parts, kinds
            )
        )  # fmt: skip
    return loads


def _running(
    plan: Plan, runs: Sequence[PoolRun], running: Mapping[tuple[str, str], int] | None
) -> tuple[Counter[str], dict[str, float]]:
    """Return the running replicas of each server, and the share of its planned load that they can take."""
    pools = [(run.server, run.pool.accelerator, run.pool.num_replicas, run.rate_rps) for run in runs]
    pools += [(server, EXTERNAL, 1, 1.0) for server in services_of(plan)]
    here = Counter[str]()
    planned_rps, here_rps = defaultdict[str, float](float), defaultdict[str, float](float)
    for server, accelerator, count, each_rps in pools:
        there = count if running is None else running.get((server, accelerator), 0)
        here[server] += there
        planned_rps[server] += count * each_rps
        here_rps[server] += there * each_rps
    return here, {server: here_rps[server] / rate_rps for server, rate_rps in planned_rps.items()}
