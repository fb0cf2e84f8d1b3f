"""Shares of request shapes and hit rates of prefixes, as the loop estimates them from metrics."""

import numpy as np
import pytest
from slow_cases import seeds

from optimizer.kinds.fields import Load
from optimizer.schema.files import parse_part
from optimizer.simulation.lengths import Lengths
from optimizer.spec.system import System, join_parts
from rest_server.emulator.metrics import TOKENS
from rest_server.loop.config import LoopConfig
from rest_server.loop.loads import LoadMemory, with_measured_loads, with_reading
from rest_server.loop.shapes import measured_shares, with_measured_shapes
from rest_server.loop.window import Buckets, Counts, Window

CONFIG = LoopConfig.model_validate(
    {"system": "fleet", "source": {"kind": "scrape", "url": "http://x"}, "forecast": "none"}
)
CHAT = {"name": "chat", "share": 0.9, "avgInTokens": 500, "avgOutTokens": 200, "inTokensCV": 0.5}
DOCS = {"name": "docs", "share": 0.1, "avgInTokens": 12000, "avgOutTokens": 300}
HEAD = {"prefixTokens": 7000, "prefixHitRate": 0.6}


def load_of(**values: object) -> Load:
    return Load.model_validate({"arrivalRate": "10/s"} | values)


def buckets_of(prompts: np.ndarray) -> Buckets:
    counts, _ = np.histogram(prompts, [0.0, *(bound + 0.5 for bound in TOKENS), 1e9])
    return dict(zip([*TOKENS, np.inf], counts.astype(float).tolist(), strict=True))


@pytest.mark.parametrize("seed", seeds(2, 38))
def test_shares_of_drawn_prompts_are_found(seed: int) -> None:
    rng = np.random.default_rng(seed)
    means = 10 ** np.cumsum([rng.uniform(1.7, 2.3), *rng.uniform(0.7, 1.2, rng.integers(1, 3))])
    shares = rng.dirichlet(np.full(len(means), 2.0))
    cvs = rng.choice([0.0, 0.5, 1.0], len(means))
    shapes = [
        {"name": f"s{k}", "share": 1 / len(means), "avgInTokens": mean, "avgOutTokens": 9, "inTokensCV": cv}
        for k, (mean, cv) in enumerate(zip(means, cvs, strict=True))
    ]
    drawn = [
        Lengths.with_cv(mean, cv).draw(round(4000 * share), rng)
        for mean, cv, share in zip(means, cvs, shares, strict=True)
    ]
    found = measured_shares(buckets_of(np.concatenate(drawn)), load_of(shapes=shapes).shapes)
    assert found is not None
    assert sum(found) == pytest.approx(1)
    assert found == pytest.approx(shares.tolist(), abs=0.06)


def test_few_prompts_and_single_shapes_give_no_shares() -> None:
    shapes = load_of(shapes=[CHAT, DOCS]).shapes
    assert measured_shares(buckets_of(np.full(20, 500)), shapes) is None
    assert measured_shares(buckets_of(np.full(200, 500)), shapes[:1]) is None
    assert measured_shares(buckets_of(np.full(200, 500)), shapes) == pytest.approx((1, 0), abs=1e-6)


def test_a_small_change_keeps_the_stated_shares() -> None:
    load = load_of(shapes=[CHAT, DOCS])
    assert with_measured_shapes(load, (0.899, 0.101), None) == load
    changed = with_measured_shapes(load, (0.8, 0.2), None)
    assert [shape.share for shape in changed.shapes] == [0.8, 0.2]
    assert changed.in_tokens == pytest.approx(0.8 * 500 + 0.2 * 12000)
    assert with_measured_shapes(load, (1.0,), None) == load  # of another document


