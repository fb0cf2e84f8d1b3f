"""Request shapes of recorded requests: clusters by prompt length, with the lengths of each."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.errors import SpecError
from optimizer.kinds.fields import Load
from optimizer.kinds.request_shapes import MAX_SHAPES
from optimizer.schema import Route, Server
from optimizer.schema.messages import validated
from optimizer.simulation.requests import Requests
from optimizer.simulation.trace import read_trace
from optimizer.spec.loads import load_owner, stated_loads
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_MINUTE

DEFAULT_SHAPES = 4
MAX_ROUNDS = 200
DIGITS = 6
"""Significant digits of the figures of a shape."""


def load_of_trace(path: str | os.PathLike[str], shapes: int = DEFAULT_SHAPES) -> Load:
    """Return the load of recorded requests: their mean rate and their shapes.

    Args:
        path: file with recorded requests; see `read_trace` for the formats.
        shapes: number of shapes, fewer if there are not as many prompt lengths.

    Raises:
        SpecError: the file cannot be read, or it has too few requests.
    """
    if not 1 <= shapes <= MAX_SHAPES:
        raise SpecError(f"shapes: must be 1 to {MAX_SHAPES}, not {shapes}")
    requests = read_trace(path)
    assert requests.arrival_ms is not None
    span_s = float(requests.arrival_ms[-1]) / 1000
    if len(requests) < 2 or span_s <= 0:
        raise SpecError(f"{path}: at least two requests at different times are needed for a rate")
    rate_rpm = _rounded((len(requests) - 1) / span_s * SECONDS_PER_MINUTE)
    stated = {"arrivalRate": rate_rpm, "shapes": [*shapes_of_requests(requests, shapes)]}
    return validated(Load, stated, f"{path}: ")


def named_traces(texts: Iterable[str]) -> Iterator[tuple[str | None, str]]:
    """Yield the name and the file of each text ``[NAME=]FILE``; the name is None if it is absent.

    Raises:
        SpecError: the name or the file is empty.
    """
    for text in texts:
        name, equals, file = text.partition("=")
        if not equals or Path(text).exists():
            yield None, text
        elif name and file:
            yield name, file
        else:
            raise SpecError(f"trace {text!r}: must be FILE or NAME=FILE")


def with_traces(system: System, texts: Iterable[str], shapes: int = DEFAULT_SHAPES) -> System:
    """Return a copy of a system in which recorded requests give the load of servers: rate and shapes.

    Args:
        texts: a file for each server, as ``SERVER=FILE``; the name of the only server can be omitted.
        shapes: number of shapes of each load.

    Raises:
        SpecError: a file cannot be read, a server does not exist, occurs twice, or cannot have shapes.
    """
    changed: dict[str, Server] = {}
    for name, path in named_traces(texts):
        server = _traced_server(system, name, path)
        if server.name in changed:
            raise SpecError(f"{path}: server {server.name!r} has a trace already; give each server one")
        stated = server.current.load
        load = load_of_trace(path, shapes)
        changed[server.name] = server.with_load(
            load.model_copy(update={"arrival_cv": stated.arrival_cv})
            if "arrival_cv" in stated.model_fields_set
            else load
        )
    return system.with_items(*changed.values())


def _traced_server(system: System, name: str | None, path: str) -> Server:
    """Return the server to which a trace belongs; without a name, the only one with a load of its own."""
    if name is None:
        names = [owner.name for owner in stated_loads(system)]
        if len(names) != 1:
            text = f"the system has {len(names)} loads; name the server of the trace"
            raise SpecError(f"{path}: {text}" + (f": {names[0]}={path}" if names else ""))
        (name,) = names
    try:
        owner = load_owner(system, name)
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None
    if isinstance(owner, Route):
        raise SpecError(f"{path}: the lengths of route {name!r} are those of its kinds; name a server")
    if owner.deadline is not None:
        raise SpecError(f"{path}: server {name!r} has a deadline, which sets its load; remove it")
    return owner


def shapes_of_requests(requests: Requests, shapes: int) -> Iterator[dict[str, Any]]:
    """Yield the shapes of recorded requests as fields of documents, by ascending prompt length.

    Prefix hits come only from recorded cached tokens; they are never guessed.
    """
    cached = np.zeros(len(requests), np.int64) if requests.cached_tokens is None else requests.cached_tokens
    cluster = clusters(requests.in_tokens, shapes)
    left, names = 1.0, set[str]()
    labels = np.unique(cluster)
    for i in labels.tolist():
        of_shape = cluster == i
        prompts, answers = requests.in_tokens[of_shape], requests.out_tokens[of_shape]
        mean, share = float(prompts.mean()), round(float(of_shape.mean()), DIGITS)
        share = _rounded(left) if i == labels[-1] else share  # shares sum to 1
        left -= share
        hits = cached[of_shape] > 0
        prefix = min(round(float(cached[of_shape][hits].mean())), int(mean) - 1) if hits.any() else 0
        name = f"in-{mean:.0f}"
        name = name if name not in names else f"{name}-{i}"
        names.add(name)
        fields: dict[str, Any] = {
            "name": name,
            "share": share,
            "avgInTokens": _rounded(mean),
            "avgOutTokens": _rounded(float(answers.mean())),
            "inTokensCV": _rounded(float(prompts.std()) / max(mean - prefix, 1.0)),
            "outTokensCV": _rounded(float(answers.std() / answers.mean())),
        }
        if prefix > 0:
            fields |= {"prefixTokens": prefix, "prefixHitRate": _rounded(float(hits.mean()))}
        yield fields


def clusters(lengths: IntArray, count: int) -> IntArray:
    """Return the cluster of each length, shape (R,): Lloyd's algorithm on their logarithms.

    A request weighs as much for its number as for its tokens, so that rare long prompts get a cluster.
    """
    values, which, number = np.unique(np.maximum(lengths, 1), return_inverse=True, return_counts=True)
    x = np.log(values)
    weight = number * (1 / number.sum() + values / (number * values).sum())
    edges = (np.cumsum(weight) - weight / 2) / weight.sum()
    centres = np.interp((np.arange(count) + 0.5) / count, edges, x)
    nearest = np.zeros(len(x), np.int64)
    for _ in range(MAX_ROUNDS):
        nearest = np.abs(x[:, np.newaxis] - np.unique(centres)).argmin(axis=1)
        moved: FloatArray = np.array(
            [np.average(x[nearest == i], weights=weight[nearest == i]) for i in np.unique(nearest)]
        )
        if len(moved) == len(centres) and np.allclose(moved, centres, rtol=0, atol=1e-12):
            break
        centres = moved
    return np.asarray(nearest[which])


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
