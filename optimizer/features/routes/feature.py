"""Declares routes as a feature: its document fields, unsupported fields and options, and checks."""

from optimizer.features.routes.streams import kind_problems, route_problems
from optimizer.spec.feature import Feature

_NO_RESERVE = "reserves of routes are not planned (raise arrivalRate instead)"

ROUTES = Feature(
    "routes",
    section="routes",
    refused_fields={
        "shared_queue": "requests of a route wait in their own queue",
        "shared_card": "each server of a route has its own cards",
        "split": "each server of a route runs one model",
        "deadline": "offline work has no route",
        "external": "the servers of a route run on replicas",
        "cache_hit_rate": "the arrivalRate of a route counts only requests that miss the cache",
        "min_num_replicas": "the plan chooses the number of replicas of a route",
        "headroom_share": _NO_RESERVE,
        "spare_replicas": _NO_RESERVE,
        "availability_target": _NO_RESERVE,
        "surge": "rollouts of routes are not planned",
        "preferred": "routes prefer no accelerators; list the allowed ones",
    },
    refused_options={
        "milp_solver": "the greedy solver cannot plan routes",
        "saturation_policy": "a route is served in full or not at all",
        "batch_sizing": "the best batch depends on the routed load",
        "max_power_w": "power depends on the routed load",
        "headroom_share": _NO_RESERVE,
    },
    refuses_shapes="the kinds of a route state the lengths of its requests",
    has_topology=True,
    faults=route_problems,
    faults_alone=kind_problems,
)
