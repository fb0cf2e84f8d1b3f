"""Does a plan hold? Plain arithmetic on the plan and the system; the solver is not asked.

Units are counted in whole numbers, rates and costs are added up again from the documents, and every pool
is put through the queueing model once more at the load that the plan gives it.
"""

import math
from collections import Counter

import numpy as np

from optimizer.candidates.finder import analyze_pairs
from optimizer.plan.document import Plan, Pool
from optimizer.queueing.measures import METRICS
from optimizer.queueing.targets import MISS_TOLERANCE, meets_target
from optimizer.spec.schema import Server
from optimizer.spec.system import System
from optimizer.tabulation import DEFAULT_MAX_BATCH, tabulate

RELATIVE_TOLERANCE = 1e-6


def verify(plan: Plan, system: System) -> list[str]:
    """Return what is wrong with a plan for a system, one line each; nothing if it holds."""
    problems = _check_names(plan, system)
    if problems:
        return problems
    fractions = {item.server: item.served_fraction for item in plan.unserved}
    units: Counter[str] = Counter()
    total = 0.0
    for name, pools in plan.allocations.items():
        server = system.servers[name]
        problems += _check_server(system, server, pools, fractions.get(name, 1.0), listed=name in fractions)
        for pool in pools:
            accelerator = system.accelerators[pool.accelerator]
            count = system.profiles[server.model, pool.accelerator].acc_count
            units[accelerator.type] += pool.num_replicas * count * accelerator.multiplicity
            cost = accelerator.cost_cents_per_h * count * pool.num_replicas
            total += cost
            if not _close(cost, pool.cost_cents_per_h):
                problems.append(
                    f"{name}: cost on {pool.accelerator} is {cost:g}, the plan says {pool.cost_cents_per_h:g}"
                )
    problems += _check_units(plan, system, units)
    if not _close(total, plan.total_cost_cents_per_h):
        problems.append(f"the allocations cost {total:g}, the plan says {plan.total_cost_cents_per_h:g}")
    if plan.complete != (not plan.unserved):
        problems.append("complete contradicts the list of unserved servers")
    malformed = any(
        pool.num_replicas < 1 or pool.max_batch < 1 for pools in plan.allocations.values() for pool in pools
    )
    return problems if malformed else problems + _check_latencies(plan, system)


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=RELATIVE_TOLERANCE, abs_tol=RELATIVE_TOLERANCE)


def _check_names(plan: Plan, system: System) -> list[str]:
    """Every server of the system is in the plan, and every pool is one that the system knows."""
    partly = {item.server for item in plan.unserved if item.served_fraction > 0}
    wholly = {item.server for item in plan.unserved} - partly
    problems = [
        f"{name}: not in the plan" for name in system.servers if name not in plan.allocations.keys() | wholly
    ]
    problems += [
        f"{name}: not in the system"
        for name in plan.allocations.keys() | wholly | partly
        if name not in system.servers
    ]
    problems += [f"{name}: both served and unserved" for name in plan.allocations.keys() & wholly]
    for name, pools in plan.allocations.items():
        if name in system.servers:
            model = system.servers[name].model
            problems += [
                f"{name}: no profile of {model} on {pool.accelerator}"
                for pool in pools
                if (model, pool.accelerator) not in system.profiles
            ]
    return problems


def _load_rpm(system: System, server: Server) -> float:
    load = server.current.load
    if not load.arrival_rate_rpm or not load.out_tokens:
        return 0.0
    target = system.targets.get((server.service_class, server.model))
    return target.tps / load.out_tokens * 60 if target and target.tps else load.arrival_rate_rpm


