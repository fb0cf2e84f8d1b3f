"""History of the fleet: a bounded list of its last changes and plans."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from optimizer.plan import Plan
from rest_server.differences import fleet_sections
from rest_server.fleet import MODELS, Entities

MAX_EVENTS = 1_000
"""Maximum number of events that are stored."""
MAX_PLANS = 20
"""Maximum number of full plans that are stored."""
MAX_NAMES = 20
"""Maximum number of changed names that are stored per event; if there are more, they are only counted."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the history: a change of the fleet, or a stored plan."""

    number: int
    """Sequential number of the event."""
    revision: int
    """Revision of the fleet after the event."""
    made_at: float
    """Time of the event [s since the epoch]."""
    cause: str
    """Cause of the event: ``change``, ``loads``, ``plan``, ``applied``, ``imported`` or ``fleet``."""
    changed: Mapping[str, int] = field(default_factory=dict)
    """Number of items that were added, replaced or removed, by section of the documents."""
    names: tuple[str, ...] = ()
    """Names of the changed items, such as ``servers/chat``; empty if they are too many."""
    plan: Mapping[str, Any] = field(default_factory=dict)
    """If the event is a plan: its cost, status and numbers of servers that are unserved or lack their
    reserve.
    """


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """A past plan in compressed form."""

    revision: int
    """Revision of the fleet for which the plan was made."""
    made_at: float
    """Time at which the plan was made [s since the epoch]."""
    packed: bytes
    """JSON of the plan, compressed."""

    @classmethod
    def of(cls, plan: Plan, revision: int, made_at: float) -> "KeptPlan":
        """Compress a plan."""
        return cls(revision, made_at, zlib.compress(plan.model_dump_json(by_alias=True).encode(), 1))

    def plan(self) -> Plan:
        """Return the decompressed plan."""
        return Plan.model_validate_json(zlib.decompress(self.packed))


@dataclass(frozen=True, slots=True)
class History:
    """The last events and plans of a fleet, oldest first."""

    events: tuple[Event, ...] = ()
    plans: tuple[KeptPlan, ...] = ()

    @property
    def number(self) -> int:
        """Number of the last event; 0 before the first."""
        return self.events[-1].number if self.events else 0

    def with_change(
        self, revision: int, made_at: float, cause: str, before: Entities, after: Entities
    ) -> "History":
        """Return the history with a change of the fleet added.

        Args:
            revision: revision of the fleet after the change.
            made_at: time [s since the epoch].
            cause: cause of the change.
            before: the fleet before the change.
            after: the fleet after the change.
        """
        changed, names = _changed(before, after)
        event = Event(self.number + 1, revision, made_at, cause, changed, names)
        return History((*self.events, event)[-MAX_EVENTS:], self.plans)

    def with_plan(self, revision: int, made_at: float, plan: Plan, stands_for: int) -> "History":
        """Return the history with a plan added.

        Args:
            revision: revision of the fleet after the plan was stored.
            made_at: time [s since the epoch].
            stands_for: revision of the fleet for which it was made.
        """
        event = Event(self.number + 1, revision, made_at, "plan", plan=_essence(plan, stands_for))
        kept = KeptPlan.of(plan, stands_for, made_at)
        others = tuple(item for item in self.plans if item.revision != stands_for)
        return History((*self.events, event)[-MAX_EVENTS:], (*others, kept)[-MAX_PLANS:])


def _changed(before: Entities, after: Entities) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return the number of changed items by section, and their names if they are few."""
    counts: dict[str, int] = {}
    names: list[str] = []
    for section in fleet_sections(before, after):
        name = "models" if section.name == MODELS else section.name
        for key in (*section.put(), *section.removed()):
            counts[name] = counts.get(name, 0) + 1
            if len(names) < MAX_NAMES:
                names.append("/".join((name, *key)))
    return counts, tuple(names)


def _essence(plan: Plan, stands_for: int) -> dict[str, Any]:
    return {
        "revision": stands_for,
        "status": plan.status,
        "totalCostCentsPerH": plan.total_cost_cents_per_h,
        "complete": plan.complete,
        "unserved": len(plan.unserved),
        "lacksReserve": len(plan.lacks_reserve),
        "changes": len(plan.changes),
    }
