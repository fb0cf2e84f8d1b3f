"""Simulation inputs for servers on shared cards: alone with the times of their part, or in turns."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from optimizer.candidates.caution import slower
from optimizer.features.shared_cards.uses import SharedCardUse, SharedPool
from optimizer.kinds.simulated import open_load
from optimizer.kinds.table import kind_of_profile
from optimizer.plan import Plan
from optimizer.schema import ModelProfile
from optimizer.simulation.batches import BatchServer
from optimizer.simulation.engine import SimulatedRun
from optimizer.simulation.replicas import Effort
from optimizer.simulation.time_sharing import run_shared_card
from optimizer.simulation.workload import OpenLoad
from optimizer.spec.streams import replica_load
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_MINUTE


@dataclass(frozen=True, slots=True)
class CardInTurns:
    """Simulation of a card that servers share in time, for the requests of one of these servers."""

    servers: tuple[BatchServer, ...]
    loads: tuple[OpenLoad, ...]
    place: int

    def run(self, effort: Effort, stream: int) -> list[SimulatedRun]:
        """Simulate the card; return the runs of the server. Every server on the card gets enough requests."""
        rates = [load.rate_rps for load in self.loads]
        needed = int(np.ceil(effort.requests * sum(rates) / rates[self.place]))
        seeds = np.random.SeedSequence([effort.seed, stream]).generate_state(1)
        longer = replace(effort, requests=needed, seed=int(seeds[0]))
        return run_shared_card(self.servers, self.loads, longer)[self.place]


def items_with_load(plan: Plan) -> Iterator[tuple[SharedCardUse, int, SharedPool]]:
    """Yield each loaded server on shared cards: the group of cards, the server's position, and its pool."""
    for use in plan.shared_cards:
        for place, item in enumerate(use.servers):
            if item.arrival_rate_rpm > 0:
                yield use, place, item


def part_profile(system: System, item: SharedPool) -> ModelProfile:
    """Return the profile of a server on its part of a card, with times lengthened by its slowdown."""
    profile = system.profiles[system.servers[item.server].model, item.accelerator]
    return slower(profile, item.slowdown or 1.0)


def card_in_turns(system: System, use: SharedCardUse, place: int) -> CardInTurns | None:
    """Return the simulation of a card shared in time for one of its servers; None for other sharing modes."""
    if use.mode != "time":
        return None
    return CardInTurns(
        tuple(_batch_server(system, item) for item in use.servers),
        tuple(
            open_load(
                replica_load(system.servers[item.server]),
                item.arrival_rate_rpm / SECONDS_PER_MINUTE / use.num_cards,
            )
            for item in use.servers
        ),
        place,
    )


def _batch_server(system: System, item: SharedPool) -> BatchServer:
    server, profile = system.servers[item.server], part_profile(system, item)
    batch_server = kind_of_profile(profile).takes_turns(server, profile, item.max_batch)
    assert batch_server is not None
    return batch_server
