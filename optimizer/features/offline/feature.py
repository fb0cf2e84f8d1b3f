"""Declares offline work as a feature: its document fields, unsupported fields and options, and checks."""

from collections.abc import Iterator

from optimizer.features.offline.streams import offline_faults
from optimizer.schema.names import Finding
from optimizer.spec.feature import Documents, Feature


def _faults(documents: Documents) -> Iterator[Finding]:
    for part, at, server in documents.index.servers.values():
        for path, text in offline_faults(server):
            yield Finding(part, (*at, *path), text)


OFFLINE = Feature(
    "offline",
    fields=("deadline",),
    refused_fields={"cache_hit_rate": "offline work has no cache; its requests are those that miss it"},
    refuses_shapes="offline work is planned with one mean request",
    faults=_faults,
    faults_alone=offline_faults,
)
