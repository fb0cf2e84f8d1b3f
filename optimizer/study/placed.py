"""One server on one accelerator, found by name and ready for the queueing model.

Without an accelerator's name it is the one that the plan chooses, which takes a solve.
"""

import difflib
from collections.abc import Collection
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.candidates import CandidateTable, find_candidates
from optimizer.candidates.pairs import Pairs, law_of, sizable_pairs, targets_of, waiting_room
from optimizer.candidates.table import Candidates, Verdicts
from optimizer.errors import SpecError
from optimizer.fleet import SECONDS_PER_MINUTE, Fleet
from optimizer.pipeline import solve
from optimizer.plan import Plan
from optimizer.queueing.performance import ReplicaQueues
from optimizer.queueing.sizing import Targets
from optimizer.spec.system import System
from optimizer.timing import TimingLaw

NAMES_SHOWN = 10


class NothingToShow(Exception):  # noqa: N818  it is no error: its text is the answer
    """Raised inside the studies where a server has no queue that could be looked at; says why."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A server on one accelerator."""

    fleet: Fleet
    """Of this server alone."""
    pair: Pairs
    """One row; its batch ceiling is what the profile, the server and the memory allow."""
    server: str
    accelerator: str
    rate_rps: float
    """Load of one replica; 0 where the pair is no candidate, so that nothing says how the load is split."""
    remark: str
    """How many replicas there are, and of what; or why the pair is no candidate."""

    @property
    def title(self) -> str:
        """The two names."""
        return f"{self.server} on {self.accelerator}"

    @property
    def max_batch(self) -> int:
        """Batch limit."""
        return int(self.pair.max_batch[0])

    def law(self, rows: int = 1) -> TimingLaw:
        """Return the token-time law, the same in so many rows."""
        pair = self.pair.take(np.zeros(rows, np.int64))
        return law_of(self.fleet, pair, linear=bool(self.fleet.profiles.linear[pair.profile[0]]))

    def targets(self, rows: int = 1) -> Targets:
        """Return the server's targets, the same in so many rows."""
        return targets_of(self.fleet, self.pair.take(np.zeros(rows, np.int64)))

    def queues(self, max_batch: IntArray) -> ReplicaQueues:
        """Return replicas with the given batch limits, shape (R,), each with the room to wait that it has."""
        server = np.zeros(len(max_batch), np.int64)
        return ReplicaQueues.build(
            self.law(len(max_batch)), max_batch, waiting_room(self.fleet, server, max_batch)
        )

    def queue(self, rows: int = 1) -> ReplicaQueues:
        """Return the replica as it is placed, the same in so many rows."""
        return self.queues(np.full(rows, self.max_batch))


def chosen_server(system: System, name: str | None) -> str:
    """Return the name of a server: the given one, or the only one.

    Raises:
        SpecError: it does not exist, or there are several and none is named.
    """
    return known(name, tuple(system.servers), "server")


def alone(system: System, server: str) -> System:
    """Return the system with one server only; what it runs on, and what it may use, stays."""
    return replace(system, servers=MappingProxyType({server: system.servers[server]}))


def place(system: System, server: str, accelerator: str | None, backend: str = "highs") -> Placed:
    """Return a server on the named accelerator, or on the one that the plan chooses for it.

    Raises:
        SpecError: the accelerator does not exist.
        NothingToShow: the server has no load, or cannot be looked at there.
    """
    if accelerator is not None:
        known(accelerator, tuple(system.accelerators), "accelerator")
        return _as_candidate(system, server, accelerator)
    return _as_planned(system, server, solve(system, backend=backend))


def loaded(system: System, server: str) -> Candidates:
    """Return the candidates of one server that has load.

    Raises:
        NothingToShow: it has none.
    """
    candidates = find_candidates(alone(system, server))
    if candidates.fleet.servers.load_rps[0] == 0:
        raise NothingToShow(f"{server} is idle: it has no load, so there is nothing to show")
    return candidates


