"""Map of when prefill and decode pools cost less: by the queue model, and by simulation of both sides.

A cell is a prompt length and an ITL target. Its value is the cost of pools divided by the cost of replicas
that do both, for the same load in the limit of many replicas, on one type of cards (Llama-3.1-8B on an H100).
The simulation finds the largest rate of a replica that does both, and of a small group of pools.

Run: python tests/benchmarks/pools_map.py [--requests N] [--cells N]
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from optimizer import load_system
from optimizer.candidates import find_candidates
from optimizer.compat.disaggregated_rows import DisaggregatedRow
from optimizer.compat.rows import ReplicaRow
from optimizer.features.disaggregation.streams import SHARES
from optimizer.kinds.replicas import LatencyFigures
from optimizer.schema.messages import validated
from optimizer.simulation.replicas import Effort

LAW = {
    "alpha": 6.83, "beta": 0.0224, "gamma": 4.36e-5, "perSequence": 0.0189, "promptAttention": 1.04e-6,
    "weightRead": 4.3,
}  # fmt: skip
PROMPTS = (512, 1024, 2048, 4096, 8192)
ITL_MS = (8, 9, 10.5, 13, 16, 22, 35, 55)
ANSWER, TTFT_MS, HANDOVER_MS, LINK_GBPS, KV_BYTES = 256, 1000, 20, 25, 131_072
MOST_REPLICAS = 8
"""Largest number of simulated replicas of both pools."""
CLOSE = 0.05
"""Difference of the costs up to which a sign does not count."""


class Rates(NamedTuple):
    """Largest rates of a replica [requests/s]; 0 if it cannot meet the targets."""

    together: float
    prefill: float
    decode: float

    @property
    def ratio(self) -> float:
        """Cost of pools divided by that of replicas that do both."""
        apart = 1 / self.prefill + 1 / self.decode if self.prefill and self.decode else float("inf")
        return apart * self.together if self.together else 0.0


def cells() -> Iterator[tuple[int, float]]:
    """Yield prompt length and ITL target of each cell."""
    return ((prompt, itl_ms) for prompt in PROMPTS for itl_ms in ITL_MS)


def closed_rates(wanted: list[tuple[int, float]]) -> list[Rates]:
    """Return the largest rates by the queue model, of the best share of the TTFT target."""
    numbered = [(f"s{i}", *cell) for i, cell in enumerate(wanted)]
    profile = {"name": "m", "acc": "H100", "maxBatchSize": 256, "kvCapacity": 450_000,
               "kvBytesPerToken": KV_BYTES, "perfParms": LAW}  # fmt: skip
    source: dict[str, Any] = {
        "accelerators": [{"name": "H100", "type": "H100", "cost": 100, "linkBandwidth": LINK_GBPS}],
        "models": [profile],
        "serviceClasses": [
            {"name": name, "modelTargets": [
                {"model": "m", "percentile": 95, "slo-itl": itl_ms, "slo-ttft": TTFT_MS}]}
            for name, _, itl_ms in numbered
        ],
        "servers": [
            {"name": name, "class": name, "model": "m", "disaggregation": "allowed", "currentAlloc": {
                "load": {"arrivalRate": "1000/s", "avgInTokens": prompt, "avgOutTokens": ANSWER,
                         "inTokensCV": 0, "outTokensCV": 0}}}
            for name, prompt, _ in numbered
        ],
        "optimizer": {"unlimited": True, "handover": {"fixedMs": HANDOVER_MS}},
    }  # fmt: skip
    found = find_candidates(load_system(source).with_all_pools())
    names = [found.arrays.server_names[s] for s in found.table.server]
    rate = dict(zip(names, found.table.max_rate_rps.tolist(), strict=True))
    result = []
    for name, _, _ in numbered:
        ways = [
            Rates(
                rate.get(name, 0.0),
                rate.get(f"{name} (prefill {share:g})", 0.0),
                rate.get(f"{name} (decode {share:g})", 0.0),
            )
            for share in SHARES
        ]
        result.append(min(ways, key=lambda each: each.ratio if each.together else -each.prefill))
    return result


def simulated_ratio(prompt: int, itl_ms: float, closed: Rates, requests: int) -> float:
    """Return the ratio of the costs by simulation: infinite or 0 if one side cannot meet the targets."""
    row = {**LAW, "avgInputTokens": prompt, "avgOutputTokens": ANSWER, "maxBatchSize": 256,
           "kvCapacity": 450_000, "inTokensCV": 0, "outTokensCV": 0, "queueModel": "continuous",
           "maxQueueSize": 1_000_000}  # fmt: skip

    def holds(kind: Callable[[dict[str, Any]], Any], values: dict[str, Any], rate: float, count: int) -> bool:
        found = kind(row | values | {"RPS": rate}).simulate(Effort(requests * count))
        if not isinstance(found, LatencyFigures):
            return False
        return found.p95_ttft_ms <= TTFT_MS and found.p95_itl_ms <= itl_ms

    together = _largest(partial(holds, _one_pool, {}, count=1), closed.together)
    if not closed.prefill or not closed.decode:
        return float("inf")
    best = 0.0
    for prefill, decode in _counts(closed):
        pools = {"prefillReplicas": prefill, "decodeReplicas": decode, "linkBandwidth": LINK_GBPS,
                 "kvBytesPerToken": KV_BYTES, "fixedMs": HANDOVER_MS}  # fmt: skip
        start = min(prefill * closed.prefill, decode * closed.decode)
        found = partial(holds, _two_pools, {"disaggregated": pools}, count=4)
        rate = _largest(found, start)
        best = max(best, rate / (prefill + decode))
    return together / best if best else float("inf")


def _one_pool(values: dict[str, Any]) -> ReplicaRow:
    return validated(ReplicaRow, values)


def _two_pools(values: dict[str, Any]) -> DisaggregatedRow:
    return validated(DisaggregatedRow, {key: value for key, value in values.items() if key != "maxQueueSize"})


def _counts(closed: Rates) -> list[tuple[int, int]]:
    """Return the numbers of prefill and decode replicas nearest to the ratio of the queue model."""
    wanted = closed.decode / closed.prefill
    every = [(p, d) for p in range(1, MOST_REPLICAS) for d in range(1, MOST_REPLICAS + 1 - p)]
    return sorted(every, key=lambda pair: (abs(pair[0] / pair[1] / wanted - 1), sum(pair)))[:1]


def _largest(holds: Callable[[float], bool], start: float, steps: int = 5) -> float:
    """Return the largest rate at which targets hold, by bisection around a start; 0 if there is none."""
    if start <= 0:
        return 0.0
    low, high = 0.5 * start, 1.5 * start
    if not holds(low):
        low, high = 0.0, low
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def main() -> None:
    """Print the ratio of each cell, and the share of simulated cells with the same sign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=4000, help="simulated requests for each replica")
    parser.add_argument("--cells", type=int, default=40, help="number of cells to simulate")
    options = parser.parse_args()
    wanted = [*cells()]
    closed = closed_rates(wanted)
    chosen = [*range(0, len(wanted), max(1, len(wanted) // max(options.cells, 1)))][: options.cells]
    right, counted = 0, 0
    for i, ((prompt, itl_ms), rates) in enumerate(zip(wanted, closed, strict=True)):
        simulated = simulated_ratio(prompt, itl_ms, rates, options.requests) if i in chosen else None
        sys.stdout.write(f"{prompt:6d} {itl_ms:5g} {rates.ratio:8.3f} {simulated}\n")
        sys.stdout.flush()
        if simulated is not None and abs(simulated - 1) > CLOSE:
            counted += 1
            right += (simulated > 1) == (rates.ratio > 1)
    sys.stdout.write(f"same sign in {right} of {counted} cells that differ by more than {CLOSE:.0%}\n")


if __name__ == "__main__":
    main()
