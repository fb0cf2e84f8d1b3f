"""Service by saturation policy with a quarter of the cards of specs/large: the table of docs/policies.md.

Run: ``python tests/benchmarks/saturation.py``.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from optimizer import System, load_system, solve

LARGE = Path(__file__).resolve().parents[2] / "specs" / "large"


def served(system: System, **options: Any) -> Iterator[str]:
    """Yield the served load of each priority [requests/min], and its share."""
    plan = solve(system, **options)
    for priority in (1, 2, 3):
        names = [name for name, server in system.servers.items() if system.priority(server) == priority]
        load = sum(system.servers[name].current.load.arrival_rate_rpm for name in names)
        carried = sum(pool.arrival_rate_rpm for name in names for pool in plan.allocations.get(name, ()))
        yield f"{carried:,.0f} ({carried / load:.1%})"


def rows() -> Iterator[str]:
    """Yield the table as Markdown."""
    large = load_system(LARGE)
    quarter = large.with_capacity({kind: count // 4 for kind, count in large.capacity.items()})
    yield "| policy | delayed | priority 1 | priority 2 | priority 3 |"
    yield "|---|---|---|---|---|"
    for policy in ("None", "PriorityExhaustive", "PriorityRoundRobin"):
        for delayed in (False, True) if policy != "None" else (False,):
            row = served(quarter, saturation_policy=policy, delayed_best_effort=delayed)
            yield f"| {policy} | {str(delayed).lower()} | {' | '.join(row)} |"


if __name__ == "__main__":
    print("\n".join(rows()))
