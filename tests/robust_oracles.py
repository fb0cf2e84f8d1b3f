"""Plans with reserves, preferences, budgets, power, tiers and renting by exhaustive search, single and mixed.

Reads a system as its plain document. Which pairs meet their targets, and up to which rate, is taken from
`find_candidates`, which has its own tests; replicas for reserves, units, prices, values and levels are worked
out here in exact fractions.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, comb
from typing import Any

from builders import random_document
from mixed_oracles import (
    TOLERANCE,
    Demand,
    demands,
    level_values,
    numbers_of_replicas,
    random_mixed_document,
    rank_name,
    total,
)
from oracles import Json, Levels, exact, plain
from plan_search import Values, Way, joined, service_levels

from optimizer import Plan, System, find_candidates
from optimizer.candidates.measuring import measure_pairs
from optimizer.candidates.pairs import Pairs

EXTERNAL = "external"


@dataclass(frozen=True)
class Wish:
    """What a server is to have beyond its load."""

    headroom: Fraction
    spares: int
    target: Fraction | None
    preferred: tuple[str, ...] | None
    external: Json | None
    surge: Fraction = Fraction(0)
    """Share of its replicas that starts beside them; 0 if no cards are limited for it."""

    @property
    def one_pool(self) -> bool:
        return self.spares > 0 or self.target is not None


@dataclass(frozen=True)
class Shared:
    """What servers share: how much there is of it, and what one replica of a server on a column uses."""

    name: str
    most: Fraction | None
    """None: counted, not limited."""
    use: Mapping[tuple[str, str], Fraction]
    rolling: frozenset[str] = frozenset()
    """Servers whose extra replicas use it as well."""


def least_available(needed: int, there: Fraction, target: Fraction) -> int:
    """Return the fewest replicas of which enough are there, by adding up the binomial."""
    count = needed
    while True:
        terms = (comb(count, j) * there**j * (1 - there) ** (count - j) for j in range(needed, count + 1))
        if float(sum(terms)) >= float(target) * (1 - 1e-12):
            return count
        count += 1


def wishes(system: System) -> dict[str, Wish]:
    """Return what every server is to have; headroom is a server's own, its class's, or all's."""
    spec, found = plain(system), {}
    classes = {item["name"]: item for item in spec["serviceClasses"]}
    asked = demands(system)
    limited = system.options.rollout and not system.options.unlimited
    for server in spec["servers"]:
        stated = [server] if server.get("deadline") else [server, classes[server["class"]], spec["optimizer"]]
        headroom = next(
            (item["headroomShare"] for item in stated if item.get("headroomShare") is not None), 0.0
        )
        loaded = asked[server["name"]].load_rpm > 0
        target = server.get("availabilityTarget")
        found[server["name"]] = Wish(
            exact(float(headroom)) if loaded else Fraction(0),
            server.get("spareReplicas", 0) if loaded else 0,
            exact(target) if target and loaded else None,
            tuple(server["preferred"]) if server.get("preferred") is not None else None,
            server.get("external") if loaded else None,
            exact(server.get("surge", 0.0)) if limited else Fraction(0),
        )
    return found


def best_levels(system: System, service: Plan | None = None) -> Levels:
    """Return the best value of every level over all plans.

    Args:
        system: what is planned.
        service: a plan; with it, only plans that serve the same in full and keep its pools of partial service
            count, and service levels are 0.
    """
    asked, wanted = demands(system), wishes(system)
    names, shared = _level_names(asked, wanted), _shared(system, asked)

    def fits(used: Values) -> bool:
        return all(
            one.name == "budget" or one.most is None or amount <= one.most * (1 + TOLERANCE)
            for one, amount in zip(shared, used, strict=True)
        )

    groups = (_ways(system, demand, wanted[name], names, shared) for name, demand in asked.items())
    if service is not None:
        groups = (
            _served_as_before(system, demand, names, [*ways], shared, service)
            for demand, ways in zip(asked.values(), groups, strict=True)
        )
    best = joined(groups, (len(shared), len(names)), fits)
    value = names.index("value")
    final = []
    for used, levels in best.items():
        difference = _tier_difference(system, dict(zip((one.name for one in shared), used, strict=True)))
        cost = next((u for one, u in zip(shared, used, strict=True) if one.name == "budget"), None)
        budget = next((one.most for one in shared if one.name == "budget"), None)
        if cost is not None and budget is not None and cost + difference > budget * (1 + TOLERANCE):
            continue
        final.append((*levels[:value], levels[value] + difference, *levels[value + 1 :]))
    return dict(zip(names, min(final), strict=True))


