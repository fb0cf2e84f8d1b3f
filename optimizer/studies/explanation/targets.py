"""Cost of each latency target: the plan with the target relaxed, minus the plan."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from optimizer.candidates import Candidates
from optimizer.documents import MAX_QUANTITY
from optimizer.queueing.measures import LATENCIES, METRICS, LatencyName
from optimizer.spec.streams import members_of
from optimizer.studies.explanation.answering import Answer, Question, effect_of
from optimizer.studies.explanation.base_plan import BasePlan
from optimizer.studies.explanation.explanation_document import TargetPrice
from optimizer.studies.explanation.resolving import with_targets_of

RELAXATION = 0.1
"""Fraction by which a target is relaxed to determine its cost."""

Target = tuple[str, str, LatencyName]
"""Service class, model and metric of a latency target."""


def targets_of_servers(candidates: Candidates, servers: Sequence[int]) -> list[Target]:
    """Return the latency targets that apply to the given servers with load, sorted by name."""
    system, arrays = candidates.system, candidates.arrays
    planned = [system.servers[arrays.server_names[s]] for s in servers if arrays.servers.load_rps[s] > 0]
    loaded = [member for server in planned for member in members_of(server)]
    targets: list[Target] = []
    for key in sorted({system.target_key(server) for server in loaded}):
        target = system.targets.get(key)
        if target is not None:
            targets += [(*key, metric) for metric, field in LATENCIES.items() if getattr(target, field)]
    return targets


def target_ms(candidates: Candidates, target: Target) -> float:
    """Return the current value of a target [ms]."""
    service_class, model, metric = target
    return float(getattr(candidates.system.targets[service_class, model], f"{metric}_ms"))


def relaxed(candidates: Candidates, values_ms: Mapping[Target, float]) -> Candidates:
    """Return the candidates of a system with other values of some targets.

    Values are limited to the maximum that documents allow; 0 removes a target.
    """
    system, changed = candidates.system, {target[:2] for target in values_ms}
    for service_class, model in sorted(changed):
        changes: dict[str, float | None] = {
            f"{metric}_ms": min(value, MAX_QUANTITY)
            for (*owner, metric), value in values_ms.items()
            if owner == [service_class, model]
        }
        if not system.targets[service_class, model].model_copy(update=changes).request_limits():
            changes["goodput_share"] = None  # a fraction of requests without a latency limit is no target
        system = system.with_target(service_class, model, **changes)
    servers = system.servers.values()
    affected = np.array(
        [any(system.target_key(member) in changed for member in members_of(server)) for server in servers],
        dtype=np.bool_,
    )
    return with_targets_of(candidates, system, affected)


def target_words(target: Target) -> str:
    """Return the name of a target as used in sentences."""
    service_class, model, metric = target
    return f"{service_class}/{model} {METRICS[metric].label}"


def target_questions(before: BasePlan, servers: Sequence[int]) -> dict[Target, Question]:
    """Return a what-if question for each latency target of some servers: the target relaxed by 10 %."""
    candidates = before.candidates
    return {
        target: Question(
            partial(relaxed, candidates, {target: _looser_ms(candidates, target)}),
            "better",
            carries_more=True,
        )
        for target in targets_of_servers(candidates, servers)
    }


def price_targets(before: BasePlan, answers: Mapping[Target, Answer]) -> tuple[TargetPrice, ...]:
    """Return the cost of each target, given the answers to the what-if questions about them."""
    return tuple(
        TargetPrice(
            service_class=target[0],
            model=target[1],
            metric=target[2],
            target_ms=target_ms(before.candidates, target),
            relaxed_ms=_looser_ms(before.candidates, target),
            effect=effect_of(before, answer),
        )
        for target, answer in answers.items()
    )


def _looser_ms(candidates: Candidates, target: Target) -> float:
    return min(float(f"{target_ms(candidates, target) * (1 + RELAXATION):.12g}"), MAX_QUANTITY)
