"""Cycles of the loop when cards are too few for all servers."""

import numpy as np
import pytest
from two_sizes import two_sizes

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
