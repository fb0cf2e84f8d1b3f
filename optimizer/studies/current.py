"""Performance of every server at its current allocation: whether the replicas that run hold the targets."""

from collections.abc import Iterator, Sequence

import numpy as np
from pydantic import Field

from optimizer.arrays import FloatArray
from optimizer.candidates.arrays import SystemArrays
from optimizer.candidates.measuring import (
    largest_rates_of,
    measure_members,
    measure_pairs,
    stable_rates_of,
)
from optimizer.candidates.pairs import Pairs, arrays_of, sizable_pairs
from optimizer.candidates.table import Verdicts
from optimizer.documents import OutputDocument, is_none
from optimizer.errors import SpecError
from optimizer.features.disaggregation.streams import (
    RolePool,
    bandwidth_gbps,
    current_roles,
    is_seeded,
    with_decode_ttft,
)
from optimizer.queueing.measures import TargetMeasure
from optimizer.queueing.targets import meets_target
from optimizer.schema import CurrentPool
from optimizer.schema.pools import TargetFigure
from optimizer.spec.arguments import checks_documents
from optimizer.spec.streams import owner_of
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_MINUTE


class CurrentPoolFigures(OutputDocument):
    """A pool that runs, at its share of the load; of a shared queue one row for each server."""

    server: str
    """Name of the server."""
    accelerator: str
    """Name of the accelerator; empty for an external service."""
    num_replicas: int = Field(alias="numReplicas")
    """Number of replicas."""
    problem: str | None = Field(None, exclude_if=is_none)
    """Reason why there are no metrics; absent if there are."""
    max_batch: int | None = Field(None, alias="maxBatch", exclude_if=is_none)
    """Batch limit of a replica [requests]."""
    rate_rpm: float | None = Field(None, alias="arrivalRateRpm", exclude_if=is_none)
    """Load of the pool [requests/min]."""
    max_rate_rpm: float | None = Field(None, alias="maxArrivalRateRpm", exclude_if=is_none)
    """Largest load of the pool within all targets [requests/min]; absent if no load is."""
    itl_ms: float | None = Field(None, alias="itlMs", exclude_if=is_none)
    """Mean inter-token latency [ms]."""
    ttft_ms: float | None = Field(None, alias="ttftMs", exclude_if=is_none)
    """Mean time to first token, or latency of a batch server [ms]."""
    wait_ms: float | None = Field(None, alias="waitMs", exclude_if=is_none)
    """Mean queueing time [ms]."""
    targets: tuple[TargetFigure, ...] = Field((), strict=False)
    """Every target with its value."""

    @property
    def holds(self) -> bool:
        """Whether the pool carries its load within all targets."""
        return self.problem is None and all(meets_target(one.value, one.limit) for one in self.targets)


class CurrentService(OutputDocument):
    """Performance of all servers at their current allocations."""

    holds: bool
    """Whether every pool holds all targets at its load."""
    pools: tuple[CurrentPoolFigures, ...] = Field(strict=False)
    """Pools of each server, in the order of the servers."""


@checks_documents
def current_service(system: System) -> CurrentService:
    """Return the performance of every server at its current allocation.

    The load of a server is divided among its pools in proportion to their largest rates.

    Args:
        system: the system; `currentAlloc` of its servers states what runs.

    Raises:
        SpecError: nothing runs.
    """
    if not any(server.current.is_running for server in system.servers.values()):
        raise SpecError(
            "servers: nothing runs; state currentAlloc: {accelerator: H100, numReplicas: 5, load: …}"
        )
    ways = [_rows_by_owner(system.partitioned(choices)) for choices in current_roles(system.servers)]
    rows = [row for owner in ways[0] for row in min((way[owner] for way in ways), key=_largest_ratio)]
    return CurrentService(holds=all(row.holds for row in rows), pools=tuple(rows))


def _rows_by_owner(system: System) -> dict[str, list[CurrentPoolFigures]]:
    """Return the rows of each server of the documents."""
    arrays = arrays_of(system)
    found: dict[str, list[CurrentPoolFigures]] = {}
    for name, server in system.servers.items():
        found.setdefault(owner_of(server), []).extend(_rows(system, arrays, name))
    return {owner: [*_as_client(system, rows)] for owner, rows in found.items()}


def _as_client(system: System, rows: Sequence[CurrentPoolFigures]) -> Iterator[CurrentPoolFigures]:
    """Yield the rows of a server; its prefill pool has the TTFT of the client, if it has one."""
    roles = {row.server: one for row in rows if isinstance(one := system.servers.get(row.server), RolePool)}
    decode = [row for row in rows if row.server in roles and roles[row.server].role == "decode"]
    later = next(iter(decode), None)
    for row in rows:
        pool = roles.get(row.server)
        ends = [other.accelerator for other in decode] if pool is not None and pool.role == "prefill" else []
        unlinked = [name for name in ends if name and not _linked(system, row.accelerator, name)]
        if unlinked and row.accelerator:
            yield row.model_copy(update={"problem": f"no link to {unlinked[0]}", "targets": ()})
        elif pool is None or later is None or is_seeded(pool) or not row.targets:
            yield row
        elif pool.role == "prefill":
            yield with_decode_ttft(pool, row, later)
        else:
            targets = tuple(figure for figure in row.targets if figure.metric != "ttft")
            yield row.model_copy(update={"targets": targets})


def _linked(system: System, sender: str, receiver: str) -> bool:
    return bandwidth_gbps(system.accelerators[sender], system.accelerators[receiver]) > 0


