"""Converts offline work to a load below every priority, and checks that no other load is stated."""

from collections.abc import Iterable, Iterator
from math import isclose

from optimizer.documents import Document
from optimizer.errors import SpecError
from optimizer.features.offline.fields import OfflineWork
from optimizer.kinds.fields import Load
from optimizer.quantities import precise
from optimizer.schema import Server
from optimizer.schema.messages import validated
from optimizer.schema.positions import Location
from optimizer.tolerances import ROUNDING


def with_load_of_deadline(server: Server) -> Server:
    """Return the server with the arrival rate that its deadline requires; unchanged if it has none.

    Raises:
        SpecError: the required rate is out of range.
    """
    if server.deadline is None:
        return server
    values = server.current.load.model_dump(exclude_unset=True) | {
        "arrival_rate_rpm": server.deadline.rate_rpm
    }
    load = validated(Load, values, f"servers.{server.name}.deadline: ")
    return server.with_load(load)


def with_deadline_of_load(server: Server) -> Server:
    """Return the server with its changed arrival rate stated as a number of offline requests.

    Raises:
        SpecError: the rate is so low that no requests would remain.
    """
    work, load = server.deadline, server.current.load
    if work is None:
        return server
    if not load.arrival_rate_rpm:
        raise SpecError(f"servers.{server.name}.deadline: no requests are left; remove it")
    if not isclose(load.arrival_rate_rpm, work.rate_rpm, rel_tol=ROUNDING):
        work = work.model_copy(update={"requests": load.arrival_rate_rpm * work.hours * 60})
    stated = load.model_dump(exclude_unset=True, exclude={"arrival_rate_rpm"})
    return server.with_load(Load(**stated)).model_copy(update={"deadline": work})


def without_past_deadlines(servers: Iterable[Server], elapsed_h: float) -> Iterator[Server]:
    """Yield the servers of documents whose deadline has passed after `elapsed_h` hours, without load."""
    for server in servers:
        if server.deadline is not None and elapsed_h >= server.deadline.hours:
            yield _done(server, server.deadline)


def _done(server: Server, work: OfflineWork) -> Server:
    done = work.model_copy(update={"requests": 0.0})
    return server.kept_without_load().model_copy(update={"deadline": done})


def offline_faults(server: Document) -> Iterator[tuple[Location, str]]:
    """Yield the path and an error message of each field that contradicts the server's deadline."""
    if not isinstance(server, Server) or server.deadline is None:
        return
    work, rate_rpm = server.deadline, server.current.load.arrival_rate_rpm
    if rate_rpm and not isclose(rate_rpm, work.rate_rpm, rel_tol=ROUNDING):
        asked = f"{precise(rate_rpm)} requests/min, but the deadline requires {precise(work.rate_rpm)}"
        yield ("currentAlloc", "load", "arrivalRate"), f"{asked}; remove one of the two"
    try:
        with_load_of_deadline(server)
    except SpecError:
        asked = f"{precise(work.requests)} requests in {precise(work.hours)} h"
        text = f"{asked} exceed the largest rate that can be planned; give more hours"
        yield ("deadline",), text
