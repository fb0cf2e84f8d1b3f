"""Converts estimates and catalogue entries to plain values for JSON."""

from typing import Any

from optimizer.profiles.efficiency import VERSION
from optimizer.profiles.estimate import ProfileEstimate
from optimizer.profiles.facts import AcceleratorFacts, ModelEntry
from optimizer.profiles.intervals import Estimated


def estimate_document(estimate: ProfileEstimate) -> dict[str, Any]:
    """Convert an estimate to plain values; times are in ms."""
    deployment, form = estimate.deployment, estimate.iterations.format
    return {
        "estimated": True,
        "model": estimate.model.name,
        "accelerator": estimate.accelerator.name,
        "tp": deployment.tp,
        "weights": form.name,
        "cache": estimate.iterations.cache,
        "inTokens": deployment.in_tokens,
        "outTokens": deployment.out_tokens,
        "atBatch": estimate.at_batch,
        "alpha": _timed(estimate.alpha_ms),
        "beta": _timed(estimate.beta_ms),
        "gamma": _timed(estimate.gamma_ms),
        "alphaByBatch": [{"batch": n, **_timed(estimate.alpha_at(n))} for n in estimate.batches],
        **(_experts(estimate) if estimate.model.experts else {}),
        "kvTokens": int(estimate.kv_tokens.value),
        "kvTokensLow": int(estimate.kv_tokens.low),
        "kvTokensHigh": int(estimate.kv_tokens.high),
        "maxBatchSize": estimate.max_batch,
        "maxBatchSizeLow": estimate.max_batch_low,
        "factors": {"below": estimate.spread.below, "above": estimate.spread.above},
        "because": list(estimate.spread.reasons),
        "constants": VERSION,
        "sources": [
            {"of": facts.name, "source": facts.source, "asOf": facts.as_of}
            for facts in (estimate.model, estimate.accelerator)
        ],
        "warnings": list(estimate.warnings),
    }


def entry_document(entry: AcceleratorFacts | ModelEntry) -> dict[str, Any]:
    """Convert a catalogue entry to plain values."""
    values = entry.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if isinstance(entry, ModelEntry):
        facts = entry.facts
        values["countedParametersB"] = round(facts.parameters / 1e9, 3)
        values["layers"] = [
            f"{layer.count} x {layer.attention}, {layer.feed_forward}" for layer in facts.layers
        ]
    return values


def _experts(estimate: ProfileEstimate) -> dict[str, Any]:
    """Return the terms of α for a mixture of experts as plain values, with intervals."""
    return {
        "alphaWithoutExperts": _timed(estimate.alpha_alone_ms),
        "expertRead": _timed(estimate.expert_read_ms),
        "expertShare": estimate.expert_share,
    }


def _timed(time: Estimated) -> dict[str, float]:
    return {"ms": time.value, "low": time.low, "high": time.high}
