"""Ages of the loads of a fleet: when the arrival rate of each server or route was last sent."""

import time
from collections.abc import Collection, Mapping

from optimizer.schema import Load, Route, Server
from optimizer.spec.streams import planned_names
from rest_server.fleet import Entities

SentAt = Mapping[str, float]
"""Time at which the arrival rate was last sent [s since the epoch], by server or route."""


def sent_at(
    last: SentAt, before: Entities, after: Entities, now_s: float, sent: Collection[str] | None = None
) -> dict[str, float]:
    """Return the times after a change of the fleet.

    Args:
        last: the times before the change.
        before: the fleet before the change.
        after: the fleet after the change.
        now_s: time of the change [s since the epoch].
        sent: servers and routes whose arrival rate was sent; None if documents were sent, which renew every
            load that they replace.
    """
    result = {}
    for name, owner in after.owners.items():
        old = before.owners.get(name)
        is_replaced = old is None or _load_in(old) is not _load_in(owner)
        is_new = is_replaced if sent is None else name in sent
        result[name] = now_s if is_new else last.get(name, now_s)
    return result


def age_s(at_s: float) -> float:
    """Return the time since a time [s since the epoch], rounded to milliseconds [s]."""
    return round(max(0.0, time.time() - at_s), 3)


def _load_in(owner: Server | Route) -> Load | Route:
    return owner.current.load if isinstance(owner, Server) else owner


def planned_sent_at(entities: Entities, times: SentAt, unknown_s: float) -> dict[str, float]:
    """Return the time of the oldest load of each planned server [s since the epoch].

    Offline work is absent, because its load is a statement and not a measurement.

    Args:
        entities: the fleet.
        times: times by server or route.
        unknown_s: time of a load whose time is unknown.
    """
    planned_sent: dict[str, float] = {}
    for name, server in entities.servers.items():
        if server.deadline is not None:
            continue
        at_s = times.get(entities.routed.get(name, name), unknown_s)
        for planned in planned_names(server):
            planned_sent[planned] = min(planned_sent.get(planned, at_s), at_s)
    return planned_sent
