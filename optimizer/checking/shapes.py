"""Warns about request shapes that miss a target even when idle, and states what prefix hits are worth."""

from collections.abc import Iterator

import numpy as np

from optimizer.candidates import Candidates, SizingMemo, find_candidates
from optimizer.candidates.arrays import SystemArrays
from optimizer.candidates.measuring import ShapedReplica, measure_pairs, stable_rates_of
from optimizer.candidates.pairs import Pairs
from optimizer.quantities import counted, percent, quantity
from optimizer.queueing.measures import TargetMeasure
from optimizer.queueing.targets import DELAYED
from optimizer.schema import Server
from optimizer.schema.names import Finding, Index
from optimizer.spec.shapes import with_hits
from optimizer.spec.system import System

IDLE = 1e-6
"""Share of the maximum rate at which a replica counts as idle."""
HITS = "prefix_hits"
"""Code of the note on the cards that a server needs without prefix hits."""


def shape_warnings(candidates: Candidates, index: Index, memo: SizingMemo | None = None) -> Iterator[Finding]:
    """Yield warnings about the request shapes of servers.

    Args:
        candidates: sized pairs of servers and accelerators.
        index: the items of the documents.
        memo: cache of sizings.
    """
    system = candidates.system
    for s, name in enumerate(candidates.arrays.server_names):
        server = system.servers[name]
        if server.current.load.has_shapes and name in index.servers:
            part, at, _ = index.servers[name]
            load = (*at, "currentAlloc", "load")
            for text in _slow_shapes(candidates, s, server):
                yield Finding(part, (*load, "shapes"), text)
            for text in _without_hits(candidates, s, server, memo):
                yield Finding(part, load, text, code=HITS)


def _slow_shapes(candidates: Candidates, s: int, server: Server) -> Iterator[str]:
    """Yield the shapes of a server whose idle requests miss a target of all requests.

    A target on a percentile does not show shapes with few requests.
    """
    cheapest = _cheapest(candidates, s)
    limits = candidates.arrays.servers.targets.take(np.array([s])).limits_of(0)
    of_all = {m: limit for m, limit in limits.items() if m.metric in DELAYED and not m.shape}
    if cheapest is None or not of_all or not server.current.load.shapes:
        return
    replica = _idle(candidates.arrays, cheapest)
    delay_ms = float(candidates.arrays.servers.delay_ms[cheapest.server[0], cheapest.accelerator[0]])
    for shape in server.current.load.shapes:
        own = {m.metric for m in limits if m.shape == shape.name}
        for measure, limit in of_all.items():
            mean = replica.of(TargetMeasure(measure.metric, shape=shape.name)) + delay_ms
            if mean > limit and measure.metric not in own:
                yield (
                    f"an idle replica already takes {quantity(mean, 4)} ms for the {measure.label} of shape "
                    f"{shape.name!r}, beyond the target {quantity(limit)} ms, which holds over all requests: "
                    f"its {percent(shape.share or 0.0)} of them hardly count; give it a target of its own"
                )


def _without_hits(candidates: Candidates, s: int, server: Server, memo: SizingMemo | None) -> Iterator[str]:
    """Yield the number of cards that a server needs if no request finds its prefix in the cache."""
    load, system = server.current.load, candidates.system
    prefixed = [item for item in load.stated_shapes if item.prefix_tokens and item.prefix_hit_rate]
    if not prefixed or _cheapest(candidates, s) is None:
        return
    missing = _no_hits(system, server)
    cards = [_cards(found, server.name) for found in (candidates, find_candidates(missing, memo))]
    now, then = cards
    if now is None:
        return
    rates = ", ".join(sorted({f"{item.prefix_hit_rate:g}" for item in prefixed}))
    without = "no number of cards suffices" if then is None else f"{counted(then, 'card')} are needed"
    yield f"with prefixHitRate {rates} it needs {counted(now, 'card')}; without hits {without}"


def _no_hits(system: System, server: Server) -> System:
    load = server.current.load
    names = [shape.name for shape in load.shapes if shape.prefix_tokens] or [server.name]
    for name in names:
        system = with_hits(system, name, 0.0)
    return system


def _cheapest(candidates: Candidates, s: int) -> Pairs | None:
    """Return the cheapest candidate of a server as one pair; None if it has none."""
    table = candidates.table
    rows = np.flatnonzero(table.server == s)
    if not len(rows):
        return None
    cost = table.num_replicas[rows] * table.cost_per_replica[rows]
    return Pairs.of_rows(candidates.arrays, table.take(rows[[int(np.argmin(cost))]]))


def _cards(candidates: Candidates, name: str) -> int | None:
    """Return the number of cards of the cheapest candidate of a server; None if it has none."""
    table, s = candidates.table, candidates.arrays.server_names.index(name)
    rows = np.flatnonzero(table.server == s)
    if not len(rows):
        return None
    best = rows[int(np.argmin(table.num_replicas[rows] * table.cost_per_replica[rows]))]
    return int(table.num_replicas[best] * table.units_per_replica[best])


def _idle(arrays: SystemArrays, pair: Pairs) -> ShapedReplica:
    rate = IDLE * stable_rates_of(arrays, pair)
    return measure_pairs(arrays, pair, rate).shaped[0]
