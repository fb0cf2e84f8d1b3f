"""The full iteration law: its terms against counting by hand, and what of it is refused where."""

import math
import re
from typing import Any

import numpy as np
import pytest
from builders import accelerator, document, server
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from optimizer import load_system
from optimizer.errors import SpecError
from optimizer.kinds.laws import laws_known
from optimizer.kinds.replicas import Replica, analyze_replicas
from optimizer.timing import PerfParms
from optimizer.timing.engine import IterationTimes
from optimizer.timing.iteration import FullIterationLaw, IterationLaw
from optimizer.timing.law import RequestShapes

TERMS = {
    "alpha": 5.0,
    "beta": 0.02,
    "gamma": 1e-4,
    "perSequence": 0.3,
    "promptAttention": 1e-6,
    "promptBase": 0.7,
    "weightRead": 4.0,
    "batchBase": 0.9,
    "perPrompt": 0.4,
    "expertRead": 12.0,
    "expertShare": 0.125,
}
SEEN = {"clientOffset": 7.0, "pipelineDepth": 0.8, "frontEndLag": 0.002, "pauseOffset": 8.0}
FURTHER = [*list(TERMS)[3:9], *SEEN]


def times(**changes: float) -> IterationTimes:
    values = [changes.get(name, 0.0) for name in TERMS]
    return IterationTimes(*(np.array([value]) for value in values))


def full_law(prompt: float, *, first: bool = False, **terms: float) -> FullIterationLaw:
    values = [terms.get(name, 0.0) for name in (*TERMS, *SEEN)]
    parameters = np.array([*([value] for value in values), [8192.0], [float(first)]])
    return FullIterationLaw.of_rows(parameters, RequestShapes(np.array([prompt]), np.array([10.0])))


def replica(**others: object) -> Replica:
    given = {"maxBatch": 8, "inTokens": 100, "outTokens": 20, **others}
    return Replica.model_validate(given)


@pytest.mark.parametrize(
    ("decodes", "tokens", "prompts", "attention"),
    [(1, 0, 0, 0), (0, 50, 1, 1250), (7, 0, 0, 0), (7, 300, 2, 20_000), (0, 1, 1, 0.5)],
)
def test_every_term_counts_what_it_says(
    decodes: float, tokens: float, prompts: float, attention: float
) -> None:
    kv_tokens = decodes * 200.0
    by_hand = (
        TERMS["alpha"]
        + math.sqrt(TERMS["weightRead"] ** 2 + (TERMS["beta"] * (decodes + tokens)) ** 2)
        - TERMS["weightRead"]
        + TERMS["perSequence"] * (decodes + prompts)
        + TERMS["gamma"] * kv_tokens
    )
    if tokens:
        by_hand += TERMS["promptAttention"] * attention + TERMS["promptBase"]
    by_hand += TERMS["perPrompt"] * prompts
    if decodes + prompts > 1:
        by_hand += TERMS["batchBase"]
    by_hand += TERMS["expertRead"] * (1 - (1 - TERMS["expertShare"]) ** (decodes + tokens))
    found = times(**TERMS).ms(float(decodes), kv_tokens, float(tokens), float(prompts), float(attention))
    assert found[0] == pytest.approx(by_hand, rel=1e-14)


@given(tokens=st.floats(0.5, 5000), read=st.floats(0, 20), experts=st.sampled_from([0.0, 3.0]))
def test_the_slope_of_the_compute_is_its_derivative(tokens: float, read: float, experts: float) -> None:
    law = times(alpha=5.0, beta=0.02, weightRead=read, expertRead=experts, expertShare=0.1 if experts else 0)
    step = 1e-4 * tokens
    rise = law.ms(tokens + step, 0.0) - law.ms(tokens - step, 0.0)
    slope = law.compute_slope_ms(np.array([tokens]))
    assert slope[0] == pytest.approx(rise[0] / (2 * step), rel=1e-4)
    if not read:
        tangent = law.standing_ms(np.array([tokens])) + slope * tokens
        assert tangent[0] == pytest.approx(law.ms(tokens, 0.0)[0], rel=1e-12)


# --- documents --------------------------------------------------------------------------------------------


def test_three_terms_select_the_reference_model() -> None:
    three = {name: TERMS[name] for name in ("alpha", "beta", "gamma")}
    assert laws_known(replica(perfParms=three)) == [IterationLaw]
    assert laws_known(replica(perfParms=three | {"weightRead": 0})) == [IterationLaw]


