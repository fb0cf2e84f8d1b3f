"""Workloads of every kind at random: how a model runs on each accelerator, its targets, servers and loads."""

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from builders import Json

CARDS = (
    # name, type, cards of the slice, memory [GB], bandwidth [GB/s], cost [cents/h], speed
    ("L40S", "L40S", 1, 48, 864, 32.0, 1.0),
    ("A100", "A100", 1, 80, 2000, 40.0, 1.7),
    ("4xA100", "A100", 4, 320, 8000, 160.0, 5.5),
    ("H100", "H100", 1, 80, 3350, 75.0, 2.6),
    ("2xH100", "H100", 2, 160, 6700, 150.0, 4.6),
)
ESTIMATED_MODELS = ("llama-3.1-8b", "qwen2.5-14b", "mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-20b")
"""Names of the catalogue, of dense models and of mixtures of experts."""


class Workload(NamedTuple):
    """A model and what its servers have in common; all but the names."""

    profile: Callable[[float], Json]
    """The profile on an accelerator of a speed."""
    target: Json
    """Targets of the highest priority."""
    server: Callable[[], Json]
    """Fields of a server, its load under ``load``."""
    model: str = ""
    """The name that the model must have, if any."""


Kind = Callable[[random.Random], Workload]


def _tokens(rng: random.Random, **more: float) -> Callable[[], Json]:
    def server() -> Json:
        load = {
            "arrivalRate": round(rng.uniform(20, 900), 1),
            "avgInTokens": rng.choice([64, 256, 512, 1024, 4096]),
            "avgOutTokens": rng.choice([32, 128, 256, 512]),
        }
        body: Json = {"load": load | {name: round(rng.uniform(0.3, high), 2) for name, high in more.items()}}
        if rng.random() < 0.2:
            body["maxBatchSize"] = rng.choice([4, 16, 48])
        if rng.random() < 0.2:
            body["maxQueueSize"] = rng.choice([0, 20, 100])
        return body

    return server


def _token_targets(rng: random.Random, slack: float = 1.0) -> Json:
    target: Json = {
        "slo-itl": round(rng.uniform(25, 60) * slack, 1),
        "slo-ttft": round(rng.uniform(400, 1500) * slack, 1),
    }
    further = rng.random()
    if further < 0.15:
        target["slo-tps"] = rng.choice([200, 800, 2000])
    elif further < 0.3:
        target = {"slo-e2e": round(rng.uniform(4000, 30000) * slack, 1)}
    elif further < 0.4:
        target = {"slo-user-tps": rng.choice([15, 25, 35]), "slo-ttft": target["slo-ttft"]}
    elif further < 0.5:
        target["maxLoss"] = rng.choice(["none", 0.001, 0.05])
    return target


def _linear_profile(rng: random.Random, batches: Sequence[int], **more: object) -> Callable[[float], Json]:
    alpha, gamma, batch = rng.uniform(8, 30), rng.uniform(4, 20), rng.choice(batches)

    def profile(speed: float) -> Json:
        return {
            "maxBatchSize": batch,
            "atTokens": rng.choice([0, 256]),
            "decodeParms": {"alpha": round(alpha / speed, 4), "beta": round(alpha / speed / 40, 5)},
            "prefillParms": {"gamma": round(gamma / speed, 4), "delta": round(gamma / speed / 2000, 7)},
        } | more

    return profile


def linear(rng: random.Random) -> Workload:
    """Tokens under the linear law."""
    return Workload(_linear_profile(rng, (8, 16, 32, 64)), _token_targets(rng), _tokens(rng))


def static(rng: random.Random) -> Workload:
    """Static batches under the linear law, padded or not; lengths must say how much they vary."""
    profile = _linear_profile(rng, (2, 4, 8), batching=rng.choice(["static", "padded"]))
    tokens = _tokens(rng, outTokensCV=1.2)

    def server() -> Json:
        return tokens() | {"maxBatchSize": 0, "maxQueueSize": rng.choice([8, 30])}  # sized in milliseconds

    return Workload(profile, _token_targets(rng, 4.0), server)


def _iteration_profile(rng: random.Random, terms: Json, **more: object) -> Callable[[float], Json]:
    alpha, batch = rng.uniform(6, 20), rng.choice([16, 32, 64, 128])

    def profile(speed: float) -> Json:
        law = {"alpha": alpha, "beta": alpha / 150, "gamma": alpha / 40000} | terms
        timed = {name: value if name in _NO_TIME else round(value / speed, 7) for name, value in law.items()}
        return {"maxBatchSize": batch, "perfParms": timed} | more

    return profile


_NO_TIME = ("expertShare", "pipelineDepth", "frontEndLag")


def iteration(rng: random.Random) -> Workload:
    """Tokens under the iteration law with the reference's queue, which knows means."""
    return Workload(_iteration_profile(rng, {}, queueModel="reference"), _token_targets(rng), _tokens(rng))


def continuous(rng: random.Random) -> Workload:
    """Continuous batching: percentiles, goodput, variability, schedulers, the KV cache."""
    more: Json = {}
    if rng.random() < 0.25:
        more["scheduler"] = "prefill-first"
    if rng.random() < 0.4:
        more["kvCapacity"] = rng.choice([60_000, 200_000, 400_000])
    if rng.random() < 0.3:
        more["maxNumTokens"] = rng.choice([2048, 16384])
    return Workload(
        _iteration_profile(rng, {}, **more),
        _percentile_targets(rng),
        _tokens(rng, arrivalCV=1.6, inTokensCV=1.2, outTokensCV=1.2),
    )


