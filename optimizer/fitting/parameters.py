"""Parameters of the fitted latency model: names, units, and the runs that would show them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from optimizer.fitting.runs import BenchmarkRun

MANY_USERS = 32
"""Users of a closed loop from which a run shows the effect of the batch."""
DIFFERENT = 4.0
"""Ratio of the longest to the shortest length from which runs show the effect of the length."""


class Advice(NamedTuple):
    """Runs to add to a fit, and whether the fit already has such runs."""

    text: str
    is_met: Callable[[Sequence[BenchmarkRun]], bool]


def _differ(runs: Sequence[BenchmarkRun], name: str) -> bool:
    means = [getattr(run, name).mean for run in runs]
    return bool(max(means) >= DIFFERENT * min(means))


_ALONE = Advice("a run with one request at a time", lambda runs: any(run.is_alone for run in runs))
_MANY = Advice(
    "a run with many users (64, for example)",
    lambda runs: any(run.is_full and (run.max_in_flight or 0) >= MANY_USERS for run in runs),
)
_PROMPTS = Advice("runs with prompts of another length", lambda runs: _differ(runs, "prompts"))
_ANSWERS = Advice("runs with answers of another length", lambda runs: _differ(runs, "answers"))
_RATES = Advice("a sweep of rates for several shapes", lambda _: False)


class Parameter(NamedTuple):
    """A parameter of the latency model."""

    name: str
    """Field of `IterationCoefficients`."""
    key: str
    """Key of the parameter in documents."""
    unit: str
    shown_by: tuple[Advice, ...]
    """Runs that identify the parameter; the first ones are best."""

    def advice(self, runs: Sequence[BenchmarkRun]) -> str:
        """Return the runs to add to given ones, so that the parameter is identified."""
        return next(one.text for one in (*self.shown_by, _RATES) if not one.is_met(runs))


PARAMETERS = (
    Parameter("base_ms", "alpha", "ms", (_ALONE,)),
    Parameter("compute_per_token_ms", "beta", "ms/token", (_PROMPTS, _MANY)),
    Parameter("kv_read_per_token_ms", "gamma", "ms/token", (_MANY, _PROMPTS)),
    Parameter("per_sequence_ms", "perSequence", "ms/request", (_MANY, _PROMPTS)),
    Parameter("prompt_attention_ms", "promptAttention", "ms/pair", (_PROMPTS,)),
    Parameter("weight_read_ms", "weightRead", "ms", (_MANY,)),
    Parameter("per_prompt_ms", "perPrompt", "ms/prompt", (_PROMPTS,)),
    Parameter("client_offset_ms", "clientOffset", "ms", (_ALONE, _PROMPTS)),
    Parameter("pipeline_depth", "pipelineDepth", "iterations", ()),
    Parameter("front_end_lag", "frontEndLag", "iterations/request", (_MANY, _ANSWERS)),
    Parameter("pause_offset_ms", "pauseOffset", "ms", (_ANSWERS,)),
    Parameter("idle_offset_ms", "idleOffset", "ms", (_ALONE,)),
    Parameter("expert_read_ms", "expertRead", "ms", (_MANY, _ALONE)),
    Parameter("expert_share", "expertShare", "of the experts", (_ALONE, _MANY)),
)
"""All parameters that can be fitted, in the order of documents."""
BY_NAME = {parameter.name: parameter for parameter in PARAMETERS}
FULL_LAW = tuple(BY_NAME)
REFERENCE_LAW = FULL_LAW[:3]
"""α, β and γ: llm-inferno's latency model."""