@pytest.mark.parametrize("term", FURTHER)
def test_any_further_term_asks_for_a_queue_model_that_knows_it(term: str) -> None:
    law = {"alpha": 5, "beta": 0.02, term: (TERMS | SEEN)[term]}
    with pytest.raises(
        ValidationError, match=r"'reference' does not support .* set queueModel to 'continuous'"
    ):
        replica(perfParms=law, queueModel="reference")
    assert laws_known(replica(perfParms=law)) == [FullIterationLaw]


def test_prefill_first_needs_the_continuous_model() -> None:
    profile = {
        "name": "m",
        "acc": "A",
        "perfParms": {"alpha": 1, "weightRead": 2},
        "scheduler": "prefill-first",
        "queueModel": "reference",
    }
    system = document([server("s", 0)], [accelerator("A")], models=[profile])
    with pytest.raises(
        SpecError,
        match=r"'reference' does not support the full iteration latency model "
        r"\(weightRead, scheduler: prefill-first\); set queueModel to 'continuous'",
    ):
        load_system(system)
    del profile["queueModel"]
    assert load_system(system).profiles["m", "A"].queue_model == "continuous"


def test_variability_asks_for_it_too() -> None:
    law = {"alpha": 5, "beta": 0.02}
    with pytest.raises(ValidationError, match="arrivalCV: 2 is not 1"):
        replica(perfParms=law, arrivalCV=2, queueModel="reference")
    assert replica(perfParms=law, arrivalCV=2).arrival_cv == 2


@pytest.mark.parametrize(
    ("terms", "fine"),
    [
        ({"alpha": 5, "beta": 0.02, "perSequence": -0.01}, True),
        ({"alpha": 5, "beta": 0.02, "perSequence": -0.03}, False),  # falls with every request
        ({"alpha": 0.1, "beta": 0.02, "weightRead": 4, "perSequence": -0.019}, False),  # dips below zero
        ({"alpha": 4, "beta": 0.02, "weightRead": 4, "perSequence": -0.019}, True),
    ],
)
def test_an_iteration_must_take_time_at_every_batch(terms: dict[str, float], *, fine: bool) -> None:
    batches = np.arange(1.0, 1e5)
    law = times(**terms)
    assert (law.ms(batches, 0.0) > 0).all() == fine
    if fine:
        assert PerfParms.model_validate(terms)
    else:
        with pytest.raises(ValidationError, match="makes an iteration take no time or less"):
            PerfParms.model_validate(terms)


@pytest.mark.parametrize("alpha", [0.1, 2.0, 10.0])
def test_the_stated_limit_of_negative_terms_is_the_limit(alpha: float) -> None:
    terms = {"alpha": alpha, "beta": 0.02, "weightRead": 4.0}
    with pytest.raises(ValidationError) as error:
        PerfParms.model_validate({**terms, "perSequence": -0.03})
    found = re.search(r"it must be more than (-[0-9.]+)", str(error.value))
    assert found is not None
    limit = float(found[1])
    assert PerfParms.model_validate({**terms, "perSequence": 0.999 * limit})
    with pytest.raises(ValidationError, match="no time or less"):
        PerfParms.model_validate({**terms, "perSequence": 1.001 * limit})


def test_a_negative_prompt_base_needs_prompts_that_outweigh_it() -> None:
    terms: dict[str, Any] = {"alpha": 5.0, "beta": 0.02, "promptBase": -8.0}
    assert not full_law(100, first=True, **terms).has_work()[0]
    assert full_law(200, first=True, **terms).has_work()[0]
    assert not full_law(200, **terms).has_work()[0]  # a chunk may be a single token


# --- through a queue --------------------------------------------------------------------------------------


def test_percentiles_are_reported_if_the_model_has_them() -> None:
    law = {"alpha": 5, "beta": 0.02, "gamma": 1e-5}
    plain, full = (
        analyze_replicas([replica(perfParms=law, **more)], [5.0])[0]
        for more in ({"queueModel": "reference"}, {})
    )
    assert plain.ttft_percentiles is None
    assert full.ttft_percentiles is not None
    assert full.e2e_percentiles is not None
    values = list(dict(full.ttft_percentiles).values())
    assert values == sorted(values)
    assert full.ttft_percentiles.p50_ms < full.e2e_percentiles.p50_ms
    assert full.itl_ms == pytest.approx(plain.itl_ms, rel=0.05)
