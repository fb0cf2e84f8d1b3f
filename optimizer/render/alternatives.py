"""Plans of servers on accelerators that they can use but a plan does not: how a replica would run there."""

from collections.abc import Collection, Iterator

from optimizer.kinds.kind import EngineSettings
from optimizer.kinds.table import kind_of_pool
from optimizer.pipeline import solve
from optimizer.plan import Plan, Pool
from optimizer.plan.placements import placements_of
from optimizer.render.manifests import workload_pairs
from optimizer.schema import Server
from optimizer.spec.system import System


def plans_elsewhere(system: System, used: Collection[tuple[str, str]]) -> Iterator[tuple[System, Plan]]:
    """Yield a system and a plan for each accelerator, of the servers that can use it but do not.

    Cards are unlimited, and each server has its own cards of that accelerator: no routes, shared cards or
    external services.

    Args:
        system: the system.
        used: pairs of server and accelerator to omit.
    """
    pairs = set(workload_pairs(system)) - set(used)
    for accelerator in sorted({accelerator for _, accelerator in pairs}):
        servers = {
            name: _alone(server, accelerator)
            for name, server in system.servers.items()
            if (name, accelerator) in pairs
        }
        alone = system.alone(servers, unlimited=True)
        yield alone, solve(alone)


def _alone(server: Server, accelerator: str) -> Server:
    """Return a server that is on one accelerator."""
    return server.model_copy(update={"accelerators": (accelerator,), "shared_card": False, "external": None})


def settings_elsewhere(system: System, plan: Plan) -> dict[tuple[str, str], EngineSettings]:
    """Return the engine settings on accelerators that a plan does not use, by server and accelerator.

    Pairs that cannot meet their targets are absent.
    """
    used = [row.spot for row in placements_of(plan) if row.mode == "own"]
    return {
        row.spot: kind_of_pool(pool).engine_settings(pool)
        for _, other in plans_elsewhere(system, used)
        for row in placements_of(other)
        if row.mode == "own" and isinstance(pool := row.serves[0].figures, Pool)
    }
