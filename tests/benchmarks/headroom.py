"""What headroom brings: days whose loads differ from the forecast, and plans with more or less reserve.

Each day every server's load is the forecast times a lognormal factor of mean 1. A server-day is within
targets if the pools that were planned for the forecast carry the load of the day. Cards are not limited, so
that only the reserve decides. Run: ``python tests/benchmarks/headroom.py``; docs/policies.md has the table.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from optimizer import Plan, System, load_system, solve
from optimizer.arrays import BoolArray, FloatArray

DAYS, LOAD_CV, SEED = 200, 0.3, 20
SHARES = (0.0, 0.1, 0.2, 0.5)
LARGE = Path(__file__).resolve().parents[2] / "specs" / "large"
HEADINGS = "| planned | server-days within targets | days with all | cost [cents/h] | more than h = 0 |"


def factors(servers: int) -> FloatArray:
    """Return the load of each day and server over its forecast, shape (days, servers)."""
    sigma = np.sqrt(np.log(1 + LOAD_CV**2))
    return np.random.default_rng(SEED).lognormal(-(sigma**2) / 2, sigma, (DAYS, servers))


def within_targets(plan: Plan, system: System) -> BoolArray:
    """Return whether each server carries the load of each day within its targets, shape (days, servers)."""
    loaded = [name for name, server in system.servers.items() if server.current.load.arrival_rate_rpm > 0]
    most = [sum(pool.max_arrival_rate_rpm for pool in plan.allocations.get(name, ())) for name in loaded]
    load = np.array([system.servers[name].current.load.arrival_rate_rpm for name in loaded])
    return np.asarray(load * factors(len(loaded)) <= np.array(most) * (1 + 1e-9))


def plans(system: System) -> Iterator[tuple[str, Plan]]:
    """Yield plans with headroom, and one for twice the load."""
    for share in SHARES:
        yield f"h = {share:g}", solve(system, unlimited=True, headroom_share=share)
    twice = system
    for name, server in system.servers.items():
        twice = twice.with_load(name, arrival_rate_rpm=2 * server.current.load.arrival_rate_rpm)
    yield "twice the load", solve(twice, unlimited=True)


def rows() -> list[str]:
    """Return the table as Markdown."""
    system, lines, first = load_system(LARGE), [HEADINGS, "|---|---:|---:|---:|---:|"], 0.0
    for name, plan in plans(system):
        held, cost = within_targets(plan, system), plan.total_cost_cents_per_h
        first = first or cost
        shares = f"{held.mean():.1%} | {held.all(axis=1).mean():.1%}"
        lines.append(f"| {name} | {shares} | {cost:,.2f} | {cost / first - 1:+.1%} |")
    return lines


if __name__ == "__main__":
    print("\n".join(rows()))
