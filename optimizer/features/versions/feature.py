"""Declares versions as a feature: its document fields, unsupported fields and options, and checks."""

from optimizer.features.versions.streams import version_problems
from optimizer.spec.feature import Feature

VERSIONS = Feature(
    "versions",
    fields=("split", "roll_back", "whole"),
    refused_fields={
        "shared_queue": "servers of a shared queue run one model",
        "deadline": "offline work has no versions",
        "external": "an external service takes all requests of a server or none",
        "max_num_replicas": "a limit on all versions is not supported",
    },
    faults=version_problems,
)
