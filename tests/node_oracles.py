"""Plans with whole nodes by exhaustive search: replicas are packed into every combination of nodes.

Reads a system as its plain document. Candidates and their rates are taken from `find_candidates`; packing,
numbers and costs of nodes, budget and levels are worked out here, without the rows of node levels.
"""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache

from builders import Json, random_document
from mixed_oracles import demands, level_names, level_values, numbers_of_replicas, random_mixed_document
from oracles import Levels, exact, read_case
from plan_search import Way, joined

from optimizer import System
from optimizer.features.nodes.fields import NodeType

CHAINS = ((1, 2, 4, 8), (1, 2, 4, 8), (1, 3, 6), (2, 4, 8), (1, 4, 8))
Lot = tuple[str, int]
"""Type and number of cards of a replica."""


@cache
def packs(sizes: tuple[int, ...], nodes: tuple[int, ...]) -> bool:
    """Return whether replicas of the given sizes, largest first, fit into nodes of the given cards."""
    if not sizes:
        return True
    if sum(sizes) > sum(nodes):
        return False
    for cards in {cards for cards in nodes if cards >= sizes[0]}:
        left = [*nodes]
        left.remove(cards)
        left = sorted((n for n in (*left, cards - sizes[0]) if n), reverse=True)
        if packs(sizes[1:], tuple(left)):
            return True
    return False


@cache
def least_cost(sizes: tuple[int, ...], nodes: tuple[NodeType, ...]) -> Fraction | None:
    """Return the cost of the cheapest nodes that hold replicas of the given sizes; None if none do."""
    best: Fraction | None = None
    most = (len(sizes) if one.max_nodes is None else one.max_nodes - one.spare_nodes for one in nodes)
    useful = [min(len(sizes), each) for each in most]
    for counts in itertools.product(*(range(n + 1) for n in useful)):
        pairs = [*zip(nodes, counts, strict=True)]
        cost = sum((exact(float(one.cost_cents_per_h)) * n for one, n in pairs), Fraction(0))
        cards = sorted((one.cards for one, n in pairs for _ in range(n)), reverse=True)
        if (best is None or cost < best) and packs(sizes, tuple(cards)):
            best = cost
    return best


def node_brute_force(system: System) -> Levels:
    """Return the best value of every level over all plans with whole nodes."""
    lots = sorted({
        (one.type, one.multiplicity * profile.acc_count)
        for (_, name), profile in system.profiles.items()
        if (one := system.accelerators[name]).type in _types(system)
    })  # fmt: skip
    others = sorted({one.type for one in system.accelerators.values()} - _types(system))
    used_of: list[Lot | str] = [*lots, *others, ""]  # the last is the cost of everything else
    names, groups = (_mixed if system.options.heterogeneous else _single)(system, used_of)
    budget = system.options.budget_cents_per_h
    spares = (exact(float(one.cost_cents_per_h)) * one.spare_nodes for one in system.nodes.values())
    spare = sum(spares, Fraction(0))

    def total(used: Sequence[Fraction]) -> Fraction | None:
        cost = used[-1]
        for kind in _types(system):
            sizes = [
                size for (of, size), n in zip(lots, used, strict=False) if of == kind for _ in range(int(n))
            ]
            mine = tuple(one for one in system.nodes.values() if one.type == kind)
            more = least_cost(tuple(sorted(sizes, reverse=True)), mine)
            if more is None:
                return None
            cost += more
        return cost + spare

    def fits(used: Sequence[Fraction]) -> bool:
        if any(used[used_of.index(kind)] > system.capacity.get(kind, 0) for kind in others):
            return False
        cost = total(used)
        return cost is not None and (budget is None or cost <= exact(float(budget)))

    found, value = joined(groups, (len(used_of), len(names)), fits), names.index("value")
    levels = []
    for used, reached in found.items():
        nodes = (total(used) or Fraction(0)) - used[-1]
        levels.append(tuple(each + nodes if i == value else each for i, each in enumerate(reached)))
    return dict(zip(names, min(levels), strict=True))


def _types(system: System) -> set[str]:
    return {one.type for one in system.nodes.values()}


def _used(used_of: Sequence[Lot | str], placed: Mapping[Lot | str, Fraction | int]) -> tuple[Fraction, ...]:
    return tuple(Fraction(placed.get(key, 0)) for key in used_of)


