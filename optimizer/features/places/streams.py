"""Checks the places of accelerators and servers, and looks up the network latency between them."""

from collections.abc import Iterator, Mapping

from optimizer.errors import SpecError
from optimizer.schema import Accelerator, OptimizerOptions, Server
from optimizer.schema.names import Finding
from optimizer.spec.feature import Documents


def network_ms(options: OptimizerOptions, server: Server, accelerator: Accelerator) -> float:
    """Return the network latency between a server and an accelerator [ms]; 0 if either has no place.

    Raises:
        SpecError: the latency between their places is missing.
    """
    result = _time_ms(options.network_ms, server.place, accelerator.place)
    if result is None:
        raise SpecError(f"optimizer.networkMs: {_missing(server.place, accelerator.place)}")
    return result


def may_serve(server: Server, accelerator: Accelerator) -> bool:
    """Return whether a server can be served from the place of an accelerator."""
    return server.may_serve_from is None or accelerator.place in server.may_serve_from


def place_problems(documents: Documents) -> Iterator[Finding]:
    """Yield errors for types with several places, unknown places, and missing latencies between places."""
    parts, index = documents.parts, documents.index
    first: dict[str, Accelerator] = {}
    for part, at, item in index.accelerators.values():
        other = first.setdefault(item.type, item)
        if other.place != item.place:
            text = (
                f"accelerators of type {item.type!r} are at {other.place!r} ({other.name}) and "
                f"{item.place!r} ({item.name}); give all of a type one place, or another type"
            )
            yield Finding(part, (*at, "place"), text)
    places = sorted({item.place for item in first.values() if item.place is not None})
    for part, at, server in index.servers.values():
        for i, place in enumerate(server.may_serve_from or ()):
            if place not in places:
                text = f"no accelerator is at {place!r}; the places are {', '.join(places) or 'none'}"
                yield Finding(part, (*at, "mayServeFrom", i), text)
    given = [part for part in parts if "optimizer" in part.spec.model_fields_set]
    options = given[0].spec.optimizer if given else OptimizerOptions()
    for part, at, server in index.servers.values():
        for item in first.values():
            if may_serve(server, item) and _time_ms(options.network_ms, server.place, item.place) is None:
                yield Finding(
                    part, (*at, "place"), f"optimizer.networkMs: {_missing(server.place, item.place)}"
                )
                break


def _time_ms(times: Mapping[str, Mapping[str, float]], here: str | None, there: str | None) -> float | None:
    """Return the latency between two places, stated in either direction [ms]; None if it is not stated."""
    if here is None or there is None:
        return 0.0
    stated = times.get(here, {}).get(there, times.get(there, {}).get(here))
    return 0.0 if stated is None and here == there else stated


def _missing(here: str | None, there: str | None) -> str:
    return f"the network latency between {here!r} and {there!r} is missing; add it, or limit mayServeFrom"
