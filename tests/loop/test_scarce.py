"""Cycles of the loop when cards are too few for all servers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from two_sizes import two_sizes

from optimizer import load_system
from optimizer.schema.files import parse_part
from optimizer.spec.system import System, join_parts
from rest_server.loop.config import LoopConfig
from rest_server.loop.deciding import CycleInputs, ExistingReplicas, LoopState, decide
from rest_server.loop.window import Counts, Window

CONFIG = LoopConfig.model_validate(
    {"system": "fleet", "source": {"kind": "scrape", "url": "http://x"}, "forecast": "none"}
)
LIMITS = np.array([16.0, 64.0, np.inf])


def fleet(priority: int) -> System:
    """Return sixteen cards, which four replicas of think take."""
    return join_parts([parse_part(two_sizes(16, priority))])


def window(rate_rps: float) -> Window:
    count = 60.0 * rate_rps
    counts = Counts(
        span_s=60.0, first_tokens=count, completed=count, prompts=count, prompt_tokens=40 * count,
        answers=count, answer_tokens=30 * count, tokens=29 * count, itl_s=0.87 * count, ttft_s=0.1 * count,
        prompt_buckets={64.0: count}, answer_buckets={64.0: count},
    )  # fmt: skip
    return Window(counts, waiting=0.0, running=1.0, reporting=1)


@pytest.mark.slow
@pytest.mark.parametrize("priority", [1, 2])
def test_scarce_cards_never_take_the_last_replica(priority: int) -> None:
    """The load of think rises until the cards of all its replicas leave none for talk."""
    system, state = fleet(priority), LoopState()
    there = {"talk": {"GPU": ExistingReplicas(1, 1)}, "think": {"4xGPU": ExistingReplicas(1, 1)}}
    for cycle in range(12):
        readings = {"talk": window(4.0), "think": window(4.0 + 1.5 * cycle)}
        outcome = decide(system, CONFIG, state, CycleInputs(60.0 * cycle, readings, there))
        state = outcome.state
        for item in outcome.workloads:
            there[item.server] = {item.accelerator: ExistingReplicas(item.replicas, item.replicas)}
        talk, think = there["talk"]["GPU"].desired, there["think"]["4xGPU"].desired
        assert talk >= 1
        assert think >= 1
        assert talk + 4 * think <= 16
    assert think == 3


@pytest.mark.parametrize("first", ["high", "low"])
def test_the_higher_priority_gets_the_last_card_for_its_backlog(first: str) -> None:
    """Two servers with the same queue and one free card; the names do not decide."""
    names = {"high": "a" if first == "high" else "b", "low": "b" if first == "high" else "a"}
    document: dict[str, Any] = {
        "accelerators": [{"name": "GPU", "type": "GPU", "cost": 50, "memSize": 80}],
        "count": [{"type": "GPU", "count": 7}],
        "models": [
            {"name": "chat", "acc": "GPU", "queueModel": "continuous", "maxBatchSize": 4, "kvCapacity": 40000,
             "perfParms": {"alpha": 20.0, "beta": 1.0, "gamma": 0.0001}}
        ],
        "serviceClasses": [
            {"name": name, "priority": 1 + place, "modelTargets": [{"model": "chat", "slo-itl": 60}]}
            for place, name in enumerate(names)
        ],
        "servers": [
            {"name": name, "class": level, "model": "chat",
             "currentAlloc": {"load": {"arrivalRate": 600, "avgInTokens": 40, "avgOutTokens": 30}}}
            for level, name in sorted(names.items(), key=lambda item: item[1])
        ],
    }  # fmt: skip
    config = CONFIG.model_copy(update={"queue": "common"})
    queued = replace(window(10.0), waiting=1500.0)
    there = {name: {"GPU": ExistingReplicas(3, 3)} for name in names.values()}
    inputs = CycleInputs(1000.0, dict.fromkeys(names.values(), queued), there)
    outcome = decide(load_system(document), config, LoopState(), inputs)
    replicas = {item.server: item.replicas for item in outcome.workloads}
    assert replicas == {names["high"]: 4, names["low"]: 3}
    assert outcome.planned[names["high"]].for_backlog > outcome.planned[names["low"]].for_backlog
