"""Plan a system with any number of cards, and within its existing cards."""

from pathlib import Path

from optimizer import load_system, solve

system = load_system(Path(__file__).parent.parent / "specs" / "small")
for unlimited in (True, False):
    plan = solve(system, unlimited=unlimited)
    mode = "unlimited" if unlimited else "limited"
    print(f"{mode}: {plan.total_cost_cents_per_h:,.2f} cents/h, {plan.status}")
    for server, pools in plan.allocations.items():
        for pool in pools:
            print(
                f"  {server:<22}{pool.num_replicas:>4} x {pool.accelerator:<7} batch {pool.max_batch:>3}"
                f"  ITL {pool.itl_ms:>6.1f} ms  TTFT {pool.ttft_ms:>5.0f} ms"
            )
