"""Parameters of the fitted latency model: names, starting points, and the order of dropping them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.fitting.runs import BenchmarkRun
from optimizer.simulation.law import IterationCoefficients


class Parameter(NamedTuple):
    """A parameter of the latency model."""

    name: str
    """Field of `IterationCoefficients`."""
    key: str
    """Key of the parameter in documents."""
    unit: str
    shown_by: str
    """Description of runs that identify the parameter."""


_MANY = "a run with many users (64, for example)"
PARAMETERS = (
    Parameter("base_ms", "alpha", "ms", "a run with one request at a time"),
    Parameter("compute_per_token_ms", "beta", "ms/token", "one request at a time with long prompts"),
    Parameter("kv_read_per_token_ms", "gamma", "ms/token", "a run with many users and long prompts"),
    Parameter("per_sequence_ms", "perSequence", "ms/request", f"{_MANY} and short prompts"),
    Parameter("prompt_attention_ms", "promptAttention", "ms/pair", "prompts of 1,000 and of 8,000 tokens"),
    Parameter("weight_read_ms", "weightRead", "ms", "runs at several rates up to the highest"),
    Parameter("per_prompt_ms", "perPrompt", "ms/prompt", "short prompts at a high rate"),
    Parameter("client_offset_ms", "clientOffset", "ms", "one request at a time with prompts of two lengths"),
    Parameter("pipeline_depth", "pipelineDepth", "iterations", "a sweep of rates for several shapes"),
    Parameter("front_end_lag", "frontEndLag", "iterations/request", f"{_MANY} and short answers"),
    Parameter("pause_offset_ms", "pauseOffset", "ms", "answers of two lengths"),
)
"""All parameters that can be fitted, in the order of documents."""
BY_NAME = {parameter.name: parameter for parameter in PARAMETERS}
FULL_LAW = tuple(BY_NAME)
LIGHT_LAW = FULL_LAW[:2]
"""α and β: the parameters that runs identify if requests hardly overlap."""
REFERENCE_LAW = FULL_LAW[:3]
"""α, β and γ: llm-inferno's latency model."""
SIMPLIFIED_FIRST = (
    "front_end_lag",
    "pipeline_depth",
    "prompt_attention_ms",
    "weight_read_ms",
    "per_sequence_ms",
    "client_offset_ms",
    "kv_read_per_token_ms",
)
"""Order in which unidentifiable parameters are dropped; α and β are never dropped."""
ADDED_LATER = ("per_prompt_ms", "pause_offset_ms")
"""Parameters that are added after the others are fitted, if the runs clearly identify them.

Not every engine has these costs, and including them from the start makes the attention cost of prompts hard
to identify.
"""


StartPoint = Mapping[str, float]
"""Starting point of a fit: a positive value of every parameter, also used as its scale."""
KNEES_TOKENS = (200.0, 100.0, 400.0)
"""Values of m/β in starting points [tokens]: number of tokens computed in the time of reading the weights, on
current GPUs.
"""
DEPTHS = (0.5, 0.1, 0.9)
"""Values of k₀ in starting points: an engine emits a token immediately, or first schedules the next
iteration.
"""
GAMMA_TO_READ = 1e-5
"""γ/m in starting points: KV cache bytes per token over bytes of the weights, with grouped-query attention.
"""
ATTENTION_TO_COMPUTE = 5e-5
"""q/β in starting points: hidden size and layers give 3e-5 to 1e-4 for models of 7 to 70 billion parameters.
"""
SEQUENCE_MS = 0.015
"""b in starting points [ms]: sampling and scheduling on the host for each sequence."""
PROMPT_MS = 0.5
"""r in starting points [ms]: admission of a request on the host."""
DRAWN = ("weight_read_ms", "prompt_attention_ms", "per_sequence_ms")
"""Parameters with a prior: `prior_residuals` pulls them towards a plausible value."""
PLAUSIBILITY = 0.05
"""Prior residual of a parameter at twice its plausible value; as large as one outlier."""
LEAST_PLAUSIBLE = 1e-12
"""Minimum plausible value of a parameter, for a fit with β = 0."""
LAG = 1e-3
PAUSE_OFFSET_MS = 5.0
MIN_OFFSET_MS = 2.0


