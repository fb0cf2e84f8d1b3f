"""Separate servers as a feature: their field, what they do not support, and the checks of documents."""

from collections.abc import Iterator

from optimizer.schema.names import Finding
from optimizer.spec.feature import Documents, Feature


def _faults(documents: Documents) -> Iterator[Finding]:
    servers = documents.index.servers
    for name, (part, at, server) in servers.items():
        other = server.apart_from
        if other == name:
            yield Finding(part, (*at, "apartFrom"), "is the server itself; name another")
        elif other is not None and other not in servers:
            yield Finding(part, (*at, "apartFrom"), f"there is no server {other!r}; name one")


SEPARATE = Feature(
    "separate",
    fields=("apart_from",),
    goes_with=frozenset({"places"}),
    refused_options={
        "milp_solver": "the greedy solver cannot separate servers",
        "saturation_policy": "separate servers are served in full or not at all",
    },
    has_coupling=True,
    has_checks=True,
    faults=_faults,
)
