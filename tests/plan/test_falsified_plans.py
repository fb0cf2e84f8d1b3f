"""No field of a plan can lie: a table holds at least one falsification of every field of the document.

The fields are found by walking the models, so that a field that is added later needs a row here, too.
"""

import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from falsified import (
    SCENARIOS,
    falsified,
    found_in,
    instead,
    path_of,
    plan_of,
    plus,
    system_of,
    times,
    to,
    wire,
    without,
)
from pydantic import BaseModel

from optimizer import Plan

SLOTS = {"limit": "racks", "item": "slots", "amount": 8.0, "used": 2.0}
ONE_VERSION = {"accelerator": "A", "numReplicas": 3, "cost": 30.0}
TABLE: list[tuple[str, str, Any, str]] = [
    # scenario, place in the plan, a false value or what is made of the true one, what verify must say
    ("fleet", "status", "heuristic", "a plan of the solver 'milp' is not 'heuristic'"),
    ("greedy", "status", "optimal", "a plan of the solver 'greedy' is not 'optimal'"),
    ("fleet", "solver", "greedy", "the options require the solver 'milp'"),
    ("unlimited", "solver", "milp", "the options require the solver 'separable'"),
    ("greedy", "solver", "milp", "the options require the solver 'greedy'"),
    ("fleet", "complete", True, "complete contradicts"),
    ("mixed", "complete", False, "complete contradicts"),
    ("fleet", "objective", plus(1), "objective is .* at the level of value"),
    ("fleet", "bound", plus(-1), "bound is .* at the level of value"),
    ("fleet", "bound", None, "bound is None .* at the level of value"),
    ("greedy", "bound", 0, "bound is .* None at the level of value"),
    ("fleet", "gap", 0.25, "gap is 0.25 .* at the level of value"),
    ("fleet", "gap", None, "gap is None .* at the level of value"),
    ("fleet", "levels", [], "the levels are .*; the plan has none"),
    ("fleet", "levels", without(0), "the levels are priority 1: unserved rate, "),
    ("fleet", "levels", lambda items: items[::-1], "the levels are priority 1: unserved"),
    ("fleet", "levels", lambda items: items + items[-1:], "the levels are priority 1: uns"),
    ("fleet", "totalCost", plus(-1), "the allocations cost"),
    ("fleet", "limits", [SLOTS], "racks: slots: in limits, but the system has no such"),
    ("fleet", "rateFactors", {"free": {"A": 0.5}}, "free: the maximum rate on A is"),
    ("fleet", "rateFactors", {"x": {"A": 0.5}}, "x: a factor on its rate on A"),
    ("fleet", "rateFactors", {"free": {"A": 1.0}}, "free: the factor on its rate"),
    ("fleet", "currency", "USD", "costs are in None, the plan says USD"),
    ("fleet", "allocations", lambda x: x | {"nobody": []}, "nobody: not in the system"),
    ("fleet", "allocations.free", [], "free: carries 0 of 900 requests/min"),
    ("fleet", "allocations.free", [], "free: 0 replicas, at least 2 are required"),
    ("fleet", "unserved", [], "waiting: not in the plan"),
    ("partial", "unserved", [], "last: carries at most .* but is not listed"),
    ("fleet", "unserved", lambda x: x + x, "waiting: 2 times in unserved"),
    ("fleet", "capacity", without(0), "A: . cards? (is|are) used, the plan does not list them"),
    ("fleet", "capacity", [], "B: . cards? (is|are) used, the plan does not list them"),
    ("unlimited", "capacity", [], "A: .* cards? (is|are) used, the plan does not list them"),
    ("fleet", "capacity", lambda x: x + x, "A: 2 times in capacity"),
    ("fleet", "changes", [], "moved: changes, but is not listed in changes"),
    ("fleet", "changes", without(-1), "stopped: changes, but is not listed in changes"),
    ("fleet", "changes", lambda x: x + x[:1], "free: 2 times in changes"),
    ("running", "kept", [], "last: the reason in numbers is .*; 2 of 4 are left"),
    ("running", "kept", lambda x: x + x, "last: 2 times in kept on A"),
    ("running", "kept.0.server", "nobody", "nobody: kept on A, which the system"),
    ("running", "kept.0.accelerator", "B", "last: kept on B, which the system"),
    ("running", "kept.0.numReplicas", plus(2), "A: 2 cards are used and 3 kept, 4"),
    ("running", "kept.0.numReplicas", -1, "last: -1 replicas kept on A"),
    ("fleet", "levels.0.name", "priority 2: unserved rate", "the levels are"),
    ("fleet", "levels.0.value", 0, ".*unserved rate. reaches 1,"),
    ("fleet", "levels.1.value", plus(1), ".*unserved servers. reaches"),
    ("partial", "levels.2.value", 3000, "level .*: 1,000 are not proved"),
    ("fleet", "levels.-2.value", plus(-1), "level 'value' reaches"),
    ("fleet", "levels.-1.value", 0, "level 'changes' reaches"),
    ("fleet", "levels.-2.bound", plus(1), "level 'value': the bound .* is above"),
    ("fleet", "levels.-2.bound", plus(-1), "level 'value': 1 are not proved"),
    ("fleet", "levels.0.bound", None, "the plan is called optimal, but not every"),
    ("greedy", "levels.-1.bound", 0, "level 'changes' has a bound, but a greedy"),
    ("fleet", "levels.-2.gap", 0.25, "level 'value': the gap is 0, the plan says"),
    ("fleet", "levels.0.gap", None, "level .*: the gap is 0, the plan says None"),
    ("greedy", "levels.0.gap", 0, "level .* has a gap, but no bound"),
    ("fleet", "capacity.0.type", "X", "X: in capacity, but not in the system"),
    ("fleet", "capacity.0.limit", 5, "A: 4 cards exist, the plan says 5 cards"),
    ("fleet", "capacity.0.limit", None, "A: 4 cards exist, .* without limit"),
    ("unlimited", "capacity.0.limit", 4, "A: cards without limit exist, the"),
    ("fleet", "capacity.0.used", plus(-1), "A: . cards? (is|are) used, the plan says"),
    ("fleet", "changes.0.server", "idle", "idle: does not change, but is listed"),
    ("fleet", "changes.0.server", "nobody", "nobody: in changes, but not in the sys"),
    ("fleet", "changes.1.from", [], "moved: changes from 1 x A, .* nothing"),
    ("fleet", "changes.1.to", [], "moved: changes to 1 x B, .* nothing"),
    ("fleet", "changes.1.costChange", plus(1), "moved: cost changes by"),
    ("fleet", "changes.1.from.0.accelerator", "B", "moved: changes from"),
    ("fleet", "changes.1.to.0.numReplicas", 2, "moved: changes to 1 x"),
    ("fleet", "unserved.0.server", "nobody", "nobody: not in the system"),
    ("fleet", "unserved.0.server", "free", "free: both served and unserved"),
    ("fleet", "unserved.0.priority", 1, "unknown: its priority is 7, .* says 1"),
    ("fleet", "unserved.0.reason", "capacity", "unknown: .* for slo_unattainable"),
    ("fleet", "unserved.1.reason", "no_target", "waiting: it is unserved for cap"),
    ("partial", "unserved.0.reason", "solver_stopped", "last: it is unserved for"),
    ("fleet", "unserved.0.detail", instead("10.5", "1.05"), "unknown: .* 10.5 ms, "),
    ("partial", "unserved.0.servedFraction", times(1.01), "last: .* of it is served, the plan says"),
    ("fleet", "allocations.free.0.accelerator", "C", "free: no profile of m on C"),
    ("fleet", "allocations.kept.0.accelerator", "A", "kept: must keep B, not A"),
    ("mixed", "allocations.a.0.accelerator", "B", "a: several pools on the same acc"),
    ("fleet", "allocations.free.0.numReplicas", plus(1), "A: 4 cards are used, the plan says 3"),
    ("fleet", "allocations.free.0.numReplicas", -1, "free: a pool of -1 replicas on A"),
    ("fleet", "allocations.free.0.maxBatch", 7, "free: batch 7 on A, the limit is 8"),
    ("fleet", "allocations.free.0.maxBatch", 10**9, "free: batch 1000000000 on A, the limit is 8"),
    ("fleet", "allocations.standby.0.maxBatch", 7, "standby: batch 7 on A, the limit is 8"),
    ("chosen batch", "allocations.a.0.maxBatch", plus(-1), "a: batch . on A, the best is ."),
    ("fleet", "allocations.free.0.cost", plus(1), "free: cost on A is 20, the plan says 21"),
    ("fleet", "allocations.free.0.arrivalRate", times(0.9), "free: carries 810 of 900 requests"),
    ("fleet", "allocations.standby.0.arrivalRate", 1, "standby: carries 1 of 0 req"),
    ("fleet", "allocations.free.0.maxArrivalRate", times(100), "free: the maximum rate on A is"),
    ("fleet", "allocations.free.0.maxArrivalRate", 0, "free: the maximum rate on A is"),
    ("fleet", "allocations.standby.0.maxArrivalRate", times(2), "standby: the maximum rate on A is"),
    ("fleet", "allocations.free.0.itlAverage", times(0.9), "free: ITL on A is .* ms, the plan says"),
    ("fleet", "allocations.standby.0.itlAverage", 0, "standby: ITL on A is 10.5 ms, the plan"),
    ("fleet", "allocations.free.0.ttftAverage", times(0.9), "free: TTFT on A is .* ms, the plan says"),
    ("fleet", "allocations.standby.0.ttftAverage", 0, "standby: TTFT on A is 5.01 ms, the"),
    ("fleet", "allocations.free.0.waitAverage", times(2), "free: wait on A is .* ms, the plan says"),
    ("fleet", "allocations.standby.0.waitAverage", 1, "standby: wait on A is 0 ms, the plan"),
    ("fleet", "allocations.free.0.utilization", times(0.5), "free: utilization on A is"),
    ("fleet", "allocations.standby.0.utilization", 0.5, "standby: utilization on A is 0,"),
    ("fleet", "allocations.free.0.loss", plus(1e-6), "free: loss on A is"),
    ("fleet", "allocations.standby.0.loss", 0.5, "standby: loss on A is 0,"),
    ("tails", "allocations.a.0.targets", [], "a: on A targets use"),
    ("fleet", "allocations.free.0.targets", [{"measure": "p95 TTFT", "value": 1, "limit": 2}], "free: on A"),
    ("tails", "allocations.a.0.targets.0.measure", "p99 TTFT", "a: on A targets"),
    ("tails", "allocations.a.0.targets.0.value", times(0.999), "a: p95 TTFT on A is"),
    ("tails", "allocations.b.0.targets.0.value", plus(0.01), "b: share of requests"),
    ("tails", "allocations.a.0.targets.0.limit", plus(1), "a: the limit on p95 TTFT"),
    ("fleet", "allocations.free.0.provenance", "guessed", "free: on A the provenance differs"),
    ("fleet", "allocations.free.0.outside", ("long prompts",), "free: on A 0 of its figures are"),
    ("collected", "allocations.a.0.busy", times(0.999), "a: busy on A is"),
    ("fleet", "allocations.free.0.busy", 0.5, "free: busy on A is None"),
    ("collected", "allocations.a.0.avgBatch", None, "a: avgBatch on A is"),
    ("collected", "allocations.a.0.batchWindow", 0, "a: batchWindow on A is 5.0"),
    ("collected", "allocations.a.0.binding", "stage:x", "a: binding on A is None"),
    ("queued", "sharedQueues", {}, "q: not in sharedQueues"),
    ("fleet", "sharedQueues", {"q": {"members": {}}}, "q: no shared queue"),
    ("queued", "sharedQueues.q.members", lambda x: {"a": x["a"]}, "q: its servers are a, b, c, each once"),
    ("queued", "sharedQueues.q.unserved", [], "q: its servers are a, b, c, each"),
    ("queued", "sharedQueues.q.unserved", ["c", "c"], "q: its servers are a, b, c"),
    ("queued", "sharedQueues.q.members.a.arrivalRate", times(0.9), "q: its servers have"),
    ("queued", "sharedQueues.q.members.a.arrivalRate", times(2), "a: 800 of 400 reques"),
    ("queued", "sharedQueues.q.members.a.itlAverage", times(0.9), "q: a: itl is .* ms, the plan"),
    ("queued", "sharedQueues.q.members.b.ttftAverage", times(0.9), "q: b: ttft is .* ms, the"),
    ("queued", "sharedQueues.q.members.a.waitAverage", plus(1), "q: a: wait is .* ms, the plan"),
    ("queued", "sharedQueues.q.members.a.waitP95", plus(1), "q: a: wait_p95 is .* ms, the"),
    ("queued", "sharedQueues.q.members.b.targets", [], "q: b: its targets must be on"),
    ("queued", "allocations.q.0.ttftAverage", times(0.9), "q: TTFT is .* ms, the plan says"),
    ("queued", "allocations.q.0.maxArrivalRate", times(1.1), "q: its maximum rate is"),
    ("shared", "sharedCards", [], ".*v: .* requests/min"),
    ("shared", "sharedCards.0.name", "shared-x", ".*shared-x: its name is shared-v"),
    ("shared", "sharedCards.0.accelerator", "B-4", ".*B-4 is not a card of the system"),
    ("shared", "sharedCards.0.accelerator", "A", ".*v is on B-4, which is not"),
    ("shared", "sharedCards.0.mode", "whole", ".*shared-v: 2 replicas on a full card"),
    ("shared", "sharedCards.0.numCards", 2, ".*shared-v: cost is 120"),
    ("shared", "sharedCards.0.cost", plus(1), ".*shared-v: cost is 60"),
    ("shared", "sharedCards.0.servers", [], ".*shared-v: 1 cards with 0 servers"),
    ("shared", "sharedCards.0.servers.0.server", "alone", ".*alone is not a server that can share"),
    ("shared", "sharedCards.0.servers.0.accelerator", "B", ".*no profile of v on B"),
    ("shared", "sharedCards.0.servers.0.numReplicas", plus(1), ".*v: numReplicas is 2, the plan says 3"),
    ("shared", "sharedCards.0.servers.0.perCard", plus(1), ".*shared-v: 12 memory and 9 compute slices"),
    ("shared", "sharedCards.0.servers.0.memory", plus(1), ".*v: memory is 4, the plan says 5"),
    ("shared", "sharedCards.2.servers.0.memory", plus(9), ".*GB of memory, a card has 16 GB"),
    ("shared", "sharedCards.2.servers.0.share", 0.5, ".*(shares add up to|is not a share of its profile)"),
    ("shared", "sharedCards.2.servers.0.slowdown", 1.0, ".*x: 0.25 with slowdown 1.0 is not a share"),
    ("shared", "sharedCards.0.servers.0.maxBatch", 7, ".*v: batch 7, the limit is 8"),
    ("shared", "sharedCards.0.servers.0.cost", plus(1), ".*v costs 60 of it, the plan says 61"),
    ("shared", "sharedCards.0.servers.0.arrivalRate", times(0.9), ".*v: a shared card carries"),
    ("shared", "sharedCards.0.servers.0.maxArrivalRate", times(0.999), ".*shared-v: a card carries "),
    ("shared", "sharedCards.1.servers.0.maxArrivalRate", times(1.5), ".*(the limit is|grows without bound)"),
    ("shared", "sharedCards.0.servers.0.itlAverage", plus(1), ".*v: itl_ms is 0.0, the plan says 1"),
    ("shared", "sharedCards.1.servers.0.ttftAverage", times(0.9), ".*w: ttft_ms is"),
    ("shared", "sharedCards.1.servers.0.waitAverage", plus(1), ".*w: wait_ms is"),
    ("shared", "sharedCards.1.servers.0.utilization", plus(0.01), ".*w: utilization is"),
    ("shared", "sharedCards.0.servers.0.loss", 0.1, ".*v: loss is 0"),
    ("shared", "sharedCards.1.servers.0.targets", [], ".*w: its targets are p95 end-to-end latency"),
    ("shared", "sharedCards.0.servers.0.estimated", "upper", ".*v: estimated, but parts of cards have no"),
    ("shared", "sharedCards.0.servers.0.provenance", "guess", ".*v: the provenance differs from that"),
    ("shared", "sharedCards.0.servers.0.outside", ["long"], ".*v: 0 of its figures are outside the measured"),
    ("shared", "sharedCards.1.servers.0.busy", times(0.9), ".*w: busy is"),
    ("shared", "sharedCards.1.servers.0.avgBatch", times(0.9), ".*w: mean_batch is"),
    ("shared", "sharedCards.1.servers.0.batchWindow", 5.0, ".*w: batch_window_ms is 0"),
    ("shared", "sharedCards.1.servers.0.binding", "server", ".*w: binding is None"),
    ("shared", "sharedCards.1.servers.0.wholeCards", None, ".*wholeCards is not the cheapest"),
    ("shared", "sharedCards.1.servers.0.wholeCardsCost", plus(1), ".*w: whole cards cost"),
    ("queued", "unserved", [], "c: not served in q, but not in unserved"),
    ("fleet", "allocations.free.0.estimated", "upper", "free: on A estimated is upper"),
    ("robust", "reserves.0.hasReserve", False, "fails: keeps its reserve, the plan says that it does not"),
    ("robust", "reserves.1.headroomWanted", 0.25, "grows: headroomWanted is 0.5"),
    ("robust", "reserves.0.spareReplicas", 2, "fails: spareReplicas is 1"),
    ("robust", "reserves.0.availabilityTarget", 0.5, "fails: availabilityTarget is 0.99"),
    ("robust", "reserves.0.cost", 1.0, "fails: its reserve costs 10"),
    ("robust", "reserves.0.server", "rents", "rents: in reserves, but has none to have"),
    ("robust", "reserves", [], "grows: is to have a reserve, but is not in reserves"),
    ("robust", "tiers.0.used", 1, "tiers: used of A is 7"),
    ("robust", "tiers.0.cost", 1.0, "tiers: cost of A is 50"),
    ("robust", "tiers.0.difference", 1.0, "tiers: difference of A is -20"),
    ("robust", "tiers.0.accelerator", "B", r"tiers: must be those of \['A'\], the plan says \['B'\]"),
    ("robust", "tiers", [], r"tiers: must be those of \['A'\], the plan says \[\]"),
    ("robust", "rented.0.cost", 1.0, "rents: cost of the external service is 7.2"),
    ("robust", "rented.0.costPerMillion", 2.0, "rents: costPerMillion of the external service is 1"),
    ("robust", "rented.0.arrivalRate", 1.0, "rents: arrivalRate of the external service is 1,500"),
    ("robust", "rented.0.itlAverage", 1.0, "rents: itlAverage of the external service is 9"),
    ("robust", "rented.0.ttftAverage", 1.0, "rents: ttftAverage of the external service is 20"),
    ("robust", "rented.0.server", "grows", "grows: rents, but has no external service"),
    ("robust", "rented", [], "rents: carries 0 of 1,500 requests/min"),
    ("robust", "notRented", ["grows"], "grows: in notRented, but has no external service"),
    ("robust", "limits.0.limit", "cards", "cards: total cost: in limits, but the system has no such"),
    ("robust", "limits.0.item", "x", "budget: x: in limits, but the system has no such limit"),
    ("robust", "limits.0.used", 1.0, "budget: total cost: 57.2 of 900 used"),
    ("robust", "limits.0.amount", 1.0, "budget: total cost: 57.2 of 900 used"),
    ("robust", "limits.1.used", 1.0, "power: all replicas: 3,958.97 of 9,000 used"),
    ("robust", "limits.1.usedAtLoad", 1.0, "power: 3901.98.* used at the load, the plan says 1.0"),
    ("robust", "limits.1.usedAtLoad", None, "power: 3901.98.* used at the load, the plan says None"),
    ("robust", "limits.0.usedAtLoad", 1.0, "budget: None used at the load"),
    ("late", "deadlines.0.server", "day", "deadlines: of night, not of day"),
    ("late", "deadlines.0.requests", 1.0, "night: requests of its deadline is 500,000"),
    ("late", "deadlines.0.hours", 50.0, "night: hours of its deadline is 5"),
    ("late", "deadlines.0.capacity", 1e6, "night: capacity of its deadline is 1,079.66"),
    ("late", "deadlines.0.finishes", 1.0, "night: 1 h at 1,079.66 requests/min are not enough"),
    ("late", "deadlines.0.done", 1.0, "night: done of its deadline is 323,898"),
    ("late", "deadlines.0.inTime", True, "night: 323,898 of 500,000 requests are done by its deadline"),
    ("offline", "deadlines.0.inTime", False, "night: 647,796 of 500,000 requests are done by its deadline"),
    ("offline", "deadlines", [], "deadlines: of night, not of none"),
    ("cached", "caches.0.server", "b", "caches: of a, not of b"),
    ("cached", "caches.0.cacheHitRate", 0.3, "a: cacheHitRate of its cache is 0.4"),
    ("cached", "caches.0.hits", 1.0, "a: hits of its cache is 360"),
    ("cached", "caches.0.misses", 1.0, "a: misses of its cache is 540"),
    ("cached", "caches", [], "caches: of a, not of none"),
    ("split", "versions.chat.versions.1.server", "other", "chat: version n is not the server other"),
    ("split", "versions.chat.versions.1.model", "o", "chat: its versions are m, n, each once"),
    ("split", "versions.chat.versions.1.weight", 0.2, "chat: weight of version n is 0.1"),
    ("split", "versions.chat.versions.1.arrivalRate", 1.0, "chat: arrivalRate of version n is 600"),
    ("split", "versions.chat.versions.1.numReplicas", 7, "chat: numReplicas of version n is 2"),
    ("split", "versions.chat.versions.1.neededReplicas", 0.5, "chat: neededReplicas of version n is 1.78"),
    ("split", "versions.chat.versions.1.cost", 1.0, "chat: cost of version n is 20"),
    ("split", "versions.chat.versions.1.unusedCost", 1.0, "chat: unusedCost of version n is 2.1"),
    ("split", "versions.chat.model", "n", "chat: its own model is m"),
    ("split", "versions.chat.versions", [], "chat: its versions are m, n, each once"),
    ("split", "versions.chat.extraCost", 1.0, "chat: its versions cost 20 more than one"),
    ("split", "versions.chat.rollBack", False, "chat: rollBack is True"),
    ("split", "versions.chat.oneVersion", ONE_VERSION, "chat: with one version it has 14 replicas"),
    ("split", "versions.chat.oneVersion.accelerator", "B", "chat: with one version it is on A"),
    ("split", "versions.chat.oneVersion.numReplicas", 3, "chat: with one version it has 14 replicas"),
    ("split", "versions.chat.oneVersion.cost", 30.0, "chat: with one version it has 14 replicas at 140"),
    ("split", "versions", {}, "versions: of chat, not of none"),
    ("rolling", "rollouts.a.replicas", 1, r"a: 2 more on cards \{'A': 2\} in its roll-out"),
    ("rolling", "rollouts.a.cards", {"A": 1}, r"a: 2 more on cards \{'A': 2\} in its roll-out"),
    ("rolling", "rollouts", {}, r"b: 2 more on cards \{'A': 2\} in its roll-out"),
    ("rolling", "limits.0.used", 9.0, "roll-out: A: 10 of 10 used"),
    ("rolling one", "limits.0.used", 7.0, "roll-out: A: 8 of 10 used"),
    ("available", "replicaCounts.a.replicas", 6, "a: it has 4 replicas, its replicas by purpose are 6"),
    ("available", "replicaCounts.a.load", 4, "a: load: 3, its replicas by purpose say 4"),
    ("available", "replicaCounts.a.headroom", 1, "a: headroom: 0, its replicas by purpose say 1"),
    ("available", "replicaCounts.a.spares", 1, "a: spares: 0, its replicas by purpose say 1"),
    ("available", "replicaCounts.a.availability", 2, "a: availability: 1, its replicas by purpose say 2"),
    ("available", "replicaCounts.a.rollout", 3, "a: 2 more replicas in its roll-out, its replicas by"),
    ("available", "replicaCounts.a.availabilityTarget", 0.99, "a: availability_target: 0.999, its replicas"),
    ("available", "replicaCounts.a.utilization", 0.5, "a: utilisation at its load is 0.64"),
    ("available", "replicaCounts.a.fullUtilization", 0.5, "a: utilisation at its largest rate is 0.985"),
    ("available", "replicaCounts.a.bothFrom", 24, "a: both targets hold from fewer than 24 replicas on"),
    ("available", "replicaCounts", {}, "a: the plan lacks its replicas by purpose"),
    ("routed", "routes.chat.small", "chat-70b", "chat: its servers are chat-8b and chat-70b"),
    ("routed", "routes.chat.large", "x", "chat: its servers are chat-8b and chat-70b"),
    ("routed", "routes.chat.served", False, "chat: is not served, but chat-70b is not in unserved"),
    ("routed", "routes.chat.routed", False, "chat: 0.89.* of simple goes to chat-8b, the router sends"),
    ("routed", "routes.chat.kinds", [], "chat: its kinds of requests are simple, hard"),
    ("routed", "routes.chat.arrivalRate", 5000.0, "chat: arrivalRate is 6000"),
    ("routed", "routes.chat.smallRate", 4000.0, "chat: smallRate is 4099.6"),
    ("routed", "routes.chat.largeRate", 1900.0, "chat: largeRate is 1945"),
    ("routed", "routes.chat.rerunRate", 0.0, "chat: rerunRate is 45"),
    ("routed", "routes.chat.smallTokens", 0.7, "chat: smallTokens is 0.63"),
    ("routed", "routes.chat.qualityLost", 0.01, "chat: qualityLost is 0.0"),
    ("routed", "routes.chat.maxLoss", 0.03, "chat: maxLoss is 0.02"),
    ("routed", "routes.chat.cost", 7000.0, "chat: cost is 7130"),
    ("routed", "routes.chat.costAllLarge", 15000.0, "chat: costAllLarge is 12600"),
    ("routed", "routes.chat.costAllLarge", None, "chat: costAllLarge is 12600"),
    ("routed", "routes.chat.saving", 0.5, "chat: saving is 0.43"),
    ("routed", "routes.chat.kinds.0.name", "easy", "chat: its kinds of requests are simple, hard"),
    ("routed", "routes.chat.kinds.0.arrivalRate", 4000.0, "chat: arrivalRate of simple is 4,200"),
    ("routed", "routes.chat.kinds.0.toSmall", 0.95, "chat: 0.95 of simple goes to chat-8b, the router"),
    ("routed", "routes.chat.kinds.1.toSmall", 0.5, "chat: .*% of answers are worse, the limit is 2 %"),
    ("routed", "routes.chat.kinds.1.toSmall", 0.1, "chat: smallRate is"),
    ("routed", "routes.chat.kinds.1.least", 0.0, "chat: least of hard is 0.03"),
    ("routed", "routes.chat.kinds.0.most", 1.0, "chat: most of simple is 0.9"),
    ("routed", "routes.chat.kinds.1.qualityLost", 0.0, "chat: qualityLost of hard is 0.01"),
    ("routed", "routes", {}, "chat: not in routes"),
]


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


def field_at(plan: Plan, place: str) -> str:
    """Return the model and the name of the last field on the way to a place."""
    here, found = plan, ""
    for key in path_of(place):
        if isinstance(here, BaseModel):
            fields = type(here).model_fields.items()
            name = next(name for name, field in fields if key in (field.alias or name, name))
            here, found = getattr(here, name), f"{type(here).__name__}.{name}"
        else:
            here = here[key]
    return found


def test_every_field_of_the_document_has_a_falsification() -> None:
    fields = set(fields_of(Plan))
    assert {"Plan.status", "Pool.loss", "Placement.num_replicas", "PlanLevel.bound"} <= fields
    assert {field_at(plan_of(scenario), place) for scenario, place, *_ in TABLE} == fields


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


@pytest.mark.parametrize(("scenario", "place", "lie", "expected"), TABLE)
def test_a_false_field_is_named(scenario: str, place: str, lie: Any, expected: str) -> None:
    truth = wire(plan_of(scenario))
    false = falsified(truth, path_of(place), lie if callable(lie) else to(lie))
    assert false != truth
    found = found_in(false, system_of(scenario))
    assert any(re.match(expected, line) for line in found), found