def starts(runs: Sequence[BenchmarkRun]) -> list[StartPoint]:
    """Return physically plausible starting points, derived from the runs with the least load.

    The ITL of a request that is alone is almost α, and its TTFT grows by β per prompt token. Reading the
    weights takes as long as computing a few hundred tokens.
    """
    least_itl = min(run.measured.itl_ms for run in runs if run.measured.itl_ms is not None)
    compute = _compute_per_token_ms(runs, least_itl)
    found: list[StartPoint] = []
    for knee, depth in zip(KNEES_TOKENS, DEPTHS, strict=True):
        read = knee * compute
        offset = max(_least_offset_ms(runs, least_itl, compute), MIN_OFFSET_MS)
        values = (
            least_itl, compute, GAMMA_TO_READ * read, SEQUENCE_MS, ATTENTION_TO_COMPUTE * compute, read,
            PROMPT_MS, offset, depth, LAG, PAUSE_OFFSET_MS,
        )  # fmt: skip
        found.append(dict(zip(FULL_LAW, values, strict=True)))
    return found


def _compute_per_token_ms(runs: Sequence[BenchmarkRun], least_itl_ms: float) -> float:
    """Estimate β [ms/token] from the difference in TTFT between long and short prompts at low load."""
    least = _least_ttft_ms(runs)
    (short, short_ms), (long, long_ms) = least[0], least[-1]
    if long > 2 * short and long_ms > short_ms:
        return (long_ms - short_ms) / (long - short)
    return max(long_ms - least_itl_ms, 0.1 * long_ms) / long


def _least_ttft_ms(runs: Sequence[BenchmarkRun]) -> list[tuple[float, float]]:
    """Return ascending prompt lengths [tokens], each with the smallest TTFT measured at it [ms]."""
    least: dict[int, tuple[float, float]] = {}
    for run in runs:
        if run.measured.ttft_ms is not None:
            key = run.shape[0]
            least[key] = min(
                least.get(key, (0.0, np.inf)), (run.prompts.mean, run.measured.ttft_ms), key=lambda p: p[1]
            )
    return [least[key] for key in sorted(least)] or [(1.0, 1.0)]


def _least_offset_ms(runs: Sequence[BenchmarkRun], least_itl_ms: float, compute: float) -> float:
    tokens, ttft_ms = _least_ttft_ms(runs)[0]
    return (ttft_ms - least_itl_ms - compute * tokens) / 2


def coefficients(names: Sequence[str], values: FloatArray) -> IterationCoefficients:
    """Return the coefficients with the given values of the named parameters; the others are 0."""
    return IterationCoefficients(**dict(zip(names, map(float, values), strict=True)))


def prior_residuals(names: Sequence[str], values: FloatArray) -> FloatArray:
    """Return residuals that grow with the distance from physically plausible values (eq. 99).

    They determine parameters that the measurements do not identify: a few prompt lengths do not separate
    compute from attention, and small batches do not show how much compute overlaps with reading the weights.
    """
    given = dict(zip(names, values, strict=True))
    return np.array(
        [PLAUSIBILITY * (given[name] / plausible(name, given) - 1) for name in DRAWN if name in given]
    )


def plausible(name: str, values: Mapping[str, float]) -> float:
    """Return the plausible value of a parameter in `DRAWN`, given those that runs always identify."""
    compute = max(values["compute_per_token_ms"], LEAST_PLAUSIBLE)
    if name == "weight_read_ms":
        return KNEES_TOKENS[0] * compute
    return ATTENTION_TO_COMPUTE * compute if name == "prompt_attention_ms" else SEQUENCE_MS
