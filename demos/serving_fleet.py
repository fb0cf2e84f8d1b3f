"""Plan a serving fleet: three classes in one queue, and simple requests at a small model.

Explained in docs/scenarios/serving-fleet.md.
"""

from pathlib import Path

from optimizer import load_system, solve

LARGE_USD, SMALL_USD = 30, 2  # per million tokens

fleet = load_system(Path(__file__).parent.parent / "specs" / "serving-fleet")
plan = solve(fleet)
print(f"{plan.total_cost_cents_per_h / 100:.2f} USD/h, {plan.status}\n")

print("first token of 95 % of the requests, in ms")
for queue, use in plan.shared_queues.items():
    (pool,) = plan.allocations[queue]
    print(f"  {queue} on {pool.num_replicas} x {pool.accelerator}")
    for server, member in use.members.items():
        (ttft,) = (each for each in member.targets if each.measure == "p95 TTFT")
        print(f"    {server:<12}{ttft.value:>6,.0f} of {ttft.limit:>6,.0f}")

print(f"\nsaving of routes: at {LARGE_USD} and {SMALL_USD} USD per million tokens, and in whole replicas")
for name, route in plan.routes.items():
    again = route.rerun_rpm / route.arrival_rate_rpm
    by_tokens = route.small_token_share * (1 - SMALL_USD / LARGE_USD) - again
    print(
        f"  {name:<14}{route.small_token_share:>4.0%} of the tokens at the small model"
        f"{by_tokens:>7.1%}{route.saving:>7.1%}"
    )
