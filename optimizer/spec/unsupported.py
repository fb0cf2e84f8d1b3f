"""Fields of servers and options that their topology does not support.

The topology of a server is how its requests reach replicas: through a route, on shared cards, from a shared
queue, to versions, or before a deadline. Its entry of `UNSUPPORTED` is checked when documents are read and
when options change.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from optimizer.documents import Document
from optimizer.errors import SpecError
from optimizer.schema import OptimizerOptions, Server
from optimizer.schema.files import Part
from optimizer.schema.names import Finding, Index

_ROUTE_RESERVE = "a route has no reserve but a higher arrivalRate"
_CARD_RESERVE = "servers on shared cards have no reserve"
_CARD_COUNT = "the plan chooses the number of replicas on shared cards"
_GREEDY = "the greedy solver cannot plan"


@dataclass(frozen=True, slots=True)
class Unsupported:
    """Fields of servers and options, by Python name, that a topology does not support, with the reasons."""

    fields: Mapping[str, str]
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


ROUTES = "routes"
UNSUPPORTED: Mapping[str, Unsupported] = MappingProxyType(
    {
        ROUTES: Unsupported(
            fields={
                "shared_queue": "requests of a route wait in their own queue",
                "shared_card": "both servers of a route have their own cards",
                "split": "both servers of a route have one model",
                "deadline": "offline work has no route",
                "external": "both servers of a route run on replicas",
                "cache_hit_rate": "the arrivalRate of a route counts only requests that miss the cache",
                "min_num_replicas": "the plan chooses the number of replicas of a route",
                "headroom_share": _ROUTE_RESERVE,
                "spare_replicas": _ROUTE_RESERVE,
                "availability_target": _ROUTE_RESERVE,
                "surge": "rollouts of routes are not planned",
                "preferred": "routes prefer no accelerators; list the allowed ones",
            },
            options={
                "milp_solver": f"{_GREEDY} routes",
                "saturation_policy": "a route is served in full or not at all",
                "batch_sizing": "the best batch depends on the routed load",
                "max_power_w": "power depends on the routed load",
                "headroom_share": _ROUTE_RESERVE,
            },
        ),
        "shared_card": Unsupported(
            fields={
                "shared_queue": "servers of a shared queue have their own cards",
                "deadline": "offline work has its own cards",
                "keep_accelerator": "shared cards are not a server's current accelerator",
                "preferred": "servers on shared cards prefer no accelerators; list the allowed ones",
                "min_num_replicas": _CARD_COUNT,
                "max_num_replicas": _CARD_COUNT,
                "headroom_share": _CARD_RESERVE,
                "spare_replicas": _CARD_RESERVE,
                "availability_target": _CARD_RESERVE,
                "surge": "rollouts on shared cards are not planned",
            },
            options={
                "milp_solver": f"{_GREEDY} shared cards",
                "saturation_policy": "a server on shared cards is served in full or not at all",
                "max_power_w": "the power of shared cards is unknown",
                "headroom_share": _CARD_RESERVE,
            },
        ),
        "shared_queue": Unsupported(
            {
                "max_queue_size": "a shared queue has no separate limit for each server",
                "external": "a service answers all requests of a queue or none",
                "deadline": "offline work does not wait in a queue",
                "cache_hit_rate": "a server of a shared queue has no cache",
            }
        ),
        "split": Unsupported(
            {
                "shared_queue": "servers of a shared queue run one model",
                "deadline": "offline work has no versions",
                "external": "an external service takes all requests of a server or none",
                "max_num_replicas": "a limit on all versions is not supported",
            }
        ),
        "deadline": Unsupported(
            {"cache_hit_rate": "offline work has no cache; its requests are those that miss it"}
        ),
    }
)
"""Topologies, by the server field that selects them; servers of routes have no such field."""


def topology_problems(parts: Sequence[Part], index: Index) -> Iterator[Finding]:
    """Yield the fields and options of documents that their topologies do not support.

    Args:
        parts: the documents.
        index: the items of the documents.
    """
    routed = {name: route for _, _, route in index.routes.values() for name in (route.small, route.large)}
    for part, at, server in index.servers.values():
        owner = index.classes.get(server.service_class)
        in_class = owner is not None and owner.item.headroom_share
        for topology in _topologies_of(server, routed):
            refused = UNSUPPORTED[topology].fields
            other = f"route {routed[server.name].name!r}" if topology == ROUTES else _key(server, topology)
            for name, reason in refused.items():
                if _is_stated(server, name):
                    yield Finding(part, (*at, _key(server, name)), f"{reason}; remove it, or {other}")
            if in_class and "headroom_share" in refused:
                text = f"class {server.service_class!r} has headroomShare; {refused['headroom_share']}"
                yield Finding(part, (*at, "class"), f"{text}; remove it, or {other}")
    servers = [entry.item for entry in index.servers.values()]
    for part in parts:
        if "optimizer" in part.spec.model_fields_set:
            for key, text in _option_problems(part.spec.optimizer, servers, routed):
                yield Finding(part, ("optimizer", key), text)


def check_topology_options(
    options: OptimizerOptions, servers: Iterable[Server], routes: Collection[str]
) -> None:
    """Check that the topologies of a system support its options.

    Raises:
        SpecError: a topology does not support an option.
    """
    for key, text in _option_problems(options, servers, routes):
        raise SpecError(f"optimizer.{key}: {text}")


def _option_problems(
    options: OptimizerOptions, servers: Iterable[Server], routes: Collection[str]
) -> Iterator[tuple[str, str]]:
    used = {topology for server in servers for topology in _topologies_of(server)}
    used |= {ROUTES} if routes else set()
    for topology in filter(used.__contains__, UNSUPPORTED):
        other = topology if topology == ROUTES else Server.model_fields[topology].alias
        for name, reason in UNSUPPORTED[topology].options.items():
            if _is_stated(options, name):
                yield _key(options, name), f"{reason}; remove it, or {other}"


def _topologies_of(server: Server, routed: Collection[str] = ()) -> list[str]:
    """Return the topologies of a server; `routed` are the servers of routes."""
    return [
        name for name in UNSUPPORTED if (server.name in routed if name == ROUTES else getattr(server, name))
    ]


def _is_stated(document: Document, name: str) -> bool:
    """Return whether a field differs from its default."""
    default = type(document).model_fields[name].get_default(call_default_factory=True)
    return bool(getattr(document, name) != default)


def _key(document: Document, name: str) -> str:
    """Return the name of a field in documents."""
    return type(document).model_fields[name].alias or name
