"""What each latency target costs: the plan with it relaxed, less the plan."""

from collections.abc import Mapping, Sequence

import numpy as np

from optimizer.candidates import Candidates
from optimizer.documents import MAX_QUANTITY
from optimizer.plan import Plan
from optimizer.queueing.measures import LATENCIES, METRICS, LatencyName
from optimizer.solvers.deadline import Deadline
from optimizer.studies.explanation.document import TargetPrice
from optimizer.studies.explanation.resolving import (
    Before,
    Inquiry,
    effect,
    no_worse,
    plan_of,
    with_targets_of,
)

RELAXATION = 0.1
"""Share by which a target is relaxed to see what it costs."""

Target = tuple[str, str, LatencyName]
"""Service class, model and metric."""


def targets_of_servers(candidates: Candidates, servers: Sequence[int]) -> list[Target]:
    """Return the latency targets of the servers with load among some, in the order of the names."""
    system, arrays = candidates.system, candidates.arrays
    loaded = [system.servers[arrays.server_names[s]] for s in servers if arrays.servers.load_rps[s] > 0]
    found: list[Target] = []
    for key in sorted({(server.service_class, server.model) for server in loaded}):
        target = system.targets.get(key)
        if target is not None:
            found += [(*key, metric) for metric in LATENCIES if getattr(target, f"{metric}_ms")]
    return found


def target_ms(candidates: Candidates, target: Target) -> float:
    """Return the value of a target [ms]."""
    service_class, model, metric = target
    return float(getattr(candidates.system.targets[service_class, model], f"{metric}_ms"))


def relaxed(candidates: Candidates, values_ms: Mapping[Target, float]) -> Candidates:
    """Return the candidates with other values of some targets, as large as documents may say; 0 for none."""
    system = candidates.system
    for (service_class, model, metric), value in values_ms.items():
        system = system.with_target(service_class, model, **{f"{metric}_ms": min(value, MAX_QUANTITY)})
    changed = {target[:2] for target in values_ms}
    servers = system.servers.values()
    affected = np.array(
        [(server.service_class, server.model) in changed for server in servers], dtype=np.bool_
    )
    return with_targets_of(candidates, system, affected)


def target_words(target: Target) -> str:
    """Return a target as it is named in sentences."""
    service_class, model, metric = target
    return f"{service_class}/{model} {METRICS[metric].label}"


def price_targets(
    candidates: Candidates, plan: Plan, servers: Sequence[int], inquiry: Inquiry
) -> tuple[TargetPrice, ...]:
    """Solve again with each latency target of some servers relaxed by 10 %, as far as there is time.

    Raises:
        SolverError: the solver failed.
    """
    now = {target: target_ms(candidates, target) for target in targets_of_servers(candidates, servers)}
    then = {key: min(float(f"{ms * (1 + RELAXATION):.12g}"), MAX_QUANTITY) for key, ms in now.items()}

    before = Before(candidates, plan)

    def solved(change: tuple[Target, float], deadline: Deadline) -> Plan:
        return plan_of(relaxed(candidates, dict([change])), deadline, before, carries_more=True)

    questions = {target: (target, value) for target, value in then.items()}
    plans = inquiry.ask(solved, questions, lambda target: f"{target_words(target)} relaxed by 10 %")
    return tuple(
        TargetPrice(
            service_class=target[0],
            model=target[1],
            metric=target[2],
            target_ms=now[target],
            relaxed_ms=then[target],
            effect=effect(plan, no_worse(plan, other), candidates.system),
        )
        for target, other in plans.items()
    )