def _largest_ratio(rows: list[CurrentPoolFigures]) -> float:
    """Return the largest ratio of a value to its target, or infinity if a pool has no metrics."""
    ratios = [one.value / one.limit for row in rows for one in row.targets]
    return np.inf if any(row.problem for row in rows) else max(ratios, default=0.0)


def _rows(system: System, arrays: SystemArrays, name: str) -> Iterator[CurrentPoolFigures]:
    """Yield the rows of a server: those of its pools, or one that states why there are none."""
    pools = [pool for pool in system.servers[name].current.stated_pools if pool.num_replicas]
    load_rps = float(arrays.servers.load_rps[arrays.server_names.index(name)])
    if not pools and load_rps:
        yield CurrentPoolFigures(
            server=name, accelerator="", num_replicas=0, problem="nothing runs for its load"
        )
    known = [pool for pool in pools if _problem(system, name, pool) is None]
    for pool in pools:
        if pool not in known:
            yield _without(name, pool, _problem(system, name, pool))
    if not known or not load_rps:
        yield from (_without(name, pool, None) for pool in known)
        return
    pairs, counts = _pairs(arrays, name, known), np.array([pool.num_replicas for pool in known])
    largest, stable = np.nan_to_num(largest_rates_of(arrays, pairs)), stable_rates_of(arrays, pairs)
    weights = np.where(largest > 0, largest, stable) * counts
    rates = load_rps * weights / weights.sum() / counts
    for i, pool in enumerate(known):
        row = CurrentPoolFigures(
            server=name,
            accelerator=pool.accelerator,
            num_replicas=pool.num_replicas,
            max_batch=int(pairs.max_batch[i]),
            rate_rpm=float(rates[i] * counts[i] * SECONDS_PER_MINUTE),
            max_rate_rpm=float(largest[i] * counts[i] * SECONDS_PER_MINUTE) or None,
        )
        if rates[i] > stable[i]:
            most = SECONDS_PER_MINUTE * stable[i] * counts[i]
            yield row.model_copy(update={"problem": f"at most {most:,.6g} requests/min are stable"})
        else:
            yield from _measured(arrays, pairs.take(np.array([i])), rates[i : i + 1], row)


_MODES = {
    "shared": "runs on shared cards; simulate its plan",
    "external": "is an external service, which has constant times",
}


def _problem(system: System, name: str, pool: CurrentPool) -> str | None:
    """Return why a pool has no metrics of its own; None if it has."""
    if pool.mode != "own":
        return _MODES[pool.mode]
    if name in system.routed:
        return "its load depends on its route; simulate its plan"
    known = (system.servers[name].model, pool.accelerator) in system.profiles
    return None if known else f"no token times on {pool.accelerator}"


def _without(name: str, pool: CurrentPool, problem: str | None) -> CurrentPoolFigures:
    return CurrentPoolFigures(
        server=name, accelerator=pool.accelerator, num_replicas=pool.num_replicas, problem=problem
    )


def _pairs(arrays: SystemArrays, name: str, pools: list[CurrentPool]) -> Pairs:
    """Return the pools as pairs, with their own batch limits or those of their profiles."""
    s = arrays.server_names.index(name)
    accelerators = [arrays.accelerator_names.index(pool.accelerator) for pool in pools]
    usual = sizable_pairs(arrays, Verdicts.none(arrays.profile_of.shape), choose_batch=False)
    known = {(t, a): n for t, a, n in zip(usual.server, usual.accelerator, usual.max_batch, strict=True)}
    batches = [pool.max_batch or known.get((s, a), 1) for pool, a in zip(pools, accelerators, strict=True)]
    return Pairs.of(arrays, np.full(len(pools), s), np.array(accelerators), np.array(batches))


def _measured(
    arrays: SystemArrays, pair: Pairs, rate_rps: FloatArray, row: CurrentPoolFigures
) -> Iterator[CurrentPoolFigures]:
    """Yield the row of a pool with its metrics, or the rows of the servers that share its queue."""
    measures, targets = arrays.servers.targets.measures, arrays.servers.targets.take(pair.server)
    if arrays.servers.is_queue[pair.server[0]]:
        for one in measure_members(arrays, pair, rate_rps):
            means = {name: one.means[name] for name in ("itl_ms", "ttft_ms", "wait_ms")}
            share = float(
                arrays.servers.members.load_rps[one.member] / arrays.servers.load_rps[pair.server[0]]
            )
            own = {
                "server": arrays.servers.members.names[one.member],
                "rate_rpm": share * (row.rate_rpm or 0),
            }
            figures = _figures(measures, one.targets, one.limits)
            yield row.model_copy(update={**means, **own, "targets": figures})
        return
    measured = measure_pairs(arrays, pair, rate_rps)
    means = {name: float(getattr(measured.performance, name)[0]) for name in ("itl_ms", "ttft_ms", "wait_ms")}
    figures = _figures(measures, measured.targets[:, 0], targets.limits[:, 0])
    yield row.model_copy(update={**means, "targets": figures})


def _figures(
    measures: tuple[TargetMeasure, ...], values: FloatArray, limits: FloatArray
) -> tuple[TargetFigure, ...]:
    return tuple(
        TargetFigure.of(measure, value, limit)
        for measure, value, limit in zip(measures, values.tolist(), limits.tolist(), strict=True)
        if np.isfinite(limit)
    )


def with_rate(system: System, rate_rps: float) -> System:
    """Return a system of one server with another arrival rate [requests/s].

    Raises:
        SpecError: there are several servers.
    """
    if len(system.servers) > 1:
        raise SpecError(f"--rate: {len(system.servers)} servers have rates in the document; remove it")
    (name,) = system.servers
    return system.with_load(name, arrival_rate_rpm=rate_rps * SECONDS_PER_MINUTE)
