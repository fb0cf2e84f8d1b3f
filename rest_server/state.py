"""Fleet of a stateful service: a sequence of immutable snapshots with revisions.

Readers get a snapshot. Writers pass a function from snapshot to snapshot, which sees all earlier changes.
"""

import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

from optimizer.plan import Plan
from optimizer.schema import AllocationData
from optimizer.stabilisation.decisions import Decisions, Observation, ReplicaStatus
from optimizer.stabilisation.loads import LoadEstimate
from optimizer.stabilisation.rules import Rules
from optimizer.stabilisation.stabilise import stabilise
from rest_server.fleet import Entities
from rest_server.history import History
from rest_server.load_ages import SentAt, planned_sent_at, sent_at


class RevisionConflictError(Exception):
    """Raised when a change requires another revision of the fleet than the current one."""

    def __init__(self, current: int, expected: int) -> None:
        super().__init__(f"the fleet is at revision {current}, not {expected}; read it again")
        self.current = current
        """Current revision of the fleet."""


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """The last plan of a fleet, with its time and revision."""

    plan: Plan
    """The plan."""
    revision: int
    """Revision of the fleet for which it was made."""
    made_at: float
    """Time at which it was made [s since the epoch]."""


Estimates = Mapping[str, LoadEstimate]
"""Estimates of loads, by server."""
NO_ESTIMATES: Estimates = MappingProxyType({})
NOTHING_SEEN = Observation(0.0)
Arrival = tuple[Entities, Plan | None]
"""A fleet that replaces the current one, and its plan if there is one."""


