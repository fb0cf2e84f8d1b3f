"""The figures of the page about shared queues; run it to write them into the page."""

import re
import subprocess
import sys
from pathlib import Path

from optimizer import Plan, System, load_system, solve

ROOT = Path(__file__).resolve().parent.parent
SPEC = ROOT / "specs" / "shared-queue.yaml"
PAGE = ROOT / "docs" / "scenarios" / "shared-queue.md"


def alone(system: System) -> System:
    """Return the system with a queue of its own for each server."""
    document = system.to_spec().model_dump(mode="json", by_alias=True)
    for server in document["servers"]:
        server.pop("sharedQueue", None)
    return load_system(document)


def _pools(plan: Plan) -> str:
    pools = [pool for _, pools in sorted(plan.allocations.items()) for pool in pools]
    return " + ".join(f"{pool.num_replicas} × {pool.accelerator}" for pool in pools)


def saves() -> list[str]:
    """Return the table of plans with and without the queue."""
    system = load_system(SPEC)
    rows = ["| unlimited plan | replicas | cents/h |", "|---|---|---|"]
    for name, mine in (("each server alone", alone(system)), ("shared queue", system)):
        plan = solve(mine, unlimited=True)
        rows.append(f"| {name} | {_pools(plan)} | {plan.total_cost_cents_per_h:.0f} |")
    return rows


def scarce() -> list[str]:
    """Return the table of what is served with fewer cards."""
    rows = [
        "| H100 | policy | replicas | premium | standard | free | TTFT of premium |",
        "|---|---|---|---|---|---|---|",
    ]
    for cards, policy in ((3, "None"), (2, "None"), (2, "PriorityExhaustive")):
        plan = solve(load_system(SPEC).with_capacity({"H100": cards}), saturation_policy=policy)
        share = {item.server: item.served_fraction for item in plan.unserved}
        served = " | ".join(f"{share.get(name, 1.0):.0%}" for name in ("premium", "standard", "free"))
        ttft = plan.shared_queues["chat"].members["premium"].ttft_ms
        rows.append(f"| {cards} | {policy} | {_pools(plan)} | {served} | {ttft:.0f} ms |")
    return rows


def solved() -> str:
    """Return the output of solve."""
    command = [sys.executable, "-m", "optimizer", "solve", "specs/shared-queue.yaml"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.rstrip()


def written(page: str) -> str:
    """Return the page with the figures of the program."""
    page = re.sub(r"```text\n.*?\n```", lambda _: f"```text\n{solved()}\n```", page, count=1, flags=re.DOTALL)
    tables = iter((saves(), scarce()))
    return re.sub(
        r"(?:^\|.*\n)+|^@@\w+@@\n", lambda _: "\n".join(next(tables)) + "\n", page, flags=re.MULTILINE
    )


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
