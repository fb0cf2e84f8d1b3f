"""Prior distributions of the parameters of the latency model.

If the catalogue has the model and the accelerator, the prior is centred at their estimate; otherwise at the
median of all models of the catalogue on all accelerators that hold them (`tests/fitting/test_priors.py`
computes it again). Times that every engine has are lognormal. Terms that an engine may lack are rectified
normal: the part of the normal distribution below 0 is mass at 0 (eq. 99).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from optimizer.arrays import BoolArray, FloatArray
from optimizer.errors import SpecError
from optimizer.fitting.options import MeasuredSetup
from optimizer.fitting.runs import BenchmarkRun
from optimizer.profiles.deployment import Deployment
from optimizer.profiles.efficiency import Efficiency
from optimizer.profiles.estimate import find_model, find_slice
from optimizer.profiles.iterations import Iterations
from optimizer.simulation.law import IterationCoefficients

ALPHA, BETA, GAMMA = "base_ms", "compute_per_token_ms", "kv_read_per_token_ms"
EXPERTS, SHARE = "expert_read_ms", "expert_share"
OFFSET, IDLE = "client_offset_ms", "idle_offset_ms"
MOST_EXPERTS = 0.99
"""Largest share of the experts that a token uses."""


class Term(NamedTuple):
    """Prior of a parameter, absolute or relative to another parameter."""

    centre: float
    """Median if lognormal, else mean of the normal distribution before rectification."""
    spread: float
    """Standard deviation, of the logarithm if lognormal."""
    of: str | None = None
    """Parameter to which the value is relative."""
    lognormal: bool = False


CATALOGUE: Mapping[str, Term] = {
    ALPHA: Term(11.0, 1.0, lognormal=True),
    BETA: Term(0.005, 1.0, ALPHA, lognormal=True),
    GAMMA: Term(4e-6, 1.3, ALPHA, lognormal=True),
    "per_sequence_ms": Term(0.02, 0.015),
    "prompt_attention_ms": Term(3e-5, 4e-5, BETA),
    "weight_read_ms": Term(120.0, 120.0, BETA),
    "per_prompt_ms": Term(0.3, 0.2),
    OFFSET: Term(10.0, 10.0),
    "pipeline_depth": Term(0.0, 0.7),
    "front_end_lag": Term(0.0, 0.003),
    "pause_offset_ms": Term(0.0, 5.0),
    IDLE: Term(0.0, 20.0),
}
"""Priors without an estimate. The times per sequence and per prompt cover those of two recorded sweeps
(docs/fidelity.md; 0.02 ms, and 0.2 and 0.6 ms) and engines without them; the terms of the client, from
`client_offset_ms` on, are typical of engines.
"""
SLOWER_ALONE = 1.1
"""Ratio of the TTFT of lone requests to that beside others from which an idle engine must answer later."""
OF_BATCH = "pipeline_depth", "front_end_lag", "pause_offset_ms"
"""Delays between engine and client that iterations cause."""
OF_CLIENT = (OFFSET, *OF_BATCH, IDLE)
"""All terms between the engine and the client, which are 0 if its users stay in step with the engine."""
KNOWN = 0.7
"""Spread of the logarithm of α, of β and of γ/α around an estimate: a factor of 4 at 95 %."""


@dataclass(frozen=True, slots=True)
class Prior:
    """Joint prior of the named parameters; coordinates x are standard normal, shape (P,)."""

    names: tuple[str, ...]
    terms: tuple[Term, ...]
    source: str = "the catalogue"

    @property
    def lowest(self) -> FloatArray:
        """Lower bounds of x: -inf if lognormal, otherwise the point at which the parameter is 0."""
        return np.array([-np.inf if term.lognormal else -term.centre / term.spread for term in self.terms])

    def values(self, x: FloatArray) -> FloatArray:
        """Return the parameters at a point, shape (P,)."""
        by_term: dict[str, float] = {}
        for name, term, at in zip(self.names, self.terms, x, strict=True):
            own = term.centre * np.exp(term.spread * at) if term.lognormal else term.centre + term.spread * at
            by_term[name] = max(float(own), 0.0) * (1.0 if term.of is None else by_term[term.of])
        return np.array(list(by_term.values()))

    def point(self, values: Mapping[str, float]) -> FloatArray:
        """Return the point at which some parameters have given values; others are at their centre."""
        x = np.zeros(len(self.names))
        for i, (name, term) in enumerate(zip(self.names, self.terms, strict=True)):
            if name in values:
                own = values[name] / (1.0 if term.of is None else self._value(x, term.of))
                x[i] = (
                    np.log(own / term.centre) / term.spread
                    if term.lognormal
                    else (own - term.centre) / term.spread
                )
        return x

    def _value(self, x: FloatArray, name: str) -> float:
        return float(self.values(x)[self.names.index(name)])

    def law(self, x: FloatArray) -> IterationCoefficients:
        """Return the coefficients of the latency model at a point."""
        known = dict(zip(self.names, map(float, self.values(x)), strict=True))
        return IterationCoefficients(**known | {SHARE: min(known.get(SHARE, 0.0), MOST_EXPERTS)})

    def are(self, names: Sequence[str]) -> BoolArray:
        """Return the mask of named parameters, shape (P,)."""
        return np.array([name in names for name in self.names])

    def without(self, gone: BoolArray) -> "Prior":
        """Return the prior of the parameters outside a mask, as if the others were 0."""
        kept = np.flatnonzero(~gone)
        return Prior(
            tuple(self.names[i] for i in kept),
            tuple(self.terms[i] for i in kept),
            self.source,
        )


def prior_of(
    model: str, key: MeasuredSetup, cards: int, runs: Sequence[BenchmarkRun], names: Sequence[str]
) -> Prior:
    """Return the prior of named parameters for a model on an accelerator, and for the lengths of its runs."""
    terms, source = dict(CATALOGUE), "the catalogue's models and accelerators"
    known = iterations_of(model, key, cards)
    if known is not None:
        context = float(np.mean([run.prompts.mean + run.answers.mean / 2 for run in runs]))
        prompt = float(np.mean([run.prompts.mean for run in runs]))
        alpha, beta = known.fixed_ms + known.weights_ms, known.token_ms
        attention, read = 2 * known.prompt_attention_ms(prompt / 2) / prompt / beta, known.weights_ms / beta
        terms |= {
            ALPHA: Term(alpha, KNOWN, lognormal=True),
            BETA: Term(beta / alpha, KNOWN, ALPHA, lognormal=True),
            GAMMA: Term(max(known.cache_ms(context), 1e-8) / alpha, KNOWN, ALPHA, lognormal=True),
            "per_sequence_ms": Term(known.answer_ms, max(known.answer_ms, 0.05)),
            "prompt_attention_ms": Term(attention, max(attention, 1e-6), BETA),
            "weight_read_ms": Term(read, max(read, 1.0), BETA),
        }
        if known.model.experts is not None and known.expert_share < 1:
            terms[EXPERTS] = Term(known.experts_ms / alpha, KNOWN, ALPHA, lognormal=True)
            terms[SHARE] = Term(known.expert_share, KNOWN, lognormal=True)
        source = f"the estimate of {known.model.name} on {cards} x {key.accelerator}"
    least = min((run.measured.ttft_ms for run in runs if run.measured.ttft_ms is not None), default=0.0)
    for name in (OFFSET, IDLE):
        terms[name] = terms[name]._replace(spread=max(terms[name].spread, least / 2))
    if not _slower_alone(runs):
        del terms[IDLE]
    chosen = tuple(name for name in names if name in terms)
    return Prior(chosen, tuple(terms[name] for name in chosen), source)


def _slower_alone(runs: Sequence[BenchmarkRun]) -> bool:
    """Return whether lone requests have a longer TTFT than requests of the same shape beside others."""
    timed = [(run, run.measured.ttft_ms) for run in runs if run.measured.ttft_ms]
    return any(
        alone.is_alone and alone.shape == run.shape and not run.is_alone and ttft_ms > SLOWER_ALONE * other_ms
        for alone, ttft_ms in timed
        for run, other_ms in timed
    )


def starts(prior: Prior, runs: Sequence[BenchmarkRun]) -> list[tuple[FloatArray, BoolArray]]:
    """Return starting points: the prior's centre, and points near the run with the least load.

    Each has a mask of terms that are 0; the last two are without the delays that grow with the batch, and
    without any delay of the client.
    """
    itl_ms = min((run.measured.itl_ms for run in runs if run.measured.itl_ms is not None), default=1.0)
    ttft_ms = min((run.measured.ttft_ms for run in runs if run.measured.ttft_ms is not None), default=0.0)
    near: Sequence[Mapping[str, float]] = (
        {},
        {ALPHA: itl_ms},
        {ALPHA: itl_ms, OFFSET: ttft_ms / 2},
    )
    none = np.zeros(len(prior.names), dtype=np.bool_)
    masks = [prior.are(names) for names in (OF_BATCH, OF_CLIENT)]
    points = [(prior.point(values), none) for values in near]
    quick = prior.point({ALPHA: itl_ms, OFFSET: itl_ms / 2})
    return [*points, *((quick, mask) for mask in masks if mask.any())]


def iterations_of(
    model: str,
    key: MeasuredSetup,
    cards: int,
    efficiency: Efficiency = Efficiency(),  # noqa: B008
) -> Iterations | None:
    """Return the components of the iteration time of a model on an accelerator; None if one is unknown."""
    try:
        facts, devices = find_slice(key.accelerator)
        deployment = Deployment(tp=devices * cards, weights=key.weights)
        iterations = Iterations(find_model(model), facts, deployment, efficiency)
        is_complete = iterations.token_ms > 0 and iterations.expert_share >= 0
    except SpecError:
        return None
    return iterations if is_complete else None
