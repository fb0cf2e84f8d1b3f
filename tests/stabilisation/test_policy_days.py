"""The policy of the loop on simulated days of a service, beside the rule that it replaces."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

from policy_days import OTHERS, is_as_good, outcomes, with_headroom
from service_days import KINDS

SEEDS = (1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["live step x6, 30 s", "loop_steps x6, 30 s", "step x2, 30 s"])
def test_the_policy_is_as_good_as_the_former_loop(name: str) -> None:
    """At most its replica-hours (+ 1 %), with at most its slow requests (+ 0.05 points)."""
    mine, former = (
        outcomes(KINDS[name], SEEDS, made) for made in (with_headroom(0.0), OTHERS["former loop"])
    )
    assert is_as_good(mine, former), (mine, former)


@pytest.mark.slow
def test_the_policy_beats_a_queue_depth_rule_after_a_step() -> None:
    kind = KINDS["live step x6, 30 s"]
    hours, slow, changes = outcomes(kind, SEEDS, with_headroom(0.0))
    others = {name: outcomes(kind, SEEDS, made) for name, made in OTHERS.items()}
    assert hours < 0.8 * others["queue-depth rule"][0]
    assert slow < 0.2
    assert changes <= 8
