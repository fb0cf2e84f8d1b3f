"""Check versions of split servers: weights, loads, replicas and costs."""

import math
from collections.abc import Iterator

from optimizer.plan.checks.facts import RELATIVE_TOLERANCE, Facts, close, differing
from optimizer.plan.checks.prices import enough_probability, headroom_of
from optimizer.plan.checks.reserves import asks_for_reserve, lacking
from optimizer.plan.document import OneVersion, Pool, SplitUse, VersionUse
from optimizer.quantities import precise
from optimizer.spec.schema import Server
from optimizer.spec.versions import whole_servers


def check_versions(facts: Facts) -> list[str]:
    """Return the errors of the versions."""
    wanted = {name: server for name, server in whole_servers(facts.system.servers).items() if server.split}
    said = facts.plan.versions
    if sorted(said) != sorted(wanted):
        return [
            f"versions: of {', '.join(sorted(wanted)) or 'no server'}, not of {', '.join(said) or 'none'}"
        ]
    return [f"{name}: {line}" for name, use in said.items() for line in _split(facts, wanted[name], use)]


def _split(facts: Facts, whole: Server, use: SplitUse) -> Iterator[str]:
    shares = {share.model: share.weight for share in whole.split or ()}
    if use.model != whole.model:
        yield f"its own model is {whole.model}, the plan says {use.model}"
    if [item.model for item in use.versions] != [*shares]:
        yield f"its versions are {', '.join(shares)}, each once"
        return
    total = math.fsum(item.weight for item in use.versions)
    if not close(total, 1.0):
        yield f"the weights of its versions sum to {precise(total)}"
    for item in use.versions:
        for field, true, said in _figures(facts, whole, shares[item.model], item):
            yield from differing(f"{field} of version {item.model} is", true, said)
        if item.server != f"{whole.name} ({item.model})":
            yield f"version {item.model} is not the server {item.server}"
            return
    yield from _comparison(facts, whole, use)


def _figures(
    facts: Facts, whole: Server, weight: float, item: VersionUse
) -> Iterator[tuple[str, float, float]]:
    name = f"{whole.name} ({item.model})"
    pools, rate = facts.pools_of(name), weight * whole.current.load.arrival_rate_rpm
    needed, unused = 0.0, 0.0
    for pool in pools:
        idle = 1 - pool.arrival_rate_rpm / pool.max_arrival_rate_rpm if pool.max_arrival_rate_rpm else 1.0
        needed += pool.num_replicas * (1 - idle)
        unused += facts.cost_of(name, pool) * idle
    yield "weight", weight, item.weight
    yield "arrivalRate", rate, item.arrival_rate_rpm
    yield "arrivalRate", rate, facts.system.servers[name].current.load.arrival_rate_rpm
    yield "numReplicas", sum(pool.num_replicas for pool in pools), item.num_replicas
    yield "neededReplicas", needed, item.needed_replicas
    yield "cost", sum(facts.cost_of(name, pool) for pool in pools), item.cost_cents_per_h
    yield "unusedCost", unused, item.unused_cost_cents_per_h


def _comparison(facts: Facts, whole: Server, use: SplitUse) -> Iterator[str]:
    """Check the comparison with a single version, and whether it can take all requests."""
    names = [item.server for item in use.versions]
    lack = [
        name
        for name in names
        if name in facts.listed
        or (asks_for_reserve(facts, name) and any(lacking(facts, facts.system.servers[name])))
    ]
    main = facts.system.servers[f"{whole.name} ({whole.model})"]
    wanted = (main.name not in lack) if whole.roll_back else None
    if use.roll_back != wanted:
        yield f"rollBack is {wanted}, the plan says {use.roll_back}"
    true = None if lack else _alone(facts, main, math.fsum(facts.load_rpm[name] for name in names))
    said = use.one_version
    if true is None or said is None or use.extra_cost_cents_per_h is None:
        if (true, said, use.extra_cost_cents_per_h) != (None, None, None):
            yield f"with one version it has {_shown(true)}, the plan says {_shown(said)}"
        return
    if not close(true.cost_cents_per_h, said.cost_cents_per_h) or true.num_replicas != said.num_replicas:
        yield f"with one version it has {_shown(true)}, the plan says {_shown(said)}"
    if true.accelerator != said.accelerator:
        yield f"with one version it is on {true.accelerator}, the plan says {said.accelerator}"
    extra, claim = sum(facts.cost_cents_per_h[name] for name in names), use.extra_cost_cents_per_h
    if not close(extra - true.cost_cents_per_h, claim):
        extra -= true.cost_cents_per_h
        yield f"its versions cost {precise(extra)} more than one, the plan says {precise(claim)}"


def _alone(facts: Facts, main: Server, load_rpm: float) -> OneVersion | None:
    """Return the minimum replicas of the main version for a load with its reserve, found by counting up."""
    grown = load_rpm * (1 + headroom_of(facts.system, main.model_copy(update={"roll_back": False})))
    options = []
    for pool in facts.pools_of(main.name) if load_rpm else ():
        count = _least(facts, main, pool, grown)
        price = facts.cost_of(main.name, pool) / pool.num_replicas
        options.append((price * count, pool.accelerator, count))
    if not options:
        return None
    cost, accelerator, count = min(options)
    return OneVersion(accelerator=accelerator, num_replicas=count, cost_cents_per_h=cost)


def _least(facts: Facts, main: Server, pool: Pool, grown_rpm: float) -> int:
    each = pool.max_arrival_rate_rpm / pool.num_replicas
    needed = max(math.ceil(grown_rpm / each * (1 - RELATIVE_TOLERANCE)), main.min_num_replicas, 1)
    count = needed + main.spare_replicas
    if main.availability_target is not None:
        cards = facts.system.profiles[main.model, pool.accelerator].acc_count
        there = facts.system.accelerators[pool.accelerator].availability ** cards
        while enough_probability(count, needed, there) < main.availability_target:
            count += 1
    return count


def _shown(one: OneVersion | None) -> str:
    return (
        "no comparison"
        if one is None
        else f"{one.num_replicas} replicas at {precise(one.cost_cents_per_h)} cents/h"
    )