def _single(system: System, used_of: Sequence[Lot | str]) -> tuple[list[str], list[list[Way]]]:
    case, types = read_case(system), _types(system)
    names, groups = [*case.levels([choice.nothing for choice in case.choices])], []
    for choice in case.choices:
        ways: list[Way] = []
        for option in (*choice.options, choice.nothing):
            levels = dict.fromkeys(names, Fraction(0))
            if choice.to_serve and option is choice.nothing:
                levels[f"priority {choice.priority}: unserved rate"] = choice.load_rpm
                levels[f"priority {choice.priority}: unserved servers"] = Fraction(1)
            levels |= {"value": Fraction(option.value), "changes": Fraction(option.changed)}
            placed: dict[Lot | str, Fraction | int] = {"": option.cost}
            if option.replicas and option.kind in types:
                placed[option.kind, option.units // option.replicas] = option.replicas
            elif option.replicas:
                placed[option.kind] = option.units
            ways.append((_used(used_of, placed), tuple(levels.values())))
        groups.append(ways)
    return names, groups


def _mixed(system: System, used_of: Sequence[Lot | str]) -> tuple[list[str], list[list[Way]]]:
    asked, types = demands(system), _types(system)
    names, penalty = level_names(asked), exact(system.options.transition_penalty)
    limits = {kind: n for kind, n in system.capacity.items() if kind not in types}

    def ways(name: str) -> Iterator[Way]:
        demand = asked[name]
        for replicas in numbers_of_replicas(demand, demand.load_rpm, limits):
            pools = [(c, n) for c, n in zip(demand.columns, replicas, strict=True) if n]
            costs = {c.accelerator: n * c.cost for c, n in pools}
            placed: dict[Lot | str, Fraction | int] = {"": sum(costs.values(), Fraction(0))}
            for c, n in pools:
                key, more = ((c.kind, c.units), n) if c.kind in types else (c.kind, c.units * n)
                placed[key] = placed.get(key, 0) + more
            counts = {c.accelerator: n for c, n in pools}
            levels = level_values(demand, names, demand.load_rpm, counts, costs, penalty)
            yield _used(used_of, placed), tuple(levels.values())

    groups = []
    for name in asked:
        best: dict[tuple[Fraction, ...], tuple[Fraction, ...]] = {}
        for used, levels in ways(name):
            best[used] = min(levels, best.get(used, levels))
        groups.append([*best.items()])
    return names, groups


def random_node_document(seed: int, *, mixed: bool) -> Json:
    """Return a small random system, some of whose types are in nodes of one to three types."""
    rng = random.Random(f"nodes {seed} {mixed}")
    source = random_mixed_document(seed) if mixed else random_document(random.Random(seed))
    kinds = sorted({card["type"] for card in source["accelerators"]})
    mine = [kind for kind in kinds if rng.random() < 0.7] or kinds[:1]
    chain, inside = rng.choice(CHAINS), {}
    for card in source["accelerators"]:
        if card["type"] in mine:
            card |= {"cost": 0.0, "multiplicity": rng.choice(chain[:2] if mixed else chain[:3])}
            inside[card["name"]] = card
    largest = dict.fromkeys(mine, 1)
    for profile in (profile for profile in source["models"] if profile["acc"] in inside):
        each = inside[profile["acc"]]["multiplicity"]
        sizes = [size for size in chain if size % each == 0 and size <= each * (2 if mixed else 4)]
        profile["accCount"] = rng.choice(sizes) // each
        kind = inside[profile["acc"]]["type"]
        largest[kind] = max(largest[kind], profile["accCount"] * each)
    source["nodes"] = [
        _node(rng, f"{kind}n{i}", kind, 0 if i else largest[kind])
        for kind in mine
        for i in range(rng.choice([1, 1, 2, 3]))
    ]
    source["count"] = [item for item in source["count"] if item["type"] not in mine]
    for server in source["servers"]:
        if server["currentAlloc"].get("accelerator") in inside and rng.random() < 0.7:
            server["currentAlloc"]["cost"] = 0.0
    if rng.random() < 0.25:
        source["optimizer"]["budget"] = float(rng.choice([10, 20, 40, 64, 80]))
    elif rng.random() < 0.3:
        node = rng.choice(source["nodes"])
        node["spareNodes"] = min(node.get("maxNodes", 1), rng.choice([1, 2]))
    return source


def _node(rng: random.Random, name: str, kind: str, least: int) -> Json:
    cards = rng.choice([cards for cards in (1, 2, 3, 4, 5, 6, 7, 8, 8, 8) if cards >= least])
    cost = rng.choice([0, 5, 8, 10, 12.25, 20, 40, 64])
    most = rng.choice([None, None, 1, 2, 3, 0]) if cost else rng.choice([1, 2])
    found = {"name": name, "type": kind, "cards": cards, "cost": cost}
    return found if most is None else found | {"maxNodes": most}
