"""Random fleets over time: loads, cards and replicas change; a cluster starts and stops replicas."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from builders import accelerator, document, profile, server, service_class

from optimizer import load_system
from optimizer.candidates import SizingMemo
from optimizer.plan import Plan
from optimizer.solvers.deadline import Deadline
from optimizer.spec.system import System
from optimizer.stabilisation.decisions import Decisions, Observation, ReplicaStatus
from optimizer.stabilisation.keeping import Planner
from optimizer.stabilisation.rules import RECOMMENDED, Rules, StepLimit
from optimizer.stabilisation.stabilise import denoise_loads, plan_next, stabilise

Json = dict[str, Any]
Place = tuple[str, str]

ODD = Rules(
    scale_down_window_s=90.0,
    min_saving=1.0,
    hold_missing_load=True,
    startup_s=1.0,
    scale_up_limit=StepLimit(share=0.0, replicas=1, period_s=45.0),
    scale_down_limit=StepLimit(share=0.5, replicas=1, period_s=200.0),
)
"""Rules that hardly anybody would choose: nothing ever moves for its cost, and growth is slow."""
RULES = {"none": Rules(), "recommended": RECOMMENDED, "odd": ODD}


def random_fleet(rng: random.Random) -> Json:
    """Return a small scarce fleet: 2 to 5 servers, up to 4 accelerators of up to 3 types, 3 priorities."""
    kinds = [f"T{i}" for i in range(rng.randint(1, 3))]
    accelerators = [
        accelerator(f"A{i}", rng.choice(kinds), rng.choice([8.0, 10.0, 12.0, 25.0]), rng.choice([1, 1, 2]))
        for i in range(rng.randint(2, 4))
    ]
    models = ["m", "n"]
    profiles = [
        profile(model, item["name"], alpha=rng.choice([4.0, 10.0, 18.0]))
        for model in models
        for item in accelerators
        if rng.random() < 0.8 or item is accelerators[0]
    ]
    servers = [
        server(
            f"s{i}",
            rng.choice([0.0, 300.0, 900.0, 2000.0]),
            service=f"class{rng.randint(1, 3)}",
            model=rng.choice(models),
            replicas=rng.choice([0, 0, 0, 1, 2]),
        )
        | ({"maxNumReplicas": rng.randint(2, 6)} if rng.random() < 0.2 else {})
        for i in range(rng.randint(2, 5))
    ]
    options: Json = {"transitionPenalty": rng.choice([0.0, 0.1])}
    if rng.random() < 0.3:
        options["heterogeneous"] = True
    if rng.random() < 0.3:
        options["saturationPolicy"] = rng.choice(["PriorityExhaustive", "PriorityRoundRobin"])
    return document(
        servers,
        accelerators,
        {kind: rng.randint(0, 8) for kind in kinds},
        models=profiles,
        classes=[service_class(f"class{i}", i, models, itl=40.0) for i in (1, 2, 3)],
        **options,
    )


@dataclass
class Cluster:
    """ReplicaStatus that take some snapshots to become ready."""

    starting: dict[Place, list[int]] = field(default_factory=dict)
    """For each replica, the snapshots that it still needs; ready ones first."""

    def pass_time(self) -> None:
        """Let a snapshot go by."""
        for place, waits in self.starting.items():
            self.starting[place] = [max(0, wait - 1) for wait in waits]

    def follow(self, desired: Mapping[Place, int], rng: random.Random, slowest: int) -> None:
        """Start and stop replicas; those that are not ready stop first."""
        for place in sorted(desired.keys() | self.starting.keys()):
            waits, wanted = sorted(self.starting.get(place, [])), desired.get(place, 0)
            waits = waits[:wanted] + [rng.randint(0, slowest) for _ in range(wanted - len(waits))]
            self.starting[place] = sorted(waits)

    def ready(self, place: Place) -> int:
        """Return the number of ready replicas."""
        return sum(wait == 0 for wait in self.starting.get(place, []))

    def seen(self, server: str) -> dict[str, ReplicaStatus]:
        """Return what a report of a server says."""
        return {
            on: ReplicaStatus(self.ready((name, on)), len(waits) - self.ready((name, on)))
            for (name, on), waits in self.starting.items()
            if name == server and waits
        }


@dataclass
class Loop:
    """A control loop around the planner: a snapshot after the other."""

    system: System
    rules: Rules
    cluster: Cluster = field(default_factory=Cluster)
    last_decisions: Decisions | None = None
    last_plan: Plan | None = None
    now_s: float = 1_000_000.0
    reported: dict[str, dict[str, ReplicaStatus]] = field(default_factory=dict)
    """Ready shared cards, by name and accelerator."""
    memo: SizingMemo = field(default_factory=lambda: SizingMemo(2**12))

    @property
    def decisions(self) -> Decisions:
        """The decisions of the last snapshot."""
        assert self.last_decisions is not None
        return self.last_decisions

    @property
    def plan(self) -> Plan:
        """The plan of the last snapshot."""
        assert self.last_plan is not None
        return self.last_plan

    def snapshot(
        self, missing: frozenset[str] = frozenset(), silent: frozenset[str] = frozenset()
    ) -> Decisions:
        """Plan and decide; servers in `missing` send no load, those in `silent` no replicas either."""
        reports = {
            name: self.cluster.seen(name) for name in self.system.servers if name not in missing | silent
        }
        seen = Observation(self.now_s, missing, reports | self.reported)
        to_plan, estimates = denoise_loads(self.system, self.rules, self.last_decisions, seen)
        before, planner = self.last_decisions, Planner(Deadline.after(60.0), self.memo)
        self.last_plan = plan_next(to_plan, self.rules, before, seen, planner)
        self.last_decisions = stabilise(self.plan, self.system, self.rules, before, seen, estimates)
        return self.decisions

    def change(self, loads: Mapping[str, float], capacity: Mapping[str, int]) -> None:
        """Change loads of servers and routes [requests/min], and cards."""
        for name, rate in loads.items():
            if name in self.system.routes:
                route = self.system.routes[name].model_copy(update={"arrival_rate_rpm": rate})
                self.system = self.system.with_items(route)
            else:
                self.system = self.system.with_load(name, arrival_rate_rpm=rate)
        self.system = self.system.with_capacity(capacity)


def loaded(system: System) -> list[str]:
    """Return the servers and routes that have a load of their own."""
    routed = {name for route in system.routes.values() for name in (route.small, route.large)}
    return sorted(system.servers.keys() - routed | system.routes.keys())


def desired(decisions: Decisions) -> dict[Place, int]:
    """Return the desired replicas, by server and accelerator."""
    return {
        (name, on): target.replicas
        for name, decision in decisions.servers.items()
        for on, target in decision.targets.items()
        if target.replicas
    }


def units(system: System, replicas: Mapping[Place, int]) -> dict[str, int]:
    """Return the cards that replicas take, by type, from the documents."""
    taken: dict[str, int] = {}
    for (name, on), number in replicas.items():
        found = system.accelerators[on]
        each = found.multiplicity * system.profiles[system.servers[name].model, on].acc_count
        taken[found.type] = taken.get(found.type, 0) + each * number
    return taken


def random_loop(seed: int, rules: Rules) -> tuple[Loop, random.Random]:
    """Return a loop around a random fleet."""
    rng = random.Random(seed)
    return Loop(load_system(random_fleet(rng)), rules), rng
