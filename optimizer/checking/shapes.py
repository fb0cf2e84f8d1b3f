"""Warns about request shapes that miss a target even when idle, and states what prefix hits are worth."""

from collections.abc import Iterator, Sequence

import numpy as np

from optimizer.candidates import Candidates, CandidateTable, SizingMemo, find_candidates
from optimizer.candidates.measuring import measure_pairs, stable_rates_of
from optimizer.candidates.pairs import Pairs
from optimizer.checking.steep import IDLE
from optimizer.quantities import counted, percent, quantity
from optimizer.queueing.measures import TargetMeasure
from optimizer.queueing.targets import DELAYED
from optimizer.schema import Server
from optimizer.schema.names import Finding, Index
from optimizer.spec.shapes import without_hits

HITS = "prefix_hits"
"""Code of the note on the cards that a server needs without prefix hits."""


def shape_warnings(candidates: Candidates, index: Index, memo: SizingMemo | None = None) -> Iterator[Finding]:
    """Yield warnings about the request shapes of servers.

    Args:
        candidates: sized pairs of servers and accelerators.
        index: the items of the documents.
        memo: cache of sizings.
    """
    system, names = candidates.system, candidates.arrays.server_names
    without: Candidates | None = None
    for s, name in enumerate(names):
        server = system.servers[name]
        load, cheapest = server.current.load, _cheapest(candidates, s)
        if not load.has_shapes or name not in index.servers or cheapest is None:
            continue
        part, at, _ = index.servers[name]
        place = (*at, "currentAlloc", "load")
        for text in _slow_shapes(candidates, cheapest, server):
            yield Finding(part, (*place, "shapes"), text)
        rates = sorted({shape.prefix_hit_rate for shape in load.stated_shapes if shape.prefix_tokens} - {0.0})
        if rates:
            without = without or find_candidates(without_hits(system), memo)  # one sizing for all servers
            other = _cheapest(without, s)
            then = None if other is None else _cards(other)
            yield Finding(part, place, _worth_of_hits(rates, _cards(cheapest), then), code=HITS)


def _slow_shapes(candidates: Candidates, cheapest: CandidateTable, server: Server) -> Iterator[str]:
    """Yield the shapes of a server whose idle requests miss a target of all requests.

    A target on a percentile does not show shapes with few requests.
    """
    arrays, pair = candidates.arrays, Pairs.of_rows(candidates.arrays, cheapest)
    limits = arrays.servers.targets.take(pair.server).limits_of(0)
    of_all = {m: limit for m, limit in limits.items() if m.metric in DELAYED and not m.shape}
    if not of_all or not server.current.load.shapes:
        return
    replica = measure_pairs(arrays, pair, IDLE * stable_rates_of(arrays, pair)).shaped[0]
    delay_ms = float(arrays.servers.delay_ms[pair.server[0], pair.accelerator[0]])
    for shape in server.current.load.shapes:
        own = {m.metric for m in limits if m.shape == shape.name}
        for measure, limit in of_all.items():
            mean = replica.of(TargetMeasure(measure.metric, shape=shape.name), delay_ms)
            if mean > limit and measure.metric not in own:
                yield (
                    f"an idle replica already takes {quantity(mean, 4)} ms for the {measure.label} of shape "
                    f"{shape.name!r}, beyond the target {quantity(limit)} ms, which holds over all requests: "
                    f"its {percent(shape.share or 0.0)} of them hardly count; give it a target of its own"
                )


def _worth_of_hits(rates: Sequence[float], now: int, then: int | None) -> str:
    """Return the number of cards that a server needs with prefix hits, and without.

    Args:
        rates: hit rates of its prefixes.
        now: number of cards with the hits.
        then: number of cards if no request finds its prefix in the cache; None if no number suffices.
    """
    without = "no number of cards suffices" if then is None else f"{counted(then, 'card')} are needed"
    hits = ", ".join(f"{rate:g}" for rate in rates)
    return f"with prefixHitRate {hits} it needs {counted(now, 'card')}; without hits {without}"


def _cheapest(candidates: Candidates, s: int) -> CandidateTable | None:
    """Return the cheapest candidate of a server, as a table of one row; None if it has none."""
    table = candidates.table
    rows = np.flatnonzero(table.server == s)
    if not len(rows):
        return None
    cost = table.num_replicas[rows] * table.cost_per_replica[rows]
    return table.take(rows[[int(np.argmin(cost))]])


def _cards(cheapest: CandidateTable) -> int:
    return int(cheapest.num_replicas[0] * cheapest.units_per_replica[0])
