"""The table of all features: each is a package in `optimizer.features` and has an entry here."""

from collections.abc import Collection, Iterable, Mapping
from importlib import import_module
from typing import Any

from optimizer.features.caches.feature import CACHES
from optimizer.features.disaggregation.feature import DISAGGREGATION
from optimizer.features.external.feature import EXTERNAL
from optimizer.features.length_pools.feature import LENGTH_POOLS
from optimizer.features.nodes.feature import NODES
from optimizer.features.offline.feature import OFFLINE
from optimizer.features.places.feature import PLACES
from optimizer.features.routes.feature import ROUTES
from optimizer.features.routes.streams import routes_by_server
from optimizer.features.shared_cards.feature import SHARED_CARDS, SLICES
from optimizer.features.shared_queues.feature import SHARED_QUEUES
from optimizer.features.versions.feature import VERSIONS
from optimizer.schema import Accelerator, Server
from optimizer.schema.names import Index
from optimizer.spec.feature import Feature

FEATURES: tuple[Feature, ...] = (
    SHARED_CARDS,
    SLICES,
    ROUTES,
    SHARED_QUEUES,
    VERSIONS,
    LENGTH_POOLS,
    DISAGGREGATION,
    OFFLINE,
    CACHES,
    EXTERNAL,
    PLACES,
    NODES,
)
"""All features whose code runs only for systems that use them.

In this order, their errors are listed, and their topologies add variables and constraints to models.
"""


def part_of(feature: Feature, name: str) -> Any:
    """Import and return a module of a feature's package."""
    return import_module(f"optimizer.features.{feature.name}.{name}")


def used_features(
    servers: Iterable[Server],
    accelerators: Iterable[Accelerator],
    sections: Mapping[str, Collection[object]],
) -> frozenset[str]:
    """Return the names of the features that some servers, accelerators and items of other sections use."""
    servers, accelerators = tuple(servers), tuple(accelerators)
    return frozenset(
        feature.name
        for feature in FEATURES
        if sections.get(feature.section)
        or any(map(feature.of_server, servers))
        or any(map(feature.of_accelerator, accelerators))
    )


def features_by_server(index: Index) -> dict[str, list[tuple[Feature, str]]]:
    """Return the features of each server of documents, each with the field or the route that selects it."""
    features = {
        name: [(each, field) for each in FEATURES if (field := each.field_of(entry.item))]
        for name, entry in index.servers.items()
    }
    routed = routes_by_server(route for _, _, route in index.sections[ROUTES.section].values())
    for name in features.keys() & routed.keys():
        features[name].append((ROUTES, f"route {routed[name].name!r}"))
    return features
