"""Declares external services as a feature: document fields, unsupported fields and options, and checks."""

from collections.abc import Iterator

from optimizer.kinds.table import KINDS, kind_of_profile
from optimizer.schema.names import Finding
from optimizer.spec.feature import Documents, Feature


def _faults(documents: Documents) -> Iterator[Finding]:
    """Yield an error for each server without tokens that states an external service."""
    for part, at, server in documents.index.servers.values():
        profiles = documents.profiles.get(server.model, ())
        if server.external is not None and any(kind_of_profile(item) is not KINDS[0] for item in profiles):
            text = f"{server.model!r} has no tokens, and a service is paid by tokens; remove it"
            yield Finding(part, (*at, "external"), text)


EXTERNAL = Feature(
    "external",
    fields=("external",),
    has_offers=True,
    faults=_faults,
)
