"""The fleet that a stateful service holds: immutable snapshots, one after the other, each with its revision.

A reader gets a snapshot; a writer gives a function from snapshot to snapshot, which sees every change
before it.
"""

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from optimizer.plan import Plan
from optimizer.spec.files import Part
from optimizer.spec.schema import (
    Accelerator,
    AllocationData,
    Capacity,
    ModelProfile,
    OptimizerOptions,
    Server,
    ServiceClass,
    SystemSpec,
)
from optimizer.spec.system import System, join_parts


def _nothing() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Entities:
    """Everything that is known of a fleet, by name, in the order in which it came; names may dangle."""

    accelerators: Mapping[str, Accelerator] = field(default_factory=_nothing)
    """Accelerators by name."""
    models: Mapping[str, Mapping[str, ModelProfile]] = field(default_factory=_nothing)
    """Profiles by model and accelerator; a model may have none."""
    service_classes: Mapping[str, ServiceClass] = field(default_factory=_nothing)
    """Service classes by name."""
    servers: Mapping[str, Server] = field(default_factory=_nothing)
    """Servers by name, with what they run on and what was last planned for them."""
    capacity: Mapping[str, int] = field(default_factory=_nothing)
    """Units by accelerator type."""
    optimizer: OptimizerOptions = field(default_factory=OptimizerOptions)
    """How to choose."""

    def __post_init__(self) -> None:
        for name in ("accelerators", "service_classes", "servers", "capacity"):
            object.__setattr__(self, name, _frozen(getattr(self, name)))
        models = {model: _frozen(profiles) for model, profiles in self.models.items()}
        object.__setattr__(self, "models", MappingProxyType(models))

    @classmethod
    def of(cls, document: SystemSpec) -> "Entities":
        """Return the entities of a document; of two with one name the last counts."""
        models: dict[str, dict[str, ModelProfile]] = {}
        for profile in document.models:
            models.setdefault(profile.name, {})[profile.accelerator] = profile
        return cls(
            {item.name: item for item in document.accelerators},
            models,
            {item.name: item for item in document.service_classes},
            {item.name: item for item in document.servers},
            {item.type: item.count for item in document.count},
            document.optimizer,
        )

    def spec(self) -> SystemSpec:
        """Return all entities as one document; a model without a profile has no place in it."""
        return SystemSpec.model_construct(
            accelerators=tuple(self.accelerators.values()),
            models=tuple(profile for profiles in self.models.values() for profile in profiles.values()),
            service_classes=tuple(self.service_classes.values()),
            servers=tuple(self.servers.values()),
            count=tuple(Capacity(type=kind, count=units) for kind, units in self.capacity.items()),
            optimizer=self.optimizer,
        )

    def system(self) -> System:
        """Return the cross-checked system, without validating again what was validated when it came in.

        Raises:
            SpecError: there is no server, or a name refers to nothing.
        """
        return join_parts([Part(self.spec())])

    def with_desired(self, desired: Mapping[str, AllocationData]) -> "Entities":
        """Return a copy with other desired allocations, by server; unknown servers are passed over."""
        servers = {
            name: server.model_copy(update={"desired": desired[name]}) if name in desired else server
            for name, server in self.servers.items()
        }
        return replace(self, servers=servers)

    def with_desired_applied(self) -> "Entities":
        """Return a copy in which every server runs what is desired for it, and keeps its load."""
        servers = {}
        for name, server in self.servers.items():
            current = server.desired.model_copy(update={"load": server.current.load})
            servers[name] = server.model_copy(update={"current": current})
        return replace(self, servers=servers)


def desired_allocations(plan: Plan, servers: Mapping[str, Server]) -> dict[str, AllocationData]:
    """Return what a plan desires for each of some servers; nothing for one that it does not serve."""
    return {
        name: plan.allocation_of(server) if name in plan.allocations else AllocationData()
        for name, server in servers.items()
    }