def _served_as_before(
    system: System, demand: Demand, names: list[str], ways: list[Way], shared: list[Shared], plan: Plan
) -> Iterator[Way]:
    """Yield the ways that serve a server in full, or the plan's own way if it is not served in full."""
    after = sum("unserved" in name for name in names)
    pools = {pool.accelerator: pool.num_replicas for pool in plan.allocations.get(demand.name, ())}
    if demand.name not in {item.server for item in plan.unserved}:
        for used, levels in ways:
            if not any(levels[:after]):
                yield used, levels
    elif not pools:
        used, levels = ways[0]
        yield used, (*[Fraction(0)] * after, *levels[after:])
    else:
        placed = [(c, pools[c.accelerator]) for c in demand.columns if c.accelerator in pools]
        used = tuple(
            sum((n * one.use.get((demand.name, c.accelerator), Fraction(0)) for c, n in placed), Fraction(0))
            for one in shared
        )
        costs = {c.accelerator: n * c.cost for c, n in placed}
        levels = _levels(system, demand, names, costs, pools, Fraction(0), reserved=True)
        yield used, (*[Fraction(0)] * after, *levels[after:])


def _level_names(asked: Mapping[str, Demand], wanted: Mapping[str, Wish]) -> list[str]:
    priorities = sorted({demand.priority for demand in asked.values()})
    names = service_levels(map(rank_name, priorities))
    with_reserve = {
        asked[name].priority for name, wish in wanted.items() if wish.headroom > 0 or wish.one_pool
    }
    names += [f"reserve of {rank_name(p)}: load without it" for p in sorted(with_reserve)]
    if any(wish.preferred is not None for wish in wanted.values()):
        names.append("load off preferred accelerators")
    return [*names, "value", "changes"]


def _shared(system: System, asked: Mapping[str, Demand]) -> list[Shared]:
    columns = [(name, column) for name, demand in asked.items() for column in demand.columns]
    found = []
    if not system.options.unlimited:
        for kind in sorted({column.kind for _, column in columns}):
            use = {(s, c.accelerator): Fraction(c.units) for s, c in columns if c.kind == kind}
            most, names = Fraction(system.capacity.get(kind, 0)), frozenset(asked)
            found.append(Shared(f"type {kind}", most, use))
            rolls = {"all": [names], "one": [frozenset([name]) for name in names], None: []}
            rolling = rolls[system.options.rollout]
            found += [Shared(f"type {kind} for {sorted(servers)}", most, use, servers) for servers in rolling]
    for name, card in system.accelerators.items():
        if card.tiers:
            use = {
                (s, c.accelerator): Fraction(c.units, card.multiplicity)
                for s, c in columns
                if c.accelerator == name
            }
            found.append(Shared(f"accelerator {name}", None, use))
    options = system.options
    if options.budget_cents_per_h is not None:
        use = {(s, c.accelerator): c.cost for s, c in columns}
        found.append(Shared("budget", exact(float(options.budget_cents_per_h)), use))
    if options.max_power_w is not None:
        found.append(Shared("power", exact(options.max_power_w), _power(system)))
    return found