def joined_columns(candidates: Candidates) -> CandidateTable:
    """Return the columns, with those that need more replicas than the server may have."""
    return CandidateTable.joined([candidates.table, candidates.over_limit])


def known(name: str | None, names: Collection[str], what: str) -> str:
    """Return a name that exists, or the only one there is where none is given.

    Raises:
        SpecError: it does not exist, or there are several and none is given.
    """
    if name in names:
        return str(name)
    if name is None and len(names) == 1:
        return next(iter(names))
    near = difflib.get_close_matches(name or "", list(names), n=1)
    if near:
        raise SpecError(f"{what}: {name!r} does not exist; did you mean {near[0]!r}?")
    shown = ", ".join(list(names)[:NAMES_SHOWN])
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    given = "not given" if name is None else f"{name!r} does not exist"
    raise SpecError(f"{what}: {given}; name one of {shown}{more}")


def _pair(candidates: Candidates, accelerator: str) -> Pairs:
    """Return the pair with its batch ceiling.

    Raises:
        NothingToShow: the pair has no queue.
    """
    fleet = candidates.fleet
    shape = fleet.profile_of.shape
    fresh = Verdicts(np.zeros(shape, np.int64), np.full(shape, np.nan), np.full(shape, np.nan))
    pairs = sizable_pairs(fleet, fresh, choose_batch=candidates.system.options.batch_sizing == "optimal")
    rows = np.flatnonzero(pairs.accelerator == fleet.accelerator_names.index(accelerator))
    no_work = _rejection(candidates, accelerator).startswith("the service time")
    if not len(rows) or no_work:
        name = fleet.server_names[0]
        raise NothingToShow(f"{name} cannot run on {accelerator}: {_rejection(candidates, accelerator)}")
    return pairs.take(rows)


def _rejection(candidates: Candidates, accelerator: str) -> str:
    return next((item.detail for item in candidates.rejections(0) if item.accelerator == accelerator), "")


def _as_candidate(system: System, server: str, accelerator: str) -> Placed:
    candidates = loaded(system, server)
    pair = _pair(candidates, accelerator)
    table = joined_columns(candidates)
    row = np.flatnonzero(table.accelerator == pair.accelerator[0])
    why = _rejection(candidates, accelerator)
    if not len(row):
        return Placed(candidates.fleet, pair, server, accelerator, 0.0, f"not a candidate: {why}")
    count = int(table.num_replicas[row[0]])
    rate = float(candidates.fleet.servers.load_rps[0]) / count
    remark = f"not a candidate: {why}" if why else f"as a candidate, with {_replicas(count)}"
    pair = replace(pair, max_batch=table.max_batch[row])
    return Placed(candidates.fleet, pair, server, accelerator, 0.0 if why else rate, remark)


def _as_planned(system: System, server: str, plan: Plan) -> Placed:
    candidates = loaded(system, server)
    pools = plan.allocations.get(server, ())
    if not pools:
        why = next((item.detail for item in plan.unserved if item.server == server), "nothing is chosen")
        raise NothingToShow(f"{server} is not served: {why}; name an accelerator to see the server there")
    pool = max(pools, key=lambda item: item.num_replicas)
    pair = replace(_pair(candidates, pool.accelerator), max_batch=np.array([pool.max_batch]))
    rate = pool.arrival_rate_rpm / pool.num_replicas / SECONDS_PER_MINUTE
    remark = f"as planned, with {_replicas(pool.num_replicas)}"
    if len(pools) > 1:
        remark += f", the largest of its {len(pools)} pools"
    return Placed(candidates.fleet, pair, server, pool.accelerator, rate, remark)


def _replicas(count: int) -> str:
    return "1 replica" if count == 1 else f"{count:,} replicas"


def numbers(values: FloatArray) -> tuple[float | None, ...]:
    """Return plain numbers, none in place of what is not finite."""
    return tuple(float(value) if np.isfinite(value) else None for value in values)
