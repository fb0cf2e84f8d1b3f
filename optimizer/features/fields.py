"""Combines the fields that features add to documents; pydantic puts the fields of the last base first."""

from optimizer.features.caches.fields import CacheFields
from optimizer.features.disaggregation.fields import (
    DisaggregationFields,
    HandoverField,
    KvBytesField,
    LinkFields,
)
from optimizer.features.external.fields import ExternalField
from optimizer.features.length_pools.fields import LengthPoolsField
from optimizer.features.nodes.fields import NodesField
from optimizer.features.offline.fields import OfflineFields
from optimizer.features.places.fields import PlaceField, ServedPlaceFields
from optimizer.features.preferences.fields import PreferredField
from optimizer.features.reserves.fields import AvailabilityField, HeadroomField, ReserveFields, ReserveOptions
from optimizer.features.rollouts.fields import SurgeField
from optimizer.features.routes.fields import RoutesField
from optimizer.features.shared_cards.fields import CardFields, SharedCardField, SliceField
from optimizer.features.tiers.fields import TierField
from optimizer.features.versions.fields import SplitFields


class ServerFeatureFields(
    SharedCardField,
    SplitFields,
    CacheFields,
    DisaggregationFields,
    LengthPoolsField,
    SurgeField,
    OfflineFields,
    ServedPlaceFields,
    ExternalField,
    PreferredField,
    ReserveFields,
):
    """All fields that features add to the document of a server."""


class AcceleratorFeatureFields(LinkFields, SliceField, PlaceField, TierField, AvailabilityField):
    """All fields that features add to the document of an accelerator."""


class ProfileFeatureFields(KvBytesField, CardFields):
    """All fields that features add to the document of a model profile."""


class ClassFeatureFields(HeadroomField):
    """All fields that features add to the document of a service class."""


class SystemFeatureFields(NodesField, RoutesField):
    """All fields that features add to the document of a system."""


class FeatureOptions(HandoverField, ReserveOptions):
    """All fields that features add to the optimizer options."""