def _percentile_targets(rng: random.Random) -> Json:
    target = _token_targets(rng, 1.6)
    choice = rng.random()
    if choice < 0.45 and "slo-tps" not in target:
        target["percentile"] = rng.choice([50, 90, 95, 99])
    elif choice < 0.65 and "slo-tps" not in target:
        target["goodputShare"] = rng.choice([0.8, 0.95])
    elif choice < 0.85:
        target["latency"] = [{"ms": 20000, "percentile": 95}, {"ms": 30000, "percentile": 99}, {"ms": 12000}]
    return target


def further_terms(rng: random.Random) -> Workload:
    """All further terms of the iteration law, and what clients see beside it."""
    terms: Json = {
        "perSequence": 0.02, "promptAttention": 1e-6, "promptBase": 1.5, "weightRead": 5.0, "batchBase": 0.4,
        "perPrompt": 0.3, "clientOffset": 4.0, "pipelineDepth": 0.5, "frontEndLag": 0.01, "pauseOffset": 2.0,
    }  # fmt: skip
    chosen = {name: terms[name] for name in sorted(rng.sample(sorted(terms), rng.randint(3, len(terms))))}
    return Workload(_iteration_profile(rng, chosen), _percentile_targets(rng), _tokens(rng, arrivalCV=1.3))


def experts(rng: random.Random) -> Workload:
    """A mixture of experts, with either queue model."""
    terms = {"expertRead": round(rng.uniform(4, 15), 3), "expertShare": rng.choice([0.0625, 0.25])}
    model = rng.choice(["reference", "continuous"])
    return Workload(_iteration_profile(rng, terms, queueModel=model), _token_targets(rng), _tokens(rng))


def estimated(rng: random.Random) -> Workload:
    """Token times estimated from names."""
    parms: object = rng.choice(
        ["estimate", {"estimate": {"weights": "fp8", "cache": "fp8"}}, {"estimate": {"maxRequests": 64}}]
    )
    batch = {} if rng.random() < 0.7 else {"maxBatchSize": 32}
    return Workload(
        lambda _: {"perfParms": parms} | batch,
        _token_targets(rng, 2.0),
        _tokens(rng),
        rng.choice(ESTIMATED_MODELS),
    )


def batch_server(rng: random.Random) -> Workload:
    """Requests without tokens that are answered together: triggers, windows, limits, stages, jobs."""
    base, slope, size = rng.uniform(5, 120), rng.choice([0.0, 0.5, 2.0]), rng.choice([2, 4, 8, 12])

    def profile(speed: float) -> Json:
        return {
            "maxBatchSize": size,
            "batchParms": {"base": round(base / speed, 3), "slope": round(slope / speed, 4)},
        }

    full = base + slope * size
    limits = [{"ms": round(3 * full + 60, 1)}, {"ms": round(8 * full + 150, 1), "percentile": 99}]
    target: Json = {"latency": limits[: rng.randint(1, 2)]}
    if rng.random() < 0.3:
        target = {"slo-e2e": round(5 * full + 100, 1), "percentile": rng.choice([90, 95])}
    if rng.random() < 0.4:
        target["maxRejected"] = rng.choice([0.001, 0.02])
    rate = size / full * 60_000
    return Workload(profile, target, lambda: _batch_fields(rng, full, size, rate))


def _batch_fields(rng: random.Random, full_ms: float, size: int, rate: float) -> Json:
    """Return the fields of a batch server whose slowest replica answers at most `rate` requests/min."""
    body: Json = {"load": {"arrivalRate": round(rate * rng.uniform(0.1, 6), 1)}}
    if rng.random() < 0.3:
        body["stages"] = [
            {"name": "read", "where": "before", "time": round(full_ms / 8, 2), "cv": 0.5, "workers": 2},
            {"name": "write", "where": "after", "time": round(full_ms / 9, 2), "workers": 3},
        ][: rng.randint(1, 2)]
        if rng.random() < 0.5:
            return body | {"jobs": rng.choice([size, 3 * size])}
    staged = "stages" in body
    triggers = ["oldest", "oldest", "collect", "gap", "interval"]
    body["batchTrigger"] = rng.choice(triggers if staged else [*triggers, "clock"])
    if not staged:
        clock = body["batchTrigger"] == "clock"
        body["batchTimeout"] = round(full_ms * rng.choice([1.1, 1.5] if clock else [0.1, 0.5, 1.0]), 2)
        if rng.random() < 0.3 and not clock:
            body["batchWindow"] = "optimal"
    if body["batchTrigger"] == "clock" or rng.random() < 0.4:
        body |= {"maxQueueSize": size * rng.choice([2, 4]), "queueCounts": "waiting"}
        if body["batchTrigger"] != "clock" and rng.random() < 0.5:
            body["queueCounts"] = "system"
    return body


KINDS: dict[str, Kind] = {
    "linear": linear,
    "static": static,
    "iteration": iteration,
    "continuous": continuous,
    "terms": further_terms,
    "experts": experts,
    "estimate": estimated,
    "batch": batch_server,
}
