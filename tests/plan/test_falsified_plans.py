"""No field of a plan can lie: a table holds at least one falsification of every field of the document.

The fields are found by walking the models, so that a field that is added later needs a row here, too.
"""

import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from falsified import (
    SCENARIOS,
    Lie,
    Path,
    falsified,
    found_in,
    plan_of,
    plus,
    pool,
    system_of,
    times,
    to,
    wire,
    without,
)
from pydantic import BaseModel

from optimizer import Plan
from optimizer.plan.document import (
    CacheUse,
    DeadlineUse,
    LimitUse,
    OneVersion,
    Rented,
    ReplicaPurposes,
    ReserveUse,
    RolloutUse,
    RoutedKind,
    RouteUse,
    SplitUse,
    TierUse,
    VersionUse,
)

# --- one field at a time -----------------------------------------------------------------------------------

VALUE, CHANGES = -2, -1
"""Places of these levels."""

SLOTS = {"limit": "racks", "item": "slots", "amount": 8.0, "used": 2.0}

USE = "sharedQueues", "q"


def member(name: str = "a") -> Path:
    """Return the place of a member of the shared queue."""
    return (*USE, "members", name)


CARDS = "sharedCards", 0


def seat(field: str, use: int = 0) -> Path:
    """Return the place of a field of the first server of shared cards."""
    return "sharedCards", use, "servers", 0, field


