"""Plans for accelerators that a server can use but its plan does not.

They show how a replica would run on those accelerators.
"""

from collections.abc import Collection, Iterator

from optimizer.kinds.kind import EngineSettings
from optimizer.kinds.table import kind_of_pool
from optimizer.pipeline import solve_in_full
from optimizer.plan import Plan
from optimizer.plan.placements import placements_of
from optimizer.render.manifests import workload_pairs
from optimizer.schema import Server
from optimizer.spec.system import System


def plans_elsewhere(system: System, used: Collection[tuple[str, str]]) -> Iterator[tuple[System, Plan]]:
    """Yield, for each accelerator, a system of the servers that could move there, and its plan.

    Cards are unlimited, and each server has its own cards of the accelerator: there are no routes, shared
    cards or external services.

    Args:
        system: the system with all servers and accelerators.
        used: pairs of server and accelerator to omit, because the original plan has them.
    """
    pairs = set(workload_pairs(system)) - set(used)
    for accelerator in sorted({accelerator for _, accelerator in pairs}):
        servers = {
            name: _alone(server, accelerator)
            for name, server in system.servers.items()
            if (name, accelerator) in pairs
        }
        alone = system.alone(servers, unlimited=True)
        yield alone, solve_in_full(alone).plan  # warnings are about the documents


def _alone(server: Server, accelerator: str) -> Server:
    """Return a copy of a server that can use only one accelerator, without shared cards or renting."""
    return server.model_copy(update={"accelerators": (accelerator,), "shared_card": False, "external": None})


def settings_elsewhere(system: System, plan: Plan) -> dict[tuple[str, str], EngineSettings]:
    """Return the engine settings for accelerators that a plan does not use, by server and accelerator.

    A pair is absent if a replica on that accelerator cannot meet the targets of the server.
    """
    used = [row.spot for row in placements_of(plan) if row.mode == "own"]
    return {
        row.spot: kind_of_pool(pool).engine_settings(pool)
        for _, other in plans_elsewhere(system, used)
        for row in placements_of(other)
        if row.mode == "own" and (pool := row.rows[0].pool) is not None
    }
