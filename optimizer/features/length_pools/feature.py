"""Declares pools by length as a feature: its document fields, unsupported fields and options, and checks."""

from optimizer.features.length_pools.streams import length_pool_problems
from optimizer.spec.feature import Feature

_NO_RESERVE = "reserves of pools by length are not planned (raise arrivalRate instead)"

LENGTH_POOLS = Feature(
    "length_pools",
    fields=("pools_by_length",),
    refused_fields={
        "shared_queue": "requests of all shapes wait in a shared queue",
        "shared_card": "each pool by length has its own cards",
        "split": "pools by length run one model",
        "deadline": "offline work has no request shapes",
        "external": "an external service takes all requests of a server or none",
        "max_num_replicas": "a limit on all pools together is not supported",
        "min_num_replicas": "the plan chooses the pools and their replicas",
        "headroom_share": _NO_RESERVE,
        "spare_replicas": _NO_RESERVE,
        "availability_target": _NO_RESERVE,
        "surge": "roll-outs of pools by length are not planned",
    },
    refused_options={
        "milp_solver": "the greedy solver cannot choose pools by length",
        "saturation_policy": "a server with pools by length is served in full or not at all",
        "headroom_share": _NO_RESERVE,
    },
    has_topology=True,
    faults=length_pool_problems,
)
