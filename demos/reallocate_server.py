"""Double the load of one server: cost of the fleet if it scales in place, and if it can move."""

from pathlib import Path

from optimizer import load_system, solve

SERVER = "Premium-llama3_8b"

system = load_system(Path(__file__).parent.parent / "specs" / "large")
first = solve(system)
running = first.applied_to(system)
rate = running.servers[SERVER].current.load.arrival_rate_rpm
busier = running.with_load(SERVER, arrival_rate_rpm=2 * rate)
held = busier.with_items(busier.servers[SERVER].model_copy(update={"keep_accelerator": True}))

print(f"{SERVER}: {rate:g} -> {2 * rate:g} requests/min")
for what, variant in (("scaled where it runs", held), ("free to move", busier)):
    plan = solve(variant)
    difference = plan.total_cost_cents_per_h - first.total_cost_cents_per_h
    print(f"{what}: the fleet costs {difference:+.2f} cents/h")
    for change in plan.changes:
        before = ", ".join(f"{p.num_replicas} x {p.accelerator}" for p in change.before)
        after = ", ".join(f"{p.num_replicas} x {p.accelerator}" for p in change.after)
        print(
            f"  {change.server:<22}{before:>15} -> {after:<15}{change.cost_change_cents_per_h:+9.2f} cents/h"
        )
