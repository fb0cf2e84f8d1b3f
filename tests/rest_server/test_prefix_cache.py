"""Shared prefixes of prompts: the cache of an emulated replica, what the load client sends, and both."""

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from commands import Run
from emulated import FLEET, emulated
from slow_cases import seeds

from optimizer.simulation.requests import Requests
from rest_server.emulator.driver import ServerLoad, contents_of
from rest_server.emulator.prefix_cache import BLOCK_TOKENS, PrefixCache

LOAD = "arrivalRate: 0.1/s, avgInTokens: 40, avgOutTokens: 20"
DOCUMENT = FLEET.replace("minNumReplicas: 2, ", "").replace(
    LOAD, "arrivalRate: 6/s, avgInTokens: 400, avgOutTokens: 5, prefixTokens: 320, prefixHitRate: 0.75", 1
)
"""A server whose prompts share 320 of 400 tokens in three of four requests."""


def counted(prompt: list[int], earlier: list[list[int]]) -> int:
    """Return the tokens of the longest start of whole blocks that an earlier prompt has, without the last."""
    for end in range((len(prompt) - 1) // BLOCK_TOKENS * BLOCK_TOKENS, 0, -BLOCK_TOKENS):
        if any(other[:end] == prompt[:end] for other in earlier):
            return end
    return 0


@pytest.mark.parametrize("seed", seeds(2, 48))
def test_cached_tokens_are_those_of_earlier_prompts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cache, earlier = PrefixCache(10**9), list[list[int]]()
    for _ in range(60):
        prompt = rng.integers(0, 2, rng.integers(1, 80)).tolist()
        if earlier and rng.random() < 0.7:
            other = earlier[rng.integers(len(earlier))]
            prompt = other[: rng.integers(len(other) + 1)] + prompt
        assert cache.take(prompt) == counted(prompt, earlier)
        earlier.append(prompt)


def test_the_block_that_was_not_used_for_longest_is_replaced() -> None:
    cache = PrefixCache(4 * BLOCK_TOKENS)
    one, two, long = ([k] * (2 * BLOCK_TOKENS + 1) for k in (1, 2, 3))
    assert [cache.take(prompt) for prompt in (one, two, one)] == [0, 0, 2 * BLOCK_TOKENS]
    assert cache.take(long) == 0  # in the place of the second
    assert cache.take(one) == 2 * BLOCK_TOKENS
    assert cache.take(two) == 0


def test_sent_prompts_share_only_their_prefixes() -> None:
    lengths, cached = np.array([40, 40, 40, 3, 1, 0]), np.array([32, 32, 0, 32, 0, 0])
    requests = Requests(lengths, np.full(6, 2), np.arange(6.0), shape=np.array([0, 1, 0, 0, 0, 0]))
    load = ServerLoad("s", "m", streams=True, rate_rps=1.0, requests=requests)
    plain = [json.loads(content)["prompt"] for content in contents_of(load)]
    assert [len(prompt) for prompt in plain] == [40, 40, 40, 3, 1, 1]
    assert len({tuple(prompt[:2]) for prompt in plain}) == 6
    shared = Requests(lengths, np.full(6, 2), np.arange(6.0), shape=requests.shape, cached_tokens=cached)
    load = ServerLoad("s", "m", streams=True, rate_rps=1.0, requests=shared)
    sent = [json.loads(content)["prompt"] for content in contents_of(load)]
    assert [len(prompt) for prompt in sent] == [40, 40, 40, 3, 1, 1]
    assert sent[0][:32] == [sent[0][0]] * 32
    assert sent[1][:32] == [sent[1][0]] * 32
    assert len({prompt[0] for prompt in sent}) == 5  # the fourth has the head of the first
    assert len({tuple(prompt) for prompt in sent}) == 6
    again = [json.loads(content)["prompt"] for content in contents_of(load)]
    assert again[2] != sent[2]


@pytest.mark.slow
def test_a_driven_fleet_finds_the_prefixes(tmp_path: Path, run: Run) -> None:
    document = tmp_path / "fleet.yaml"
    document.write_text(DOCUMENT)
    with emulated(document) as fleet:
        flags = "--server", "talk", "--requests", "200", "--json"
        answer = run("drive", document, fleet.url, *flags)
        found = [fleet.ask("/metrics", url=one["url"]).text for one in fleet.replicas_of("talk")]
    assert answer.status == 0, answer.err
    count = Counter[str]()
    for metrics in found:
        for name, value in re.findall(r"vllm:prefix_cache_(\w+)_total{.*} (\S+)", metrics):
            count[name] += int(value)
    assert count["queries"] == pytest.approx(200 * 400, rel=0.1)
    assert count["hits"] / count["queries"] == pytest.approx(0.75 * 320 / 400, abs=0.1)
    ttft = answer.json["pools"][0]["ttft"]
    assert ttft["mean"]["value"] == pytest.approx(ttft["predictedMean"], rel=0.5)