TABLE: list[tuple[str, str, Path, Lie, str]] = [
    # field of the document, scenario, place in the plan, what is made of it, what verify must say
    ("Plan.status", "fleet", ("status",), to("heuristic"), "a plan of the solver 'milp' is not 'heuristic'"),
    ("Plan.status", "greedy", ("status",), to("optimal"), "a plan of the solver 'greedy' is not 'optimal'"),
    ("Plan.status", "greedy", ("status",), to("feasible"), "a plan of the solver 'greedy' is not 'feasible'"),
    ("Plan.solver", "fleet", ("solver",), to("greedy"), "the options require the solver 'milp'"),
    ("Plan.solver", "unlimited", ("solver",), to("milp"), "the options require the solver 'separable'"),
    ("Plan.solver", "greedy", ("solver",), to("milp"), "the options require the solver 'greedy'"),
    ("Plan.complete", "fleet", ("complete",), to(value=True), "complete contradicts"),
    ("Plan.complete", "mixed", ("complete",), to(value=False), "complete contradicts"),
    ("Plan.objective", "fleet", ("objective",), plus(1), "objective is .* at the level of value"),
    ("Plan.bound", "fleet", ("bound",), plus(-1), "bound is .* at the level of value"),
    ("Plan.bound", "fleet", ("bound",), to(None), "bound is None .* at the level of value"),
    ("Plan.bound", "greedy", ("bound",), to(0), "bound is .* None at the level of value"),
    ("Plan.gap", "fleet", ("gap",), to(0.25), "gap is 0.25 .* at the level of value"),
    ("Plan.gap", "fleet", ("gap",), to(None), "gap is None .* at the level of value"),
    ("Plan.levels", "fleet", ("levels",), to([]), "the levels are .*; the plan has none"),
    ("Plan.levels", "fleet", ("levels",), without(0), "the levels are priority 1: unserved rate, "),
    ("Plan.levels", "fleet", ("levels",), lambda items: items[::-1], "the levels are priority 1: unserved"),
    ("Plan.levels", "fleet", ("levels",), lambda items: items + items[-1:], "the levels are priority 1: uns"),
    ("Plan.total_cost_cents_per_h", "fleet", ("totalCost",), plus(-1), "the allocations cost"),
    ("Plan.limits", "fleet", ("limits",), to([SLOTS]), "racks: slots: in limits, but the system has no such"),
    (
        "Plan.rate_factors",
        "fleet",
        ("rateFactors",),
        to({"free": {"A": 0.5}}),
        "free: the maximum rate on A is",
    ),
    ("Plan.rate_factors", "fleet", ("rateFactors",), to({"x": {"A": 0.5}}), "x: a factor on its rate on A"),
    (
        "Plan.rate_factors",
        "fleet",
        ("rateFactors",),
        to({"free": {"A": 1.0}}),
        "free: the factor on its rate",
    ),
    ("Plan.currency", "fleet", ("currency",), to("USD"), "costs are in None, the plan says USD"),
    (
        "Plan.allocations",
        "fleet",
        ("allocations",),
        lambda x: x | {"nobody": []},
        "nobody: not in the system",
    ),
    ("Plan.allocations", "fleet", ("allocations", "free"), to([]), "free: carries 0 of 900 requests/min"),
    (
        "Plan.allocations",
        "fleet",
        ("allocations", "free"),
        to([]),
        "free: 0 replicas, at least 2 are required",
    ),
    ("Plan.unserved", "fleet", ("unserved",), to([]), "waiting: not in the plan"),
    ("Plan.unserved", "partial", ("unserved",), to([]), "last: carries at most .* but is not listed"),
    ("Plan.unserved", "fleet", ("unserved",), lambda x: x + x, "waiting: 2 times in unserved"),
    (
        "Plan.capacity",
        "fleet",
        ("capacity",),
        without(0),
        "A: . cards? (is|are) used, the plan does not list them",
    ),
    (
        "Plan.capacity",
        "fleet",
        ("capacity",),
        to([]),
        "B: . cards? (is|are) used, the plan does not list them",
    ),
    (
        "Plan.capacity",
        "unlimited",
        ("capacity",),
        to([]),
        "A: .* cards? (is|are) used, the plan does not list them",
    ),
    ("Plan.capacity", "fleet", ("capacity",), lambda x: x + x, "A: 2 times in capacity"),
    ("Plan.changes", "fleet", ("changes",), to([]), "moved: changes, but is not listed in changes"),
    ("Plan.changes", "fleet", ("changes",), without(-1), "stopped: changes, but is not listed in changes"),
    ("Plan.changes", "fleet", ("changes",), lambda x: x + x[:1], "free: 2 times in changes"),
    ("Plan.kept", "running", ("kept",), to([]), "last: the reason in numbers is .*; 2 of 4 are left"),
    ("Plan.kept", "running", ("kept",), lambda x: x + x, "last: 2 times in kept on A"),
    ("Kept.server", "running", ("kept", 0, "server"), to("nobody"), "nobody: kept on A, which the system"),
    ("Kept.accelerator", "running", ("kept", 0, "accelerator"), to("B"), "last: kept on B, which the system"),
    (
        "Kept.num_replicas",
        "running",
        ("kept", 0, "numReplicas"),
        plus(2),
        "A: 2 cards are used and 3 kept, 4",
    ),
    ("Kept.num_replicas", "running", ("kept", 0, "numReplicas"), to(-1), "last: -1 replicas kept on A"),
    ("PlanLevel.name", "fleet", ("levels", 0, "name"), to("priority 2: unserved rate"), "the levels are"),
    ("PlanLevel.name", "fleet", ("levels", CHANGES, "name"), to("moves"), "the levels are"),
    ("PlanLevel.value", "fleet", ("levels", 0, "value"), to(0), ".*unserved rate. reaches 1,"),
    ("PlanLevel.value", "fleet", ("levels", 1, "value"), plus(1), ".*unserved servers. reaches"),
    ("PlanLevel.value", "partial", ("levels", 2, "value"), to(3000), "level .*: 1,000 are not proved"),
    ("PlanLevel.value", "fleet", ("levels", VALUE, "value"), plus(-1), "level 'value' reaches"),
    ("PlanLevel.value", "mixed", ("levels", VALUE, "value"), plus(-1), "level 'value' reaches"),
    ("PlanLevel.value", "fleet", ("levels", CHANGES, "value"), to(0), "level 'changes' reaches"),
    ("PlanLevel.bound", "fleet", ("levels", VALUE, "bound"), plus(1), "level 'value': the bound .* is above"),
    ("PlanLevel.bound", "fleet", ("levels", VALUE, "bound"), plus(-1), "level 'value': 1 are not proved"),
    (
        "PlanLevel.bound",
        "fleet",
        ("levels", 0, "bound"),
        to(None),
        "the plan is called optimal, but not every",
    ),
    (
        "PlanLevel.bound",
        "greedy",
        ("levels", CHANGES, "bound"),
        to(0),
        "level 'changes' has a bound, but a greedy",
    ),
    (
        "PlanLevel.gap",
        "fleet",
        ("levels", VALUE, "gap"),
        to(0.25),
        "level 'value': the gap is 0, the plan says",
    ),
    ("PlanLevel.gap", "fleet", ("levels", 0, "gap"), to(None), "level .*: the gap is 0, the plan says None"),
    ("PlanLevel.gap", "greedy", ("levels", 0, "gap"), to(0), "level .* has a gap, but no bound"),
    ("CapacityUse.type", "fleet", ("capacity", 0, "type"), to("X"), "X: in capacity, but not in the system"),
    (
        "CapacityUse.limit",
        "fleet",
        ("capacity", 0, "limit"),
        to(5),
        "A: 4 cards exist, the plan says 5 cards",
    ),
    ("CapacityUse.limit", "fleet", ("capacity", 0, "limit"), to(None), "A: 4 cards exist, .* without limit"),
    ("CapacityUse.limit", "unlimited", ("capacity", 0, "limit"), to(4), "A: cards without limit exist, the"),
    (
        "CapacityUse.used",
        "fleet",
        ("capacity", 0, "used"),
        plus(-1),
        "A: . cards? (is|are) used, the plan says",
    ),
    ("Change.server", "fleet", ("changes", 0, "server"), to("idle"), "idle: does not change, but is listed"),
    (
        "Change.server",
        "fleet",
        ("changes", 0, "server"),
        to("nobody"),
        "nobody: in changes, but not in the sys",
    ),
    ("Change.before", "fleet", ("changes", 1, "from"), to([]), "moved: changes from 1 x A, .* nothing"),
    ("Change.after", "fleet", ("changes", 1, "to"), to([]), "moved: changes to 1 x B, .* nothing"),
    (
        "Change.cost_change_cents_per_h",
        "fleet",
        ("changes", 1, "costChange"),
        plus(1),
        "moved: cost changes by",
    ),
    (
        "Placement.accelerator",
        "fleet",
        ("changes", 1, "from", 0, "accelerator"),
        to("B"),
        "moved: changes from",
    ),
    (
        "Placement.num_replicas",
        "fleet",
        ("changes", 1, "to", 0, "numReplicas"),
        to(2),
        "moved: changes to 1 x",
    ),
    ("Unserved.server", "fleet", ("unserved", 0, "server"), to("nobody"), "nobody: not in the system"),
    ("Unserved.server", "fleet", ("unserved", 0, "server"), to("free"), "free: both served and unserved"),
    (
        "Unserved.priority",
        "fleet",
        ("unserved", 0, "priority"),
        to(1),
        "unknown: its priority is 7, .* says 1",
    ),
    (
        "Unserved.reason",
        "fleet",
        ("unserved", 0, "reason"),
        to("capacity"),
        "unknown: .* for slo_unattainable",
    ),
    (
        "Unserved.reason",
        "fleet",
        ("unserved", 1, "reason"),
        to("no_target"),
        "waiting: it is unserved for cap",
    ),
    (
        "Unserved.reason",
        "partial",
        ("unserved", 0, "reason"),
        to("solver_stopped"),
        "last: it is unserved for",
    ),
    (
        "Unserved.detail",
        "fleet",
        ("unserved", 0, "detail"),
        lambda text: text.replace("10.5", "1.05"),
        "unknown: the reason in numbers is 'A: best ITL at batch 1 is 10.5 ms, target 1 ms",
    ),
    (
        "Unserved.detail",
        "fleet",
        ("unserved", 1, "detail"),
        lambda text: text.replace("9 replicas", "5 replicas"),
        "waiting: the reason in numbers is '9 replicas on A take 9 cards of A;",
    ),
    (
        "Unserved.served_fraction",
        "partial",
        ("unserved", 0, "servedFraction"),
        times(1.01),
        "last: .* of it is served, the plan says",
    ),
    ("Pool.accelerator", "fleet", pool("accelerator"), to("C"), "free: no profile of m on C"),
    ("Pool.accelerator", "fleet", pool("accelerator", "kept"), to("A"), "kept: must keep B, not A"),
    ("Pool.accelerator", "mixed", pool("accelerator", "a", 0), to("B"), "a: several pools on the same acc"),
    ("Pool.num_replicas", "fleet", pool("numReplicas"), plus(1), "A: 4 cards are used, the plan says 3"),
    ("Pool.num_replicas", "fleet", pool("numReplicas"), to(0), "free: a pool of 0 replicas on A"),
    ("Pool.num_replicas", "fleet", pool("numReplicas"), to(-1), "free: a pool of -1 replicas on A"),
    ("Pool.max_batch", "fleet", pool("maxBatch"), to(64), "free: batch 64 on A, the limit is 8"),
    ("Pool.max_batch", "fleet", pool("maxBatch"), to(7), "free: batch 7 on A, the limit is 8"),
    ("Pool.max_batch", "fleet", pool("maxBatch"), to(10**9), "free: batch 1000000000 on A, the limit is 8"),
    ("Pool.max_batch", "fleet", pool("maxBatch", "standby"), to(7), "standby: batch 7 on A, the limit is 8"),
    ("Pool.max_batch", "chosen batch", pool("maxBatch", "a"), plus(-1), "a: batch . on A, the best is ."),
    ("Pool.cost_cents_per_h", "fleet", pool("cost"), plus(1), "free: cost on A is 20, the plan says 21"),
    ("Pool.arrival_rate_rpm", "fleet", pool("arrivalRate"), times(0.9), "free: carries 810 of 900 requests"),
    ("Pool.arrival_rate_rpm", "fleet", pool("arrivalRate", "standby"), to(1), "standby: carries 1 of 0 req"),
    (
        "Pool.max_arrival_rate_rpm",
        "fleet",
        pool("maxArrivalRate"),
        times(100),
        "free: the maximum rate on A is",
    ),
    (
        "Pool.max_arrival_rate_rpm",
        "fleet",
        pool("maxArrivalRate"),
        times(0.99),
        "free: the maximum rate on A",
    ),
    ("Pool.max_arrival_rate_rpm", "fleet", pool("maxArrivalRate"), to(0), "free: the maximum rate on A is"),
    (
        "Pool.max_arrival_rate_rpm",
        "fleet",
        pool("maxArrivalRate", "standby"),
        times(2),
        "standby: the maximum rate on A is",
    ),
    ("Pool.itl_ms", "fleet", pool("itlAverage"), times(0.9), "free: ITL on A is .* ms, the plan says"),
    ("Pool.itl_ms", "fleet", pool("itlAverage", "standby"), to(0), "standby: ITL on A is 10.5 ms, the plan"),
    ("Pool.ttft_ms", "fleet", pool("ttftAverage"), times(0.9), "free: TTFT on A is .* ms, the plan says"),
    ("Pool.ttft_ms", "fleet", pool("ttftAverage", "standby"), to(0), "standby: TTFT on A is 5.01 ms, the"),
    ("Pool.wait_ms", "fleet", pool("waitAverage"), times(2), "free: wait on A is .* ms, the plan says"),
    ("Pool.wait_ms", "fleet", pool("waitAverage", "standby"), to(1), "standby: wait on A is 0 ms, the plan"),
    ("Pool.utilization", "fleet", pool("utilization"), times(0.5), "free: utilization on A is"),
    ("Pool.utilization", "fleet", pool("utilization", "standby"), to(0.5), "standby: utilization on A is 0,"),
    ("Pool.loss", "fleet", pool("loss"), plus(1e-6), "free: loss on A is"),
    ("Pool.loss", "fleet", pool("loss", "standby"), to(0.5), "standby: loss on A is 0,"),
    ("Pool.targets", "tails", pool("targets", "a"), to([]), "a: on A targets use"),
    (
        "Pool.targets",
        "fleet",
        pool("targets"),
        to([{"measure": "p95 TTFT", "value": 1, "limit": 2}]),
        "free: on A",
    ),
    (
        "TargetFigure.measure",
        "tails",
        (*pool("targets", "a"), 0, "measure"),
        to("p99 TTFT"),
        "a: on A targets",
    ),
    ("TargetFigure.value", "tails", (*pool("targets", "a"), 0, "value"), times(0.999), "a: p95 TTFT on A is"),
    ("TargetFigure.value", "tails", (*pool("targets", "b"), 0, "value"), plus(0.01), "b: share of requests"),
    ("TargetFigure.limit", "tails", (*pool("targets", "a"), 0, "limit"), plus(1), "a: the limit on p95 TTFT"),
    ("Pool.provenance", "fleet", pool("provenance"), to("guessed"), "free: on A the provenance differs"),
    ("Pool.outside", "fleet", pool("outside"), to(("long prompts",)), "free: on A 0 of its figures are"),
    ("Pool.busy", "collected", pool("busy", "a"), times(0.999), "a: busy on A is"),
    ("Pool.busy", "fleet", pool("busy"), to(0.5), "free: busy on A is None"),
    ("Pool.mean_batch", "collected", pool("avgBatch", "a"), to(None), "a: avgBatch on A is"),
    ("Pool.batch_window_ms", "collected", pool("batchWindow", "a"), to(0), "a: batchWindow on A is 5.0"),
    ("Pool.binding", "collected", pool("binding", "a"), to("stage:x"), "a: binding on A is None"),
    ("Plan.shared_queues", "queued", ("sharedQueues",), to({}), "q: not in sharedQueues"),
    ("Plan.shared_queues", "fleet", ("sharedQueues",), to({"q": {"members": {}}}), "q: no shared queue"),
    (
        "SharedQueueUse.members",
        "queued",
        (*USE, "members"),
        lambda members: {"a": members["a"]},
        "q: its servers are a, b, c, each once",
    ),
    ("SharedQueueUse.unserved", "queued", (*USE, "unserved"), to([]), "q: its servers are a, b, c, each"),
    ("SharedQueueUse.unserved", "queued", (*USE, "unserved"), to(["c", "c"]), "q: its servers are a, b, c"),
    ("QueueMember.arrival_rate_rpm", "queued", (*member(), "arrivalRate"), times(0.9), "q: its servers have"),
    ("QueueMember.arrival_rate_rpm", "queued", (*member(), "arrivalRate"), times(2), "a: 800 of 400 reques"),
    ("QueueMember.itl_ms", "queued", (*member(), "itlAverage"), times(0.9), "q: a: itl is .* ms, the plan"),
    ("QueueMember.ttft_ms", "queued", (*member("b"), "ttftAverage"), times(0.9), "q: b: ttft is .* ms, the"),
    ("QueueMember.wait_ms", "queued", (*member(), "waitAverage"), plus(1), "q: a: wait is .* ms, the plan"),
    ("QueueMember.wait_p95_ms", "queued", (*member(), "waitP95"), plus(1), "q: a: wait_p95 is .* ms, the"),
    ("QueueMember.targets", "queued", (*member("b"), "targets"), to([]), "q: b: its targets must be on"),
    ("Pool.ttft_ms", "queued", pool("ttftAverage", "q"), times(0.9), "q: TTFT is .* ms, the plan says"),
    (
        "Pool.max_arrival_rate_rpm",
        "queued",
        pool("maxArrivalRate", "q"),
        times(1.1),
        "q: its maximum rate is",
    ),
    ("Plan.shared_cards", "shared", ("sharedCards",), to([]), ".*v: .* requests/min"),
    ("SharedCardUse.name", "shared", (*CARDS, "name"), to("shared-x"), ".*shared-x: its name is shared-v"),
    (
        "SharedCardUse.accelerator",
        "shared",
        (*CARDS, "accelerator"),
        to("B-4"),
        ".*B-4 is not a card of the system",
    ),
    (
        "SharedCardUse.accelerator",
        "shared",
        (*CARDS, "accelerator"),
        to("A"),
        ".*v is on B-4, which is not a part",
    ),
    ("SharedCardUse.mode", "shared", (*CARDS, "mode"), to("whole"), ".*shared-v: 2 replicas on a full card"),
    ("SharedCardUse.num_cards", "shared", (*CARDS, "numCards"), to(2), ".*shared-v: cost is 120"),
    ("SharedCardUse.cost_cents_per_h", "shared", (*CARDS, "cost"), plus(1), ".*shared-v: cost is 60"),
    ("SharedCardUse.servers", "shared", (*CARDS, "servers"), to([]), ".*shared-v: 1 cards with 0 servers"),
    ("SharedPool.server", "shared", seat("server"), to("alone"), ".*alone is not a server that can share"),
    ("SharedPool.accelerator", "shared", seat("accelerator"), to("B"), ".*no profile of v on B"),
    (
        "SharedPool.num_replicas",
        "shared",
        seat("numReplicas"),
        plus(1),
        ".*v: numReplicas is 2, the plan says 3",
    ),
    ("SharedPool.per_card", "shared", seat("perCard"), plus(1), ".*shared-v: 12 memory and 9 compute slices"),
    ("SharedPool.memory_gb", "shared", seat("memory"), plus(1), ".*v: memory is 4, the plan says 5"),
    ("SharedPool.memory_gb", "shared", seat("memory", 2), plus(9), ".*GB of memory, a card has 16 GB"),
    (
        "SharedPool.share",
        "shared",
        seat("share", 2),
        to(0.5),
        ".*(shares add up to|is not a share of its profile)",
    ),
    (
        "SharedPool.slowdown",
        "shared",
        seat("slowdown", 2),
        to(1.0),
        ".*x: 0.25 with slowdown 1.0 is not a share",
    ),
    ("SharedPool.max_batch", "shared", seat("maxBatch"), to(7), ".*v: batch 7, the limit is 8"),
    (
        "SharedPool.cost_cents_per_h",
        "shared",
        seat("cost"),
        plus(1),
        ".*v costs 60 of it, the plan says 61",
    ),
    ("SharedPool.arrival_rate_rpm", "shared", seat("arrivalRate"), times(0.9), ".*v: a shared card carries"),
    (
        "SharedPool.max_arrival_rate_rpm",
        "shared",
        seat("maxArrivalRate"),
        times(0.999),
        ".*shared-v: a card carries .* requests/s, the plan says",
    ),
    (
        "SharedPool.max_arrival_rate_rpm",
        "shared",
        seat("maxArrivalRate", 1),
        times(1.5),
        ".*(at its largest rate is .* the limit is|a queue grows without bound)",
    ),
    ("SharedPool.itl_ms", "shared", seat("itlAverage"), plus(1), ".*v: itl_ms is 0.0, the plan says 1"),
    ("SharedPool.ttft_ms", "shared", seat("ttftAverage", 1), times(0.9), ".*w: ttft_ms is"),
    ("SharedPool.wait_ms", "shared", seat("waitAverage", 1), plus(1), ".*w: wait_ms is"),
    ("SharedPool.utilization", "shared", seat("utilization", 1), plus(0.01), ".*w: utilization is"),
    ("SharedPool.loss", "shared", seat("loss"), to(0.1), ".*v: loss is 0"),
    (
        "SharedPool.targets",
        "shared",
        seat("targets", 1),
        to([]),
        ".*w: its targets are p95 end-to-end latency",
    ),
    (
        "SharedPool.estimated",
        "shared",
        seat("estimated"),
        to("upper"),
        ".*v: estimated, but parts of cards have no",
    ),
    (
        "SharedPool.provenance",
        "shared",
        seat("provenance"),
        to("guess"),
        ".*v: the provenance differs from that",
    ),
    (
        "SharedPool.outside",
        "shared",
        seat("outside"),
        to(["long"]),
        ".*v: 0 of its figures are outside the measured",
    ),
    ("SharedPool.busy", "shared", seat("busy", 1), times(0.9), ".*w: busy is"),
    ("SharedPool.mean_batch", "shared", seat("avgBatch", 1), times(0.9), ".*w: mean_batch is"),
    ("SharedPool.batch_window_ms", "shared", seat("batchWindow", 1), to(5.0), ".*w: batch_window_ms is 0"),
    ("SharedPool.binding", "shared", seat("binding", 1), to("server"), ".*w: binding is None"),
    ("SharedPool.whole_cards", "shared", seat("wholeCards", 1), to(None), ".*wholeCards is not the cheapest"),
    (
        "SharedPool.whole_cost_cents_per_h",
        "shared",
        seat("wholeCardsCost", 1),
        plus(1),
        ".*w: whole cards cost",
    ),
    ("Unserved.server", "queued", ("unserved",), to([]), "c: not served in q, but not in unserved"),
    ("Pool.estimated", "fleet", pool("estimated"), to("upper"), "free: on A estimated is upper"),
]


