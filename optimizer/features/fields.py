"""The fields that features add to servers."""

from optimizer.features.caches.fields import CacheFields
from optimizer.features.external.fields import ExternalField
from optimizer.features.offline.fields import OfflineFields
from optimizer.features.places.fields import ServedPlaceFields
from optimizer.features.reserves.fields import ReserveFields
from optimizer.features.rollouts.fields import SurgeField
from optimizer.features.shared_cards.fields import SharedCardField
from optimizer.features.versions.fields import SplitFields


class ServerFeatureFields(
    SharedCardField,
    SplitFields,
    CacheFields,
    SurgeField,
    OfflineFields,
    ServedPlaceFields,
    ExternalField,
    ReserveFields,
):  # pydantic orders fields by the last base first
    """All fields of features in the document of a server."""