class _LazyFleet:
    """A fleet that is built on first use, and only once even with concurrent readers."""

    def __init__(self, build: Callable[[], Arrival]) -> None:
        self._build = build
        self._lock = threading.Lock()
        self._built: Arrival | None = None
        self.arrived_at = time.time()

    def built(self) -> Arrival:
        """Return the fleet and its plan, building them on first use."""
        with self._lock:
            if self._built is None:
                self._built = self._build()
            return self._built


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of a fleet at one revision."""

    revision: int
    entities: Entities
    changed_at: int = 0
    """Revision of the last change, not counting stored plans."""
    plan: PlanRecord | None = None
    history: History = field(default_factory=History)
    """The last changes and plans of the fleet."""
    decisions: Decisions | None = None
    """Desired replicas according to the last plan; None before the first one."""
    replicas: Mapping[str, Mapping[str, ReplicaStatus]] = field(default_factory=dict)
    """Existing replicas by server and accelerator, as last reported."""
    loads_sent_at: SentAt = field(default_factory=dict)
    """Time at which the arrival rate was last sent [s since the epoch], by server or route."""
    rules: Rules = field(default_factory=Rules, compare=False)
    """Stabilisation rules between plans and desired replicas."""
    arriving: _LazyFleet | None = None
    """Fleet that replaces the items, built on first use; None if there is none."""

    def built(self) -> "Snapshot":
        """Return this snapshot with its lazily built fleet built."""
        if self.arriving is None:
            return self
        entities, plan = self.arriving.built()
        arrived_at = self.arriving.arrived_at
        times = dict.fromkeys(entities.owners, arrived_at)
        built = replace(self, entities=entities, arriving=None, loads_sent_at=times)
        seen = Observation(arrived_at)
        return built if plan is None else built.planned(plan, self.revision, seen)

    def changed(self, entities: Entities, cause: str, sent: Collection[str] | None = None) -> "Snapshot":
        """Return the next snapshot, with changed items of the fleet.

        Args:
            entities: the items after the change.
            cause: cause of the change, for the history.
            sent: servers and routes whose arrival rate was sent; None if documents were sent.
        """
        revision, now = self.revision + 1, time.time()
        history = self.history.with_change(revision, now, cause, self.entities, entities)
        times = sent_at(self.loads_sent_at, self.entities, entities, now, sent)
        changed = replace(self, revision=revision, entities=entities, changed_at=revision, history=history)
        return replace(changed, loads_sent_at=times)

    @property
    def planned_loads_sent_at(self) -> SentAt:
        """Time at which the load of each planned server was last sent [s since the epoch].

        A load of a state file without times counts as old as the last plan.
        """
        unknown_s = time.time() if self.plan is None else self.plan.made_at
        return planned_sent_at(self.entities, self.loads_sent_at, unknown_s)

    def planned(
        self, plan: Plan, stands_for: int, seen: Observation, estimates: Estimates = NO_ESTIMATES
    ) -> "Snapshot":
        """Return the next snapshot, with a new plan and its desired replicas.

        Args:
            stands_for: revision of the fleet for which it was made.
            seen: time of the plan, and what was reported with the loads.
            estimates: estimates of the loads, by server.
        """
        history = self.history.with_plan(self.revision, seen.now_s, plan, stands_for)
        there = {**self.replicas, **seen.replicas}
        system = self.entities.loose_system()
        decisions = stabilise(plan, system, self.rules, self.decisions, seen, estimates)
        record = PlanRecord(plan, stands_for, seen.now_s)
        return replace(self, plan=record, history=history, decisions=decisions, replicas=there)


class Journal(Protocol):
    """Interface of a persistent journal, which receives every snapshot before any reader does."""

    def write(self, before: Snapshot, after: Snapshot) -> None:
        """Write the differences between two snapshots durably.

        Raises:
            InferplanError: writing failed, and nothing was written.
        """

    def close(self) -> None:
        """Close the file of the journal; the next write opens it again."""


class FleetStore:
    """Current items of a fleet with their revision, and the last plan; safe to use from many threads.

    Readers take no lock. The lock of the state only protects the replacement of one finished snapshot by
    another; nothing is computed under it. Writers are serialised, so each of them sees all earlier changes.
    With a journal, a snapshot is written to it before it becomes current.
    """

    def __init__(
        self,
        entities: Entities | None = None,
        *,
        instance: str | None = None,
        resumed: Snapshot | None = None,
        journal: Journal | None = None,
        rules: Rules | None = None,
    ) -> None:
        """Start with the given items at revision 0, or with the state of an earlier service.

        Args:
            entities: initial items; None: an empty fleet.
            instance: prefix of revisions, different for each start of the service; None selects random text.
            resumed: initial state, instead of the items.
            journal: record of every change; None if the fleet is lost when the service stops.
            rules: stabilisation rules between plans and desired replicas; None if there are none.
        """
        self._instance = secrets.token_hex(4) if instance is None else instance
        self._now = replace(resumed or Snapshot(0, entities or Entities()), rules=rules or Rules())
        self._journal = journal
        self._lock = threading.Lock()
        self._writing = threading.Lock()

    def close(self) -> None:
        """Close the journal."""
        with self._writing:
            if self._journal is not None:
                self._journal.close()

    def etag(self, revision: int) -> str:
        """Return the HTTP entity tag of a revision, which is unique across fleets."""
        return f'"{self._instance}-{revision}"'

    def read(self) -> tuple[int, Entities]:
        """Return the current revision and the items of the fleet."""
        now = self.snapshot()
        return now.revision, now.entities

    def snapshot(self) -> Snapshot:
        """Return the current snapshot, after building its fleet if necessary."""
        while (now := self._now).arriving is not None:
            self._exchanged(now, now.built())
        return now

    @property
    def is_built(self) -> bool:
        """Whether the fleet can be read immediately, without being built."""
        return self._now.arriving is None

    def replace(self, arrival: Callable[[], Arrival]) -> None:
        """Replace the fleet and its plan.

        Without a journal, the new fleet is built on first use, because most fleets that arrive with a request
        are never read. With a journal it is built immediately.

        Raises:
            InferplanError: the journal cannot be written; nothing has changed.
        """
        if self._journal is None:
            arriving = _LazyFleet(arrival)
            with self._lock:
                self._now = replace(self._now.changed(self._now.entities, "fleet"), arriving=arriving)
            return
        entities, plan = arrival()

        def arrived(before: Snapshot) -> Snapshot:
            after = before.changed(entities, "fleet")
            return after if plan is None else after.planned(plan, after.revision, Observation(time.time()))

        self._write(arrived)

    def _write(self, step: Callable[[Snapshot], Snapshot]) -> Snapshot:
        """Write the snapshot that follows the current one to the journal, make it current, and return it.

        If another fleet has arrived in the meantime, `step` is called again. With a journal none can arrive,
        because every writer holds the lock of the writers.
        """
        with self._writing:
            while True:
                before = self.snapshot()
                after = step(before)
                if self._journal is not None and after is not before:
                    self._journal.write(before, after)
                if self._exchanged(before, after):
                    return after

    def _exchanged(self, before: Snapshot, after: Snapshot) -> bool:
        """Make `after` the current snapshot if `before` still is; return whether it was."""
        with self._lock:
            there = self._now is before
            if there:
                self._now = after
            return there

    def update(
        self,
        change: Callable[[Entities], Entities],
        *,
        if_revision: int | None = None,
        cause: str = "change",
        sent: Collection[str] | None = None,
    ) -> tuple[int, Entities]:
        """Replace the items of the fleet by the result of `change`.

        If it raises an exception, nothing changes.

        Args:
            change: function of the items, which is called again if another fleet has arrived in the meantime;
                returning its argument changes nothing. Other changes wait for it, readers do not.
            if_revision: the required revision; None allows any.
            cause: cause of the change, for the history.
            sent: servers and routes whose arrival rate was sent; None if documents were sent.

        Returns:
            The revision and the items after the change.

        Raises:
            RevisionConflictError: the fleet is at another revision.
            InferplanError: the journal cannot be written; nothing has changed.
        """

        def changed(before: Snapshot) -> Snapshot:
            if if_revision is not None and if_revision != before.revision:
                raise RevisionConflictError(before.revision, if_revision)
            entities = change(before.entities)
            return before if entities is before.entities else before.changed(entities, cause, sent)

        after = self._write(changed)
        return after.revision, after.entities

    @property
    def plan(self) -> PlanRecord | None:
        """The last plan; None if there is none."""
        return self.snapshot().plan

    def keep_plan(
        self,
        plan: Plan,
        desired: Mapping[str, AllocationData],
        revision: int,
        seen: Observation = NOTHING_SEEN,
        estimates: Estimates = NO_ESTIMATES,
    ) -> int:
        """Store a plan with its desired replicas as the last plan, even if the fleet has changed since.

        Nothing is stored if there already is a plan for a later revision.

        Args:
            desired: desired allocations by server.
            revision: revision from which the plan was made.
            seen: what was reported with the loads.
            estimates: estimates of the loads, by server.

        Returns:
            The revision that the plan describes: the one after this change, or if the fleet had changed
            before, the one from which the plan was made.

        Raises:
            InferplanError: the journal cannot be written; nothing has changed.
        """
        stands_for = revision

        def kept(before: Snapshot) -> Snapshot:
            nonlocal stands_for
            if before.plan is not None and before.plan.revision > revision:
                return before
            stands_for = before.revision + 1 if before.changed_at <= revision else revision
            entities = before.entities.with_desired(desired)
            after = replace(before, revision=before.revision + 1, entities=entities)
            return after.planned(plan, stands_for, replace(seen, now_s=time.time()), estimates)

        self._write(kept)
        return stands_for
