"""Shares of request shapes, and hit rates of shared prefixes, as estimated from the metrics of engines.

Metrics do not tell shapes apart. But shapes of different prompt lengths fill different buckets of the
histogram of prompt lengths, and a prefix cache counts the tokens that it finds.
"""

from collections.abc import Sequence

import numpy as np

from optimizer.kinds.fields import Load
from optimizer.kinds.request_shapes import RequestShape
from optimizer.spec.shapes import reshaped
from rest_server.loop.estimators import MIN_LENGTHS, lognormal_below
from rest_server.loop.window import Buckets

LEAST_CV = 0.25
"""Least assumed coefficient of variation of the prompt length within a shape, because no shape is exact."""
ROUNDS = 300
SAME_WORK = 0.03
"""Change of a shape's share of all prompt tokens that is ignored."""
SAME_HITS = 0.03
"""Change of a hit rate that is ignored."""


def measured_shares(buckets: Buckets, shapes: Sequence[RequestShape]) -> tuple[float, ...] | None:
    """Return the share of each shape that makes the counts of prompt lengths most likely.

    It is the maximum likelihood of the weights of a mixture with known parts (expectation maximisation). The
    parts are lognormal, beyond the shared prefix.

    Args:
        buckets: number of prompts by upper bound of their length.
        shapes: the stated shapes.

    Returns:
        The shares; None if there are too few prompts, or fewer than two shapes.
    """
    bounds = np.array(sorted(buckets))
    counts = np.array([buckets[bound] for bound in bounds.tolist()])
    if len(shapes) < 2 or counts.sum() < MIN_LENGTHS:
        return None
    below = [
        lognormal_below(
            bounds - shape.prefix_tokens,
            max(shape.in_tokens - shape.prefix_tokens, 1.0),
            np.array(max(shape.in_tokens_cv, LEAST_CV)),
        )
        for shape in shapes
    ]
    parts = np.maximum(np.diff(np.array(below), axis=1, prepend=0.0), 1e-9)
    shares = np.full(len(shapes), 1 / len(shapes))
    for _ in range(ROUNDS):
        joint = shares[:, None] * parts
        shares = joint / joint.sum(axis=0) @ counts / counts.sum()
    return tuple(shares.tolist())


def with_measured_shapes(load: Load, shares: Sequence[float] | None, prefix_share: float | None) -> Load:
    """Return a load with measured shares and hit rates; those that hardly differ stay as stated.

    The hit rates of several shapes are multiplied by one factor.

    Args:
        load: the stated load.
        shares: share of each shape; None if unknown.
        prefix_share: fraction of all prompt tokens that the prefix cache contained; None if unknown.
    """
    shapes = load.stated_shapes
    stated = [shape.share or 0.0 for shape in load.shapes] or [1.0]
    known = shares is not None and len(shares) == len(load.shapes)
    if shares is None or not known or not _differs(shares, load.shapes):
        shares = stated
    expected = sum(
        w * shape.prefix_tokens * shape.prefix_hit_rate for w, shape in zip(shares, shapes, strict=True)
    )
    tokens = sum(w * shape.in_tokens for w, shape in zip(shares, shapes, strict=True))
    hits = [shape.prefix_hit_rate for shape in shapes]
    if prefix_share is not None and expected:
        new = [min(1.0, rate * prefix_share * tokens / expected) for rate in hits]
        hits = (
            new if max(abs(one - other) for one, other in zip(new, hits, strict=True)) > SAME_HITS else hits
        )
    if not load.shapes:
        return load.model_copy(update={"prefix_hit_rate": hits[0]}) if load.prefix_tokens else load
    changed = [
        shape.model_copy(update={"share": share} | ({"prefix_hit_rate": rate} if shape.prefix_tokens else {}))
        for shape, share, rate in zip(load.shapes, shares, hits, strict=True)
    ]
    return reshaped(load, changed)


def _differs(shares: Sequence[float], shapes: Sequence[RequestShape]) -> bool:
    """Return whether the share of all prompt tokens that a shape has differs from the stated one."""
    lengths = np.array([shape.in_tokens for shape in shapes])
    new, old = (
        np.array(weights) * lengths / np.dot(weights, lengths)
        for weights in (shares, [shape.share or 0.0 for shape in shapes])
    )
    return bool(np.abs(new - old).max() > SAME_WORK)