@pytest.mark.parametrize("rate", [0.1, 0.59, 0.9, 1.0])
def test_hit_rates_follow_from_the_tokens_that_are_found(rate: float) -> None:
    one = load_of(avgInTokens=8000, avgOutTokens=200, **HEAD)
    found = with_measured_shapes(one, None, rate * 7000 / 8000)
    assert found.prefix_hit_rate == pytest.approx(0.6 if rate == 0.59 else rate)
    two = load_of(shapes=[CHAT, DOCS | HEAD])
    tokens = 0.9 * 500 + 0.1 * 12000
    found = with_measured_shapes(two, None, rate * 0.1 * 7000 / tokens)
    assert [shape.prefix_hit_rate for shape in found.shapes] == [
        0,
        pytest.approx(0.6 if rate == 0.59 else rate),
    ]
    assert with_measured_shapes(load_of(avgInTokens=8000, avgOutTokens=200), None, 0.5).prefix_hit_rate == 0


def fleet(load: str) -> System:
    return join_parts(
        [
            parse_part(f"""
accelerators: [{{name: GPU, type: GPU, cost: 100}}]
count: [{{type: GPU, count: 8}}]
models:
  - {{name: chat, acc: GPU, queueModel: continuous, maxBatchSize: 64, kvCapacity: 400000,
     perfParms: {{alpha: 10.0, beta: 0.02, gamma: 0.00001}}}}
serviceClasses: [{{name: c, modelTargets: [{{model: chat, slo-itl: 90, slo-ttft: 4000}}]}}]
servers: [{{name: talk, class: c, model: chat, currentAlloc: {{load: {{arrivalRate: 1/s, {load}}}}}}}]
""")
        ]
    )


def test_a_cycle_plans_with_measured_shares_and_hits() -> None:
    """Counts of prompts of which 30 % are long, and of a cache that finds half of the prefixes."""
    shapes = (
        "shapes: [{name: chat, share: 0.9, avgInTokens: 500, avgOutTokens: 200}, {name: docs, share: 0.1, "
        "avgInTokens: 12000, avgOutTokens: 300, prefixTokens: 7000, prefixHitRate: 0.9}]"
    )
    system = fleet(shapes)
    prompts = np.repeat([500, 12000], [700, 300])
    total = float(prompts.sum())
    counts = Counts(
        span_s=60.0, first_tokens=120.0, completed=1000.0, prompts=1000.0, prompt_tokens=total,
        answers=1000.0, answer_tokens=230_000.0, prefix_queries=total, prefix_hits=300 * 0.5 * 7000,
        prompt_buckets=buckets_of(prompts),
    )  # fmt: skip
    reading = Window(counts, waiting=0.0, running=1.0, reporting=1)
    load = system.servers["talk"].current.load
    memory, hold = with_reading(reading, LoadMemory(), CONFIG, 1000.0, load)
    assert hold is None
    assert memory.load is not None
    planned = with_measured_loads(system, {"talk": memory.load}, variation=True).servers["talk"].current.load
    assert [shape.share for shape in planned.shapes] == pytest.approx([0.7, 0.3], abs=0.01)
    assert [shape.prefix_hit_rate for shape in planned.shapes] == [0, pytest.approx(0.5, abs=0.01)]
    assert planned.arrival_rate_rpm == pytest.approx(120)


def test_a_prompt_stays_longer_than_its_prefix() -> None:
    system = fleet("avgInTokens: 8000, avgOutTokens: 300, prefixTokens: 7000, prefixHitRate: 0.9")
    counts = Counts(span_s=60.0, first_tokens=120.0, prompts=120.0, prompt_tokens=120 * 900.0)
    reading = Window(counts, waiting=0.0, running=1.0, reporting=1)
    load = system.servers["talk"].current.load
    memory, _ = with_reading(reading, LoadMemory(), CONFIG, 1000.0, load)
    assert memory.load is not None
    planned = with_measured_loads(system, {"talk": memory.load}, variation=True).servers["talk"].current.load
    assert planned.in_tokens == 7001