def _power(system: System) -> dict[tuple[str, str], Fraction]:
    """Return the power of a replica of each pair at its largest rate, from its computing time there."""
    candidates, found = find_candidates(system), {}
    arrays = candidates.arrays
    for table in (candidates.table, candidates.over_limit):
        for c in range(len(table)):
            server = arrays.server_names[table.server[c]]
            acc = arrays.accelerator_names[table.accelerator[c]]
            pairs = Pairs.of(arrays, table.server[[c]], table.accelerator[[c]], table.max_batch[[c]])
            busy = 1.0
            if arrays.servers.load_rps[table.server[c]] > 0:
                found_there = measure_pairs(arrays, pairs, table.max_rate_rps[[c]]).performance
                row = system.profiles[system.servers[server].model, acc]
                tokens = system.servers[server].current.load.out_tokens
                assert row.decode is not None
                alone = (tokens - 1) * (row.decode.base_ms + row.decode.per_request_ms)
                growing = 1 - min(alone / float(found_there.service_ms[0]), 1.0)
                busy = (1 - float(found_there.p_empty[0])) * (0.55 + 0.45 * growing)
            curve, count = system.accelerators[acc].power, system.profiles[system.servers[server].model, acc]
            low, middle, high = curve.idle_w, curve.mid_power_w, curve.full_w
            bend = curve.mid_utilization
            watts = (
                low + (middle - low) * busy / bend
                if busy <= bend
                else (middle + (high - middle) * (busy - bend) / (1 - bend))
            )
            found[server, acc] = Fraction(watts * count.acc_count)
    return found


def _tier_difference(system: System, used: Mapping[str, Fraction]) -> Fraction:
    """Return what tiers cost more than the list price; committed ones cost whether used or not."""
    total = Fraction(0)
    for name, card in system.accelerators.items():
        left = used.get(f"accelerator {name}", Fraction(0))
        total -= left * exact(float(card.cost_cents_per_h))
        for tier in sorted(card.tiers, key=lambda tier: (not tier.committed, tier.cost_cents_per_h)):
            price, taken = exact(float(tier.cost_cents_per_h)), min(left, Fraction(tier.units))
            total += price * (tier.units if tier.committed else taken)
            left -= taken
        total += left * exact(float(card.cost_cents_per_h))
    return total


def _ways(
    system: System, demand: Demand, wish: Wish, names: list[str], shared: list[Shared]
) -> Iterator[Way]:
    """Yield what each way to run a server uses and adds to every level; none at all is a way, too."""
    for replicas, reserved in _mixtures(system, demand, wish):
        extra = [n + ceil(wish.surge * n) for n in replicas]
        used = tuple(
            total(
                extra if demand.name in one.rolling else replicas,
                [one.use.get((demand.name, c.accelerator), Fraction(0)) for c in demand.columns],
            )
            for one in shared
        )
        placed = [(c, n) for c, n in zip(demand.columns, replicas, strict=True) if n]
        counts, costs = {c.accelerator: n for c, n in placed}, {c.accelerator: n * c.cost for c, n in placed}
        off = sum(
            (
                n * min(c.rate_rpm, demand.load_rpm)
                for c, n in placed
                if wish.preferred is not None and c.accelerator not in wish.preferred
            ),
            Fraction(0),
        )
        yield used, _levels(system, demand, names, costs, counts, off, reserved=reserved)
    if wish.external is not None and _rents(system, demand, wish.external):
        load = system.servers[demand.name].current.load
        tokens = [exact(load.in_tokens), exact(load.out_tokens)]
        prices = [exact(float(wish.external[key])) for key in ("inPerMillion", "outPerMillion")]
        cost = demand.load_rpm * 60 * sum(a * b for a, b in zip(tokens, prices, strict=True)) / 10**6
        used = tuple(cost if one.name == "budget" else Fraction(0) for one in shared)
        off = demand.load_rpm if wish.preferred is not None else Fraction(0)
        counts = {EXTERNAL: 1}
        yield used, _levels(system, demand, names, {EXTERNAL: cost}, counts, off, reserved=True)


def _rents(system: System, demand: Demand, external: Json) -> bool:
    server = system.servers[demand.name]
    target = system.targets.get((server.service_class, server.model))
    if server.deadline is not None:
        return True  # nothing but its deadline is asked for
    if target is None:
        return False
    first, each, out = external["ttft"], external["itl"], server.current.load.out_tokens
    limits = [(target.ttft_ms, first), (target.itl_ms, each), (target.e2e_ms, first + each * (out - 1))]
    return all(not limit or value <= limit * (1 + 1e-6) for limit, value in limits)


