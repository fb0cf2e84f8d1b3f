"""Declares shared queues as a feature: its document fields, unsupported fields and options, and checks."""

from optimizer.features.shared_queues.streams import queue_problems
from optimizer.spec.feature import Feature

SHARED_QUEUES = Feature(
    "shared_queues",
    fields=("shared_queue", "members"),
    refused_fields={
        "max_queue_size": "a shared queue has no separate limit for each server",
        "external": "a service answers all requests of a queue or none",
        "deadline": "offline work does not wait in a queue",
        "cache_hit_rate": "a server of a shared queue has no cache",
    },
    refused_options={
        "saturation_policy": "a server of a shared queue is served in full or not at all",
    },
    faults=queue_problems,
)