def _frozen(mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping if isinstance(mapping, MappingProxyType) else MappingProxyType(dict(mapping))


class RevisionConflict(Exception):  # noqa: N818  the name says what happened
    """Raised when a change was meant for another revision than the current one."""

    def __init__(self, current: int, expected: int) -> None:
        super().__init__(f"the fleet is at revision {current}, not {expected}; read it again")
        self.current = current
        """The revision that the fleet is at."""


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """The last plan."""

    plan: Plan
    """The plan."""
    revision: int
    """Revision of the fleet that it was made for."""
    made_at: float
    """When it was made [s since the epoch]."""


Arrival = tuple[Entities, Plan | None]
"""A fleet, and the plan that was made of it, if any."""


class _Arriving:
    """A fleet that is built when it is first asked for, and once, however many ask."""

    def __init__(self, build: Callable[[], Arrival]) -> None:
        self._build = build
        self._lock = threading.Lock()
        self._built: Arrival | None = None
        self.arrived_at = time.time()

    def built(self) -> Arrival:
        """Return the fleet; nobody waits for this who does not want it."""
        with self._lock:
            if self._built is None:
                self._built = self._build()
            return self._built


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """Everything that is held at one revision."""

    revision: int
    entities: Entities
    changed_at: int = 0
    """Revision of the last change that was more than keeping a plan."""
    plan: PlanRecord | None = None
    arriving: _Arriving | None = None
    """The fleet that takes the place of the entities as soon as somebody asks for it."""

    def settled(self) -> "_Snapshot":
        """Return this with the fleet that has arrived in its place."""
        if self.arriving is None:
            return self
        entities, plan = self.arriving.built()
        record = self.plan if plan is None else PlanRecord(plan, self.revision, self.arriving.arrived_at)
        return replace(self, entities=entities, plan=record, arriving=None)

    def changed(self, entities: Entities) -> "_Snapshot":
        """Return the next one, after a change of the entities."""
        revision = self.revision + 1
        return replace(self, revision=revision, entities=entities, changed_at=revision)


class HeldFleet:
    """The current entities with their revision, and the last plan; safe to use from many threads.

    Readers take no lock. Nothing is built or computed under the lock of the state: it only puts a finished
    snapshot in place of another. Writers come one after the other, so that each sees the changes before it.
    """

    def __init__(self, entities: Entities | None = None, *, instance: str | None = None) -> None:
        """Begin with some entities at revision 0.

        Args:
            entities: what is held at first; none: nothing.
            instance: what tells the revisions of this service from those of one before; none: a random text.
        """
        self._instance = secrets.token_hex(4) if instance is None else instance
        self._now = _Snapshot(0, entities or Entities())
        self._lock = threading.Lock()
        self._writing = threading.Lock()

    def etag(self, revision: int) -> str:
        """Return a revision as an entity tag, which no other fleet has."""
        return f'"{self._instance}-{revision}"'

    def read(self) -> tuple[int, Entities]:
        """Return the revision and the entities at it."""
        now = self._settled()
        return now.revision, now.entities

    def replace(self, arrival: Callable[[], Arrival]) -> None:
        """Put another fleet, with its plan, in place of this one; it is built when it is first asked for.

        Most fleets that come with a request are never looked at, so nothing is spent on them.
        """
        arriving = _Arriving(arrival)
        with self._lock:
            self._now = replace(self._now.changed(self._now.entities), arriving=arriving)

    def _settled(self) -> _Snapshot:
        """Return what is held now, with what arrived last in its place."""
        while (now := self._now).arriving is not None:
            self._exchanged(now, now.settled())
        return now

    def _exchanged(self, before: _Snapshot, after: _Snapshot) -> bool:
        """Put a snapshot in place of the one it was made from, and say whether that was still there."""
        with self._lock:
            there = self._now is before
            if there:
                self._now = after
            return there

    def update(
        self, change: Callable[[Entities], Entities], *, if_revision: int | None = None
    ) -> tuple[int, Entities]:
        """Replace the entities by what `change` makes of them; what it raises leaves them as they are.

        Args:
            change: is called again if another fleet has arrived meanwhile; returning its argument changes
                nothing. Other changes wait for it, readers do not.
            if_revision: the revision that the change is meant for; none: whatever is current.

        Returns:
            The revision and the entities after the change.

        Raises:
            RevisionConflict: the fleet is at another revision.
        """
        with self._writing:
            while True:
                before = self._settled()
                if if_revision is not None and if_revision != before.revision:
                    raise RevisionConflict(before.revision, if_revision)
                entities = change(before.entities)
                after = before if entities is before.entities else before.changed(entities)
                if self._exchanged(before, after):
                    return after.revision, after.entities

    @property
    def plan(self) -> PlanRecord | None:
        """The last plan, if any."""
        return self._settled().plan

    def keep_plan(self, plan: Plan, desired: Mapping[str, AllocationData], revision: int) -> int:
        """Keep a plan as the last one, and what it desires, also where the fleet has changed since.

        Only where a plan for a later revision is there already nothing is kept.

        Args:
            plan: the plan.
            desired: desired allocations by server.
            revision: the one that the plan was made from.

        Returns:
            The revision that the plan stands for: that after this change, or where the fleet had changed
            before it the one that the plan was made from.
        """
        with self._writing:
            while True:
                before = self._settled()
                if before.plan is not None and before.plan.revision > revision:
                    return revision
                stands_for = before.revision + 1 if before.changed_at <= revision else revision
                after = replace(
                    before,
                    revision=before.revision + 1,
                    entities=before.entities.with_desired(desired),
                    plan=PlanRecord(plan, stands_for, time.time()),
                )
                if self._exchanged(before, after):
                    return stands_for
