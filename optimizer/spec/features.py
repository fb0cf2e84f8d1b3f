"""Features that a system uses. The code of a feature runs only for systems that use it."""

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType

from optimizer.features.shared_queues.streams import SharedQueue
from optimizer.features.versions.streams import Version
from optimizer.schema import Accelerator, Server

ROUTES, SHARED_QUEUE, SHARED_CARD, SPLIT = "routes", "shared_queue", "shared_card", "split"
DEADLINE, CACHE, EXTERNAL, PLACES, SLICES = "deadline", "cache_hit_rate", "external", "places", "slices"

OF_SERVERS: Mapping[str, Callable[[Server], object]] = MappingProxyType(
    {
        SHARED_QUEUE: lambda server: server.shared_queue is not None or isinstance(server, SharedQueue),
        SHARED_CARD: lambda server: server.shared_card,
        SPLIT: lambda server: server.split is not None or server.roll_back or isinstance(server, Version),
        DEADLINE: lambda server: server.deadline is not None,
        CACHE: lambda server: server.cache_hit_rate,
        EXTERNAL: lambda server: server.external is not None,
        PLACES: lambda server: server.place is not None or server.may_serve_from is not None,
    }
)
"""Whether a server uses a feature, as stated in a document or in planned form."""
OF_ACCELERATORS: Mapping[str, Callable[[Accelerator], object]] = MappingProxyType(
    {
        PLACES: lambda accelerator: accelerator.place is not None,
        SLICES: lambda accelerator: accelerator.slice is not None,
    }
)
"""Whether an accelerator uses a feature."""


def features_of(
    servers: Iterable[Server], accelerators: Iterable[Accelerator], routes: Collection[object]
) -> frozenset[str]:
    """Return the features that the items of documents or of a system use."""
    servers, accelerators = tuple(servers), tuple(accelerators)
    found = {name for name, uses in OF_SERVERS.items() if any(map(uses, servers))}
    found |= {name for name, uses in OF_ACCELERATORS.items() if any(map(uses, accelerators))}
    return frozenset(found | {ROUTES} if routes else found)
