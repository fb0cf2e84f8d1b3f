"""Change every load at random, and show which servers scale or move, and the cost of the transition."""

from pathlib import Path

import numpy as np

from optimizer import load_system, solve

rng = np.random.default_rng(7)
system = load_system(Path(__file__).parent.parent / "specs" / "large")
first = solve(system)
changed = first.applied_to(system)
for name, server in system.servers.items():
    factor = round(float(rng.uniform(0.5, 1.5)), 2)
    changed = changed.with_load(name, arrival_rate_rpm=server.current.load.arrival_rate_rpm * factor)
second = solve(changed)

moved = [
    c for c in second.changes if c.before and c.after and c.before[0].accelerator != c.after[0].accelerator
]
print(f"cost {first.total_cost_cents_per_h:,.2f} -> {second.total_cost_cents_per_h:,.2f} cents/h")
print(f"{len(second.changes)} of {len(system.servers)} servers change, {len(moved)} of them move")
for change in second.changes:
    before = ", ".join(f"{p.num_replicas} x {p.accelerator}" for p in change.before) or "nothing"
    after = ", ".join(f"{p.num_replicas} x {p.accelerator}" for p in change.after) or "nothing"
    print(f"  {change.server:<22}{before:>15} -> {after:<15}{change.cost_change_cents_per_h:+9.2f} cents/h")
