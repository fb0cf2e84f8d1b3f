"""Shared cards in a replay: they follow each plan, and old ones stay while new ones start if cards are free.

If the replicas on a card change, it is replaced by a new card, as in a rolling update.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from optimizer.features.shared_cards.uses import SharedCardUse
from optimizer.plan import Plan
from optimizer.plan.placements import placements_of
from optimizer.spec.system import System
from optimizer.stabilisation.decisions import ReplicaStatus
from optimizer.stabilisation.free_cards import FreeCards
from optimizer.studies.replay.pods import Place, Pods


@dataclass(frozen=True, slots=True)
class OnCard:
    """A server's part of one shared card."""

    replicas: int
    rate_rpm: float
    """Maximum rate of the server on the card [requests/min]."""
    cost_cents_per_h: float
    """The server's part of the card's cost [cents/h]."""


def place_of(use: SharedCardUse) -> Place:
    """Return the key of a group of shared cards: the servers on each card, and the accelerator."""
    rows = [
        (item.server, item.accelerator, item.per_card, item.share, item.max_batch) for item in use.servers
    ]
    return repr((use.mode, sorted(rows, key=repr))), use.accelerator


@dataclass(slots=True)
class ReplayedCards:
    """The shared cards of a fleet over time."""

    servers: dict[Place, dict[str, OnCard]] = field(default_factory=dict)
    """Servers on one card of each group of all plans so far, by the group's key."""
    planned: dict[Place, int] = field(default_factory=dict)
    """Number of cards of each group in the last plan."""
    there: dict[Place, int] = field(default_factory=dict)
    """Number of cards of each group: those of the last plan, and old ones that stay for now."""

    def follow(self, plan: Plan, system: System, own: Mapping[Place, int], pods: Pods, now_s: float) -> None:
        """Follow a plan; ready cards stay while replacements for their servers start.

        Args:
            system: the system; its free cards limit the number that can stay.
            own: desired replicas on unshared cards.
            pods: the existing replicas and cards.
            now_s: current time of the replay [s].
        """
        self.planned = {}
        for use in plan.shared_cards:
            self.servers[place_of(use)] = {
                item.server: OnCard(
                    item.per_card,
                    item.max_arrival_rate_rpm / use.num_cards,
                    item.cost_cents_per_h / use.num_cards,
                )
                for item in use.servers
            }
            self.planned[place_of(use)] = use.num_cards
        ready = pods.ready(now_s)
        starting = {
            server
            for place, number in {**own, **self.planned}.items()
            for server in self.servers.get(place, (place[0],))
            if ready.get(place, 0) < number and pods.startup_s
        }
        free = FreeCards.beside(system, placements_of(plan))
        for (server, accelerator), number in own.items():
            free.take(server, accelerator, number)
        self.there = dict(self.planned)
        for place in sorted(self.servers.keys() & ready.keys()):
            type_name = system.accelerators[place[1]].type
            old = ready[place] - self.planned.get(place, 0)
            stay = min(old, free.free.get(type_name, old)) if starting & self.servers[place].keys() else 0
            if stay > 0:
                self.there[place] = self.there.get(place, 0) + stay
                free.free[type_name] = free.free.get(type_name, stay) - stay

    def replicas(self, server: str) -> dict[Place, int]:
        """Return the number of a server's replicas on cards of the last plan, by group."""
        return {
            place: number * self.servers[place][server].replicas
            for place, number in self.planned.items()
            if server in self.servers[place]
        }

    def cost_cents_per_h(self, server: str) -> float:
        """Return a server's part of the cost of all existing cards [cents/h]."""
        return sum(
            number * self.servers[place][server].cost_cents_per_h
            for place, number in self.there.items()
            if server in self.servers[place]
        )

    def replicas_on(self, place: Place) -> int:
        """Return the number of replicas of all servers on one card of a group."""
        return sum(item.replicas for item in self.servers[place].values())

    def rates_rpm(self) -> dict[Place, dict[str, float]]:
        """Return the maximum rates on one card [requests/min], by group and server."""
        return {
            place: {server: item.rate_rpm for server, item in self.servers[place].items()}
            for place in self.there
        }


def seen_cards(plan: Plan, pods: Pods, now_s: float) -> Mapping[str, Mapping[str, ReplicaStatus]]:
    """Return the existing shared cards of a plan as status reports, by name of the group and accelerator."""
    ready = pods.ready(now_s)
    return {
        use.name: {use.accelerator: ReplicaStatus(ready.get(place_of(use), 0))} for use in plan.shared_cards
    }