def _levels(
    system: System, demand: Demand, names: list[str],
    costs: Mapping[str, Fraction], counts: Mapping[str, int], off: Fraction, *, reserved: bool,
) -> Values:  # fmt: skip
    penalty = exact(system.options.transition_penalty)
    levels = level_values(demand, names, demand.load_rpm, counts, costs, penalty)
    if counts and not reserved:
        levels[f"reserve of {rank_name(demand.priority)}: load without it"] = demand.load_rpm
    if "load off preferred accelerators" in levels:
        levels["load off preferred accelerators"] = off
    if not levels["changes"] and not system.options.heterogeneous:
        levels["value"] = Fraction(0)
    return tuple(levels.values())


def _mixtures(system: System, demand: Demand, wish: Wish) -> Iterator[tuple[tuple[int, ...], bool]]:
    """Yield replicas by column, and whether they are the reserve as well; first none at all."""
    width = len(demand.columns)
    if system.options.heterogeneous and not wish.surge:
        grown = demand.load_rpm * (1 if wish.one_pool else 1 + wish.headroom)
        for replicas in numbers_of_replicas(demand, grown):
            rate = total(replicas, [column.rate_rpm for column in demand.columns])
            yield replicas, not any(replicas) or (rate >= grown * (1 - TOLERANCE) and not wish.one_pool)
        if not wish.one_pool:
            return
    else:
        yield (0,) * width, True
    for j in range(width if demand.to_serve else 0):
        counts = {
            count: with_it for count, with_it in _sized(system, demand, wish, j) if count <= demand.most
        }
        for count, reserved in counts.items():
            yield (*(0,) * j, count, *(0,) * (width - j - 1)), reserved


def _sized(system: System, demand: Demand, wish: Wish, j: int) -> Iterator[tuple[int, bool]]:
    """Yield the replicas that carry the load alone, and those with the reserve; the latter come last."""
    column = demand.columns[j]
    grown = demand.load_rpm * (1 + wish.headroom)
    plain_count, needed = (
        max(ceil(load * (1 - TOLERANCE) / column.rate_rpm), demand.least, 1)
        for load in (demand.load_rpm, grown)
    )
    if not demand.load_rpm:
        plain_count = needed = demand.least
    count = needed + wish.spares
    if wish.target is not None:
        profile = system.profiles[system.servers[demand.name].model, column.accelerator]
        there = exact(system.accelerators[column.accelerator].availability) ** profile.acc_count
        count = max(count, least_available(needed, there, wish.target))
    yield plain_count, not (wish.headroom or wish.one_pool)
    yield count, True


# --- random systems --------------------------------------------------------------------------------------

OPTIONS = ("headroom", "spares", "availability", "preferred", "budget", "power", "tiers", "external")


def random_robust_system(seed: int, wanted: tuple[str, ...], *, mixed: bool) -> Json:
    """Return a small random system that uses some of the options."""
    rng = random.Random(f"robust {seed} {wanted} {mixed}")
    source = random_mixed_document(seed) if mixed else random_document(rng)
    source["optimizer"] |= {"heterogeneous": mixed, "unlimited": rng.random() < 0.2}
    for item in source["count"]:
        item["count"] += rng.choice([0, 2, 6])
    for option in wanted:
        _ADD[option](source, rng)
    _pay_commitments(source)
    return source


def _pay_commitments(source: Json) -> None:
    """Let a budget pay for the commitments; one that does not is refused."""
    tiers = [tier for card in source["accelerators"] for tier in card.get("tiers", ())]
    committed = sum(tier["units"] * tier["cost"] for tier in tiers if tier.get("committed"))
    if "budget" in source["optimizer"]:
        source["optimizer"]["budget"] = max(source["optimizer"]["budget"], committed)


