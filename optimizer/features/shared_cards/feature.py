"""Declares shared cards and slices as features: document fields, unsupported options, and checks."""

from optimizer.features.shared_cards.faults import shared_card_problems, slice_problems
from optimizer.spec.feature import Feature

_NO_RESERVE = "servers on shared cards have no reserve"
_COUNT = "the plan chooses the number of replicas on shared cards"

SHARED_CARDS = Feature(
    "shared_cards",
    fields=("shared_card",),
    refused_fields={
        "shared_queue": "servers of a shared queue have their own cards",
        "deadline": "offline work has its own cards",
        "keep_accelerator": "a server on shared cards has no accelerator to keep",
        "preferred": "servers on shared cards prefer no accelerators; list the allowed ones",
        "min_num_replicas": _COUNT,
        "max_num_replicas": _COUNT,
        "headroom_share": _NO_RESERVE,
        "spare_replicas": _NO_RESERVE,
        "availability_target": _NO_RESERVE,
        "surge": "rollouts on shared cards are not planned",
    },
    refused_options={
        "milp_solver": "the greedy solver cannot plan shared cards",
        "saturation_policy": "a server on shared cards is served in full or not at all",
        "max_power_w": "the power of shared cards is unknown",
        "headroom_share": _NO_RESERVE,
    },
    refuses_shapes="a shared card computes with one mean request of each server",
    has_topology=True,
    has_checks=True,
    faults=shared_card_problems,
)
SLICES = Feature(
    "slices",
    fields_of_accelerators=("slice",),
    faults=slice_problems,
)
