"""Plan prefill and decode pools where they pay, and simulate both pools together.

Explained in docs/scenarios/disaggregated.md.
"""

from pathlib import Path

from optimizer import load_system, solve
from optimizer.simulation.replicas import Effort
from optimizer.studies.simulation.plans import simulate_pools

fleet = load_system(Path(__file__).parent.parent / "specs" / "disaggregated")
plan = solve(fleet)
print(f"{plan.total_cost_cents_per_h / 100:.2f} USD/h, {plan.status}\n")

print(f"{'server':<11}{'prefill + decode':<24}{'replicas that do both':<26}why")
for name, use in plan.disaggregation.items():
    cells = []
    for way in (use.disaggregated_alternative, use.aggregated_alternative):
        assert way is not None
        counts = " + ".join(f"{count} {accelerator}" for accelerator, count in way.replicas.items())
        cells.append(f"{counts}: {way.cost_cents_per_h / 100:.2f}")
    print(f"{name:<11}{cells[0]:<24}{cells[1]:<26}{use.reason}")

print("\nsimulated together, in ms")
for pool in simulate_pools(fleet, plan, Effort(requests=5_000)).pools:
    for check in pool.targets:
        figures = f"{check.simulated.value:>7,.1f} of {check.limit:>7,.1f}"
        print(f"  {pool.server:<20} {check.target:<9}{figures}  {check.verdict}")