def _add_headroom(source: Json, rng: random.Random) -> None:
    source["optimizer"]["headroomShare"] = rng.choice([0.0, 0.25, 0.5])
    for item in [*source["serviceClasses"], *source["servers"]]:
        if rng.random() < 0.4:
            item["headroomShare"] = rng.choice([0.0, 0.125, 0.75, 1.5])


def _on_servers(field: str, draw: Callable[[Json, random.Random], Any], chance: float = 1.0) -> Any:
    """Return an option that some of the servers have."""

    def add(source: Json, rng: random.Random) -> None:
        for server in source["servers"]:
            if chance == 1 or rng.random() < chance:
                server[field] = draw(source, rng)

    return add


def _add_availability(source: Json, rng: random.Random) -> None:
    for card in source["accelerators"]:
        card["availability"] = rng.choice([0.875, 0.97, 1.0])
    _on_servers("availabilityTarget", lambda _, rng: rng.choice([0.9, 0.99]), 0.6)(source, rng)


def _add_rollout(mode: str) -> Any:
    def add(source: Json, rng: random.Random) -> None:
        source["optimizer"] |= {"rollout": mode, "unlimited": rng.random() < 0.05}
        _on_servers("surge", lambda _, rng: rng.choice([0.0, 0.25, 0.34, 0.5, 1.0]))(source, rng)

    return add


def _some_accelerators(source: Json, rng: random.Random) -> list[str]:
    names = [card["name"] for card in source["accelerators"]]
    return rng.sample(names, rng.randint(0, len(names)))


def _external(_: Json, rng: random.Random) -> Json:
    return {
        "inPerMillion": rng.choice([0.0, 25.0, 50.0]), "outPerMillion": rng.choice([25.0, 50.0, 125.0]),
        "ttft": rng.choice([5.0, 20.0, 200.0]), "itl": rng.choice([5.0, 10.5, 20.0]),
    }  # fmt: skip


def _add_budget(source: Json, rng: random.Random) -> None:
    source["optimizer"]["budget"] = rng.choice([30.0, 60.125, 100.0, 150.0])


def _add_power(source: Json, rng: random.Random) -> None:
    for card in source["accelerators"]:
        card["power"] = {"idle": 50, "full": rng.choice([300, 400, 700]), "midPower": 200, "midUtil": 0.5}
    source["optimizer"]["maxPower"] = rng.choice([500.0, 1500.0, 3000.0])


def _add_tiers(source: Json, rng: random.Random) -> None:
    for card in source["accelerators"]:
        if rng.random() < 0.7:
            prices = sorted(
                rng.choice([0.125, 0.25, 0.5, 0.75]) * card["cost"] for _ in range(rng.choice([1, 2]))
            )
            card["tiers"] = [{"units": rng.randint(1, 4), "cost": price} for price in prices]
            card["tiers"][0]["committed"] = rng.random() < 0.4


def _add_deadline(source: Json, rng: random.Random) -> None:
    for server in source["servers"]:
        if rng.random() < 0.5:
            load = server["currentAlloc"]["load"]
            load["arrivalRate"], load["avgOutTokens"] = 0, load.get("avgOutTokens") or 64
            hours = rng.choice([0.5, 2.0, 8.0])
            rate_rpm = rng.choice([1.0, 40.0, 400.0, 1500.0])
            server["deadline"] = {"requests": rate_rpm * hours * 60, "hours": hours}


def _add_cache(source: Json, rng: random.Random) -> None:
    for server in source["servers"]:
        if not server.get("deadline"):
            server["cacheHitRate"] = rng.choice([0.0, 0.25, 0.5, 0.9])


_ADD: dict[str, Any] = {
    "cache": _add_cache,
    "deadline": _add_deadline,
    "all": _add_rollout("all"),
    "one": _add_rollout("one"),
    "headroom": _add_headroom,
    "spares": _on_servers("spareReplicas", lambda _, rng: rng.choice([0, 1, 1, 2])),
    "availability": _add_availability,
    "preferred": _on_servers("preferred", _some_accelerators, 0.6),
    "budget": _add_budget,
    "power": _add_power,
    "tiers": _add_tiers,
    "external": _on_servers("external", _external, 0.6),
}
