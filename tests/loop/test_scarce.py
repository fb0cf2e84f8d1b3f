"""Cycles of the loop when cards are too few for all servers."""

import numpy as np
import pytest

from optimizer.spec.files import parse_part
from optimizer.spec.system import System, join_parts
from rest_server.loop.config import LoopConfig
from rest_server.loop.deciding import CycleInputs, ExistingReplicas, LoopState, decide
from rest_server.loop.window import Counts, Window

FLEET = """
accelerators:
  - {name: GPU, type: GPU, cost: 50, memSize: 80}
  - {name: 4xGPU, type: GPU, multiplicity: 4, cost: 200, memSize: 320}
count: [{type: GPU, count: 16}]
models:
  - {name: chat, acc: GPU, queueModel: continuous, maxBatchSize: 4, kvCapacity: 40000,
     perfParms: {alpha: 20.0, beta: 1.0, gamma: 0.0001}}
  - {name: large, acc: 4xGPU, queueModel: continuous, maxBatchSize: 4, kvCapacity: 40000,
     perfParms: {alpha: 20.0, beta: 1.0, gamma: 0.0001}}
serviceClasses:
  - {name: first, priority: 1, modelTargets: [{model: large, slo-itl: 60, slo-ttft: 1500}]}
  - {name: second, priority: PRIORITY, modelTargets: [{model: chat, slo-itl: 60, slo-ttft: 1500}]}
servers:
  - {name: talk, class: second, model: chat, maxQueueSize: 40,
     currentAlloc: {load: {arrivalRate: 2/s, avgInTokens: 40, avgOutTokens: 30}}}
  - {name: think, class: first, model: large, maxQueueSize: 40,
     currentAlloc: {load: {arrivalRate: 2/s, avgInTokens: 40, avgOutTokens: 30}}}
"""
"""Sixteen cards: four replicas of think take them all. Figures made for these tests."""
CONFIG = LoopConfig.model_validate(
    {"system": "fleet", "source": {"kind": "scrape", "url": "http://x"}, "forecast": "none"}
)
LIMITS = np.array([16.0, 64.0, np.inf])


def fleet(priority: int) -> System:
    return join_parts([parse_part(FLEET.replace("PRIORITY", str(priority)))])


def window(rate_rps: float) -> Window:
    count = 60.0 * rate_rps
    counts = Counts(
        span_s=60.0, first_tokens=count, completed=count, prompts=count, prompt_tokens=40 * count,
        answers=count, answer_tokens=30 * count, tokens=29 * count, itl_s=0.87 * count, ttft_s=0.1 * count,
        prompt_buckets={64.0: count}, answer_buckets={64.0: count},
    )  # fmt: skip
    return Window(counts, waiting=0.0, running=1.0, reporting=1)


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
