"""From the solution with all possible pools by length or role to the chosen ones (math.md section 17.9)."""

from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np

from optimizer.candidates import Candidates
from optimizer.features.disaggregation.streams import name_in_plans
from optimizer.features.disaggregation.topology import RolePoolTopology
from optimizer.features.length_pools.streams import (
    Partition,
    owner_of_pool,
)
from optimizer.features.length_pools.topology import LengthPoolTopology
from optimizer.solvers.problem import Problem, build_problem
from optimizer.solvers.solution import Solution
from optimizer.spec.system import System


def with_possible(excluded: Collection[str], system: System) -> frozenset[str]:
    """Return the excluded servers with all possible pools of each.

    Args:
        excluded: names of planned servers.
        system: the system with all possible pools.
    """
    owner = {name: owner_of_pool(one) for name, one in system.servers.items()}
    owners = {owner[name] for name in excluded if name in owner}
    return frozenset(excluded) | {name for name, whole in owner.items() if whole in owners}


def decided(
    system: System,
    candidates: Candidates,
    problem: Problem,
    solution: Solution,
    size: Callable[[System], Candidates],
    excluded: Collection[str],
) -> tuple[Candidates, Problem, Solution]:
    """Return candidates, problem and solution of the system with only the chosen pools.

    Args:
        system: the system before all possible pools were added.
        candidates: candidates of the system with all possible pools.
        problem: its planning problem.
        solution: its solution.
        size: finds the candidates of a system.
        excluded: names of servers that get no replicas.
    """
    partitions: dict[str, Partition] = {}
    for topology in (problem.topology(LengthPoolTopology), problem.topology(RolePoolTopology)):
        if topology is not None:
            partitions |= topology.partitions(candidates, problem.table, solution.replicas)
    if not partitions:
        return candidates, problem, solution
    chosen = size(system.partitioned({**system.partitions, **partitions}))
    smaller = build_problem(chosen, excluded)
    every = zip(_named_keys(candidates, problem), solution.replicas.tolist(), strict=True)
    of_key = {key: count for key, count in every if count}
    replicas = [of_key.get(key, 0) for key in _named_keys(chosen, smaller)]
    return (
        replace(chosen, of_all_pools=candidates),
        smaller,
        replace(solution, replicas=np.array(replicas, np.int64)),
    )


def _named_keys(candidates: Candidates, problem: Problem) -> list[tuple[object, ...]]:
    """Return the identity of each candidate with the name of its server, or the place after all servers."""
    servers = candidates.system.servers
    names = [name_in_plans(servers[name]) for name in candidates.arrays.server_names]
    return [(names[s] if s < len(names) else s - len(names), *rest) for s, *rest in problem.keys]