def _check_server(
    system: System, server: Server, pools: tuple[Pool, ...], fraction: float, *, listed: bool
) -> list[str]:
    problems = []
    load, replicas = _load_rpm(system, server), sum(pool.num_replicas for pool in pools)
    carried = sum(pool.arrival_rate_rpm for pool in pools)
    if not _close(carried, load * fraction):
        problems.append(f"{server.name}: carries {carried:g} of {load * fraction:g} requests/min")
    if replicas < server.min_num_replicas and not listed:
        problems.append(
            f"{server.name}: {replicas} replicas, at least {server.min_num_replicas} are asked for"
        )
    if server.max_num_replicas is not None and replicas > server.max_num_replicas:
        problems.append(f"{server.name}: {replicas} replicas, at most {server.max_num_replicas} are allowed")
    for pool in pools:
        if pool.num_replicas < 1:
            problems.append(f"{server.name}: a pool of {pool.num_replicas} replicas on {pool.accelerator}")
        limit = _batch_limit(system, server, pool)
        if not 1 <= pool.max_batch <= limit:
            problems.append(
                f"{server.name}: batch {pool.max_batch} on {pool.accelerator}, the limit is {limit:g}"
            )
        if pool.arrival_rate_rpm > pool.max_arrival_rate_rpm * (1 + RELATIVE_TOLERANCE):
            problems.append(
                f"{server.name}: {pool.accelerator} carries {pool.arrival_rate_rpm:g} requests/min, "
                f"its most is {pool.max_arrival_rate_rpm:g}"
            )
        if server.accelerators is not None and pool.accelerator not in server.accelerators:
            problems.append(f"{server.name}: {pool.accelerator} is not in its list of accelerators")
        if server.keep_accelerator and server.current.accelerator not in ("", pool.accelerator):
            problems.append(f"{server.name}: must keep {server.current.accelerator}, not {pool.accelerator}")
    return problems


def _batch_limit(system: System, server: Server, pool: Pool) -> float:
    """Return the largest batch that the documents allow a pool."""
    profile, load = system.profiles[server.model, pool.accelerator], server.current.load
    limit = float(profile.max_batch_size or DEFAULT_MAX_BATCH)
    idle = _load_rpm(system, server) == 0
    if profile.max_batch_size and profile.at_tokens and not idle:
        limit = max(limit * profile.at_tokens // load.out_tokens, 1.0)
    if server.max_batch_size:
        limit = float(server.max_batch_size)
    if profile.kv_capacity_tokens is not None and not idle:
        limit = min(limit, profile.kv_capacity_tokens // (load.in_tokens + load.out_tokens))
    return limit


def _check_units(plan: Plan, system: System, units: Counter[str]) -> list[str]:
    problems = []
    shown = {item.type: item.used for item in plan.capacity}
    for kind in units.keys() | shown.keys():
        limit = None if system.options.unlimited else system.capacity.get(kind, 0)
        if units[kind] != shown.get(kind, 0):
            problems.append(f"{kind}: {units[kind]} units are used, the plan says {shown.get(kind, 0)}")
        if limit is not None and units[kind] > limit:
            problems.append(f"{kind}: {units[kind]} units are used, {limit} exist")
    return sorted(problems)


def _check_latencies(plan: Plan, system: System) -> list[str]:
    """Put every pool with load through the queueing model, all at once."""
    arrays = tabulate(system)
    server_index = {name: i for i, name in enumerate(arrays.server_names)}
    place = {name: i for i, name in enumerate(arrays.accelerator_names)}
    rows = [
        (server_index[name], place[pool.accelerator], pool)
        for name, pools in plan.allocations.items()
        for pool in pools
        if pool.arrival_rate_rpm > 0
    ]
    if not rows:
        return []
    server, accelerator = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    pools = [row[2] for row in rows]
    rate = np.array([pool.arrival_rate_rpm / 60 / pool.num_replicas for pool in pools])
    found = analyze_pairs(arrays, server, accelerator, np.array([pool.max_batch for pool in pools]), rate)
    problems = []
    limits = {metric: arrays.servers.targets.limit(metric) for metric in METRICS}
    for i, pool in enumerate(pools):
        name = arrays.server_names[server[i]]
        for metric, value, said, target in (
            ("ITL", found.itl_ms[i], pool.itl_ms, limits["itl"][server[i]]),
            ("TTFT", found.ttft_ms[i], pool.ttft_ms, limits["ttft"][server[i]]),
            ("wait", found.wait_ms[i], pool.wait_ms, np.inf),
        ):
            if not _close(value, said):
                problems.append(
                    f"{name}: {metric} on {pool.accelerator} is {value:g} ms, the plan says {said:g} ms"
                )
            if not meets_target(value, target, 2 * MISS_TOLERANCE):
                problems.append(
                    f"{name}: {metric} on {pool.accelerator} is {value:g} ms, target {target:g} ms"
                )
    return problems