PARTS = (
    "reserves",
    "tiers",
    "rented",
    "not_rented",
    "deadlines",
    "caches",
    "rollouts",
    "replica_counts",
    "versions",
    "routes",
)
"""Sections of a plan whose falsifications are tested elsewhere."""


VERSIONS = (SplitUse, VersionUse, OneVersion)


def fields_of(model: type[BaseModel]) -> Iterator[str]:
    """Yield every field of a model and of the models inside it."""

    def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield annotation
        for argument in get_args(annotation):
            yield from models_in(argument)

    for name, field in model.model_fields.items():
        yield f"{model.__name__}.{name}"
        for inner in models_in(field.annotation):
            yield from fields_of(inner)


def test_every_field_of_the_document_has_a_falsification() -> None:
    fields = set(fields_of(Plan))
    assert {"Plan.status", "Pool.loss", "Placement.num_replicas", "PlanLevel.bound"} <= fields
    # See test_a_new_limit, test_robust_plans, test_deadlines, test_caches, test_rollouts, test_versions and
    # test_routes.
    others: tuple[type[BaseModel], ...] = (LimitUse, ReserveUse, TierUse, Rented, DeadlineUse, CacheUse)
    others = (*others, RolloutUse, ReplicaPurposes, *VERSIONS, RouteUse, RoutedKind)
    elsewhere = {f"{model.__name__}.{name}" for model in others for name in model.model_fields}
    elsewhere |= {f"Plan.{name}" for name in PARTS}
    assert elsewhere < fields
    assert {row[0] for row in TABLE} == fields - elsewhere


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_true_plans_hold(scenario: str) -> None:
    assert found_in(wire(plan_of(scenario)), system_of(scenario)) == []


def test_the_scenarios_are_what_their_names_say() -> None:
    (item,) = plan_of("partial").unserved
    assert 0 < item.served_fraction < 1
    assert [item.server for item in plan_of("fleet").unserved] == ["unknown", "waiting"]
    assert [item.server for item in plan_of("fleet").changes] == ["free", "moved", "standby", "stopped"]
    assert len(plan_of("mixed").allocations["a"]) == 2
    assert plan_of("chosen batch").allocations["a"][0].max_batch < 8


@pytest.mark.parametrize(
    ("scenario", "path", "lie", "expected"),
    [pytest.param(*row[1:], id=f"{row[0]}-{i}") for i, row in enumerate(TABLE)],
)
def test_a_false_field_is_named(scenario: str, path: Path, lie: Lie, expected: str) -> None:
    truth = wire(plan_of(scenario))
    false = falsified(truth, path, lie)
    assert false != truth
    found = found_in(false, system_of(scenario))
    assert any(re.match(expected, line) for line in found), found
