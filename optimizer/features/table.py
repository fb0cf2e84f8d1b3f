"""The table of all features: each is a package in `optimizer.features` and has an entry here."""

from importlib import import_module
from typing import Any

from optimizer.features.caches.feature import CACHES
from optimizer.features.external.feature import EXTERNAL
from optimizer.features.offline.feature import OFFLINE
from optimizer.features.places.feature import PLACES
from optimizer.features.routes.feature import ROUTES
from optimizer.features.shared_cards.feature import SHARED_CARDS, SLICES
from optimizer.features.shared_queues.feature import SHARED_QUEUES
from optimizer.features.versions.feature import VERSIONS
from optimizer.spec.feature import Feature

FEATURES: tuple[Feature, ...] = (
    SHARED_CARDS,
    SLICES,
    ROUTES,
    SHARED_QUEUES,
    VERSIONS,
    OFFLINE,
    CACHES,
    EXTERNAL,
    PLACES,
)
"""All features whose code runs only for systems that use them.

In this order, their errors are listed, and their topologies add variables and constraints to models.
"""


def part_of(feature: Feature, name: str) -> Any:
    """Import and return a module of a feature's package."""
    return import_module(f"optimizer.features.{feature.name}.{name}")
