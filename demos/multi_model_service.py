"""Plan 1,000 requests per second for many models: GPUs by cache hits and batch limit, then the entire plan.

Explained in docs/scenarios/multi-model-service.md.
"""

from math import ceil
from pathlib import Path

from optimizer import load_system, solve
from optimizer.kinds.batch_servers.rows import BatchRow

RATE_RPS = 1000
T4 = {"batchParms": {"base": 37.5, "slope": 2.5}, "window": 10}  # 40 ms for one request, 50 ms for five
TARGETS = ((50, 100), (99, 500))  # percentile of all requests, and its limit [ms]


def misses_rps(max_batch: int, hits: float) -> float:
    """Return the maximum rate of cache misses at which all requests meet their targets [requests/s]."""
    of_misses = [(100 - (100 - percentile) / (1 - hits), ms) for percentile, ms in TARGETS]
    latency = [{"percentile": percentile, "ms": ms} for percentile, ms in of_misses if percentile > 0]
    return BatchRow.model_validate({**T4, "maxBatchSize": max_batch, "latency": latency}).size().offered_rps


print(f"T4s for {RATE_RPS:,} requests/s of one model, and the misses that one T4 serves")
print("batch      no cache    30 % hits    50 % hits")
for size in (5, 8, 16):
    cells = []
    for hits in (0.0, 0.3, 0.5):
        each = misses_rps(size, hits)
        cells.append(f"{ceil(RATE_RPS * (1 - hits) / each)} ({each:.1f}/s)")
    print(f"{size:>5}" + "".join(f"{cell:>13}" for cell in cells))

print()
plan = solve(load_system(Path(__file__).parent.parent / "specs" / "multi-model-service"))
print(f"{RATE_RPS:,} requests/s of all models: {plan.total_cost_cents_per_h / 100:.2f} USD/h")
for name, pools in plan.allocations.items():
    for pool in pools:
        print(f"{name:<15}{pool.num_replicas:>2} x {pool.accelerator}")
for cards in plan.shared_cards:
    names = " and ".join(pool.server for pool in cards.servers)
    print(f"{names} share {cards.num_cards} x {cards.accelerator}")
