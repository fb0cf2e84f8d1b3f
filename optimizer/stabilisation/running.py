"""Pools of every server at the time of a plan: as reported, as last desired, or as stated in the system."""

from collections.abc import Mapping
from dataclasses import dataclass

from optimizer.schema import Server
from optimizer.spec.system import System
from optimizer.stabilisation.decisions import Decisions, Observation, ReplicaTarget, ServerDecision

OTHER_REQUESTS = 0.2
"""Relative change of mean request lengths from which the maximum rate of a replica counts as unknown."""


@dataclass(frozen=True, slots=True, order=True)
class RunningPool:
    """Replicas of a server on one accelerator."""

    replicas: int
    ready: int
    rate_rpm: float = 0.0
    """Maximum rate of a replica [requests/min]; 0 if unknown."""

    def resized(self, replicas: int) -> "RunningPool":
        """Return the pool with another number of replicas; replicas that are not ready are removed first."""
        return RunningPool(replicas, min(self.ready, replicas), self.rate_rpm)

    def all_ready(self) -> "RunningPool":
        """Return the pool with all of its replicas ready."""
        return RunningPool(self.replicas, self.replicas, self.rate_rpm)


Running = Mapping[str, Mapping[str, RunningPool]]
"""Pools with replicas, by server and accelerator."""


def running_pools(system: System, last: Decisions | None, seen: Observation, startup_s: float) -> Running:
    """Return the current pools of each server.

    Args:
        last: the previous decisions, if any.
        seen: the observed state of the fleet.
        startup_s: time after which replicas count as ready if their status is not reported [s].
    """
    known = {} if last is None else last.servers
    return {name: _pools(server, known.get(name), seen, startup_s) for name, server in system.servers.items()}


def _pools(
    server: Server, last: ServerDecision | None, seen: Observation, startup_s: float
) -> dict[str, RunningPool]:
    reported = seen.replicas.get(server.name)
    if last is not None:
        same = same_requests(server, last)
        return {
            name: RunningPool(
                target.replicas,
                min(target.replicas, _ready(name, target, seen, server.name, startup_s)),
                target.rate_rpm if same else 0.0,
            )
            for name, target in sorted(last.targets.items())
            if target.replicas
        }
    if reported:
        there = {name: (item.ready + item.pending, item.ready) for name, item in sorted(reported.items())}
        return {name: RunningPool(total, ready) for name, (total, ready) in there.items() if total}
    current = server.current.replicas if reported is None else {}
    return {accelerator: RunningPool(replicas, replicas) for accelerator, replicas in current.items()}


def _ready(name: str, target: ReplicaTarget, seen: Observation, server: str, startup_s: float) -> int:
    reported = seen.replicas.get(server)
    if reported is not None:
        there = reported.get(name)
        return 0 if there is None else there.ready
    return target.replicas if seen.now_s - target.raised_s >= startup_s else target.ready_before


def same_requests(server: Server, last: ServerDecision) -> bool:
    """Return whether a server's mean request lengths are close to those for which it was last sized."""
    load = server.current.load
    pairs = ((load.in_tokens, last.in_tokens), (load.out_tokens, last.out_tokens))
    return all(abs(now - then) <= OTHER_REQUESTS * then for now, then in pairs)


def kept_of(running: Running, seen: Observation) -> dict[str, dict[str, int]]:
    """Return the replicas that each server keeps if it is unserved: the reported or else the desired ones."""
    kept = {}
    for name, pools in running.items():
        reported = {
            accelerator: there.ready + there.pending
            for accelerator, there in sorted(seen.replicas.get(name, {}).items())
            if there.ready + there.pending
        }
        kept[name] = reported or {accelerator: pool.replicas for accelerator, pool in pools.items()}
    return kept
