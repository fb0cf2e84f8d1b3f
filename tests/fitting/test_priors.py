"""The prior without an estimate covers the models of the catalogue on all accelerators that hold them."""

from dataclasses import replace

import numpy as np
import pytest

from optimizer.errors import SpecError
from optimizer.fitting.options import MeasuredSetup
from optimizer.fitting.priors import (
    ALPHA,
    BETA,
    CATALOGUE,
    EXPERTS,
    GAMMA,
    IDLE,
    SHARE,
    iterations_of,
    prior_of,
)  # fmt: skip
from optimizer.fitting.runs import Arrivals, BenchmarkRun, RunMeasurements, TokenCounts
from optimizer.profiles.capacity import split_problem
from optimizer.profiles.catalogue import load_catalogue
from optimizer.profiles.deployment import Deployment
from optimizer.profiles.iterations import Iterations
from optimizer.profiles.memory import Memory

RUN = BenchmarkRun(
    TokenCounts.of(1000, 0), TokenCounts.of(200, 0), Arrivals.CLOSED, requests=9, max_in_flight=1,
    measured=RunMeasurements(50.0, 9.0),
)  # fmt: skip


def held(model: str, accelerator: str) -> Iterations | None:
    """Return a model on the smallest number of devices that holds eight requests."""
    catalogue = load_catalogue()
    for tp in (1, 2, 4, 8):
        try:
            facts = catalogue.model(model)
            found = Iterations(facts, catalogue.accelerator(accelerator), Deployment(tp=tp))
            if split_problem(facts, tp) is None and Memory(found).max_batch >= 8 and found.token_ms > 0:
                return found
        except SpecError:
            return None
    return None


@pytest.mark.slow
def test_the_prior_covers_the_catalogue() -> None:
    catalogue = load_catalogue()
    pairs = [held(model, card) for model in catalogue.models for card in catalogue.accelerators]
    known = [one for one in pairs if one is not None and one.cache_ms(1000) > 0]
    assert len(known) > 1000
    alone = np.array([one.fixed_ms + one.weights_ms + one.experts_ms * one.touched(1) for one in known])
    ratios = {
        ALPHA: alone,
        BETA: [one.token_ms for one in known] / alone,
        GAMMA: [one.cache_ms(1000) for one in known] / alone,
    }
    for name, values in ratios.items():
        logs, term = np.log(values), CATALOGUE[name]
        assert abs(logs.mean() - np.log(term.centre)) < 0.3, (name, np.exp(logs.mean()))
        assert 0.8 * logs.std() < term.spread < 1.6 * logs.std(), (name, logs.std())
        inside = np.abs(logs - np.log(term.centre)) < 2 * term.spread
        assert inside.mean() > 0.93, name


def test_the_prior_of_a_known_pair_is_its_estimate() -> None:
    key = MeasuredSetup("gpt-oss-20b", "H200")
    prior = prior_of("gpt-oss-20b", key, 1, [RUN], (*CATALOGUE, EXPERTS, SHARE))
    known = iterations_of("gpt-oss-20b", key, 1)
    assert known is not None
    law = prior.law(np.zeros(len(prior.names)))
    assert law.base_ms == pytest.approx(known.fixed_ms + known.weights_ms)
    assert law.compute_per_token_ms == pytest.approx(known.token_ms)
    assert (law.expert_read_ms, law.expert_share) == pytest.approx((known.experts_ms, 4 / 32))
    whole = prior.law(np.zeros(len(prior.names)))
    attention_ms = whole.prompt_attention_ms * 1000**2 / 2
    assert attention_ms == pytest.approx(1000 * known.prompt_attention_ms(500))
    other = prior_of("m", MeasuredSetup("m", "H200"), 1, [RUN], (*CATALOGUE, EXPERTS))
    assert EXPERTS not in other.names


def test_an_idle_engine_is_slower_only_if_lone_requests_are() -> None:
    for others_ms, slower in ((49.0, False), (40.0, True)):
        beside = replace(RUN, max_in_flight=8, measured=RunMeasurements(others_ms, 12.0))
        prior = prior_of("m", MeasuredSetup(), 1, [RUN, beside], tuple(CATALOGUE))
        assert (IDLE in prior.names) is slower
    longer = replace(beside, prompts=TokenCounts.of(2000, 0))
    assert IDLE not in prior_of("m", MeasuredSetup(), 1, [RUN, longer], tuple(CATALOGUE)).names


def test_points_and_values_of_a_prior_are_inverse() -> None:
    prior = prior_of("m", MeasuredSetup(), 1, [RUN], tuple(CATALOGUE))
    given = {ALPHA: 7.0, BETA: 0.03, GAMMA: 1e-5, "client_offset_ms": 4.0, "weight_read_ms": 3.0}
    law = prior.law(prior.point(given))._asdict()
    assert {name: law[name] for name in given} == pytest.approx(given)
    at_zero = prior.law(np.maximum(prior.lowest, -1))
    assert (at_zero.client_offset_ms, at_zero.weight_read_ms) == (0, 0)
    assert at_zero.base_ms > 0
