"""Declares prefill and decode pools as a feature: document fields, unsupported ones, options and checks."""

from optimizer.features.disaggregation.streams import role_problems
from optimizer.spec.feature import Feature

_NO_RESERVE = "reserves of prefill and decode pools are not planned (raise arrivalRate instead)"

DISAGGREGATION = Feature(
    "disaggregation",
    fields=("disaggregation",),
    refused_fields={
        "pools_by_length": "a server has pools by length or by role",
        "shared_queue": "prefill and decode pools have queues of their own",
        "shared_card": "prefill and decode pools have their own cards",
        "split": "prefill and decode pools run one model",
        "deadline": "offline work has no TTFT",
        "external": "an external service takes all requests of a server or none",
        "cache_hit_rate": "a result cache before prefill pools is not planned",
        "max_queue_size": "prefill and decode pools have unlimited queues",
        "max_num_replicas": "a limit on all pools together is not supported",
        "min_num_replicas": "the plan chooses the pools and their replicas",
        "keep_accelerator": "the plan chooses the accelerators of the pools",
        "headroom_share": _NO_RESERVE,
        "spare_replicas": _NO_RESERVE,
        "availability_target": _NO_RESERVE,
        "surge": "roll-outs of prefill and decode pools are not planned",
        "place": "network latencies are not divided between pools",
    },
    refused_options={
        "milp_solver": "the greedy solver cannot choose prefill and decode pools",
        "headroom_share": _NO_RESERVE,
        "batch_sizing": "batch limits of prefill replicas have no effect",
    },
    goes_with=frozenset(),
    has_topology=True,
    has_checks=True,
    faults=role_problems,
)
