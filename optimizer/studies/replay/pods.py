"""Simulated replicas that take time to start: existing and ready ones, and the cards in use, over time."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from optimizer.stabilisation.decisions import Decisions, ReplicaStatus, ReplicaTarget

Place = tuple[str, str]
"""Server and accelerator. For a shared card: a text that names its servers, and the card."""


@dataclass(slots=True)
class Pods:
    """Replicas of a fleet, each with the time at which it becomes ready."""

    startup_s: float
    ready_at_s: dict[Place, list[float]] = field(default_factory=dict)
    """Times at which the replicas of each place become ready [s], ascending."""

    def follow(self, desired: Mapping[Place, int], now_s: float, *, at_once: bool) -> None:
        """Start and stop replicas to match the desired numbers; replicas that are still starting stop first.

        Args:
            desired: desired number of replicas by place.
            now_s: current time [s].
            at_once: whether started replicas are ready immediately.
        """
        for place, number in desired.items():
            there = self.ready_at_s.setdefault(place, [])
            begin_s = now_s if at_once else now_s + self.startup_s
            there += [begin_s] * (number - len(there))
            del there[number:]
        for place in [place for place in self.ready_at_s if place not in desired]:
            del self.ready_at_s[place]

    def seen(self, now_s: float) -> dict[str, dict[str, ReplicaStatus]]:
        """Return the existing replicas at a time, by server and accelerator."""
        seen: dict[str, dict[str, ReplicaStatus]] = {}
        for (server, accelerator), times in self.ready_at_s.items():
            ready = sum(time_s <= now_s for time_s in times)
            seen.setdefault(server, {})[accelerator] = ReplicaStatus(ready, len(times) - ready)
        return seen

    def ready(self, now_s: float) -> dict[Place, int]:
        """Return the number of ready replicas at a time, by place."""
        return {place: sum(time_s <= now_s for time_s in times) for place, times in self.ready_at_s.items()}

    def spans(self, begin_s: float, end_s: float) -> Iterator[tuple[float, dict[Place, int]]]:
        """Yield the intervals between two times in which nothing changes.

        Each has its length [s] and the number of ready replicas by place.
        """
        moments = {time_s for times in self.ready_at_s.values() for time_s in times}
        cuts = [begin_s, *sorted(time_s for time_s in moments if begin_s < time_s < end_s), end_s]
        for first, last in itertools.pairwise(cuts):
            yield last - first, self.ready(first)


def replica_targets(decisions: Decisions) -> Iterator[tuple[Place, ReplicaTarget]]:
    """Yield the targets with replicas, and their places."""
    for server, decision in decisions.servers.items():
        for accelerator, target in decision.targets.items():
            if target.replicas:
                yield (server, accelerator), target
