"""The figures of the page about routes; run it to write them into the page."""

import re
import subprocess
import sys
from pathlib import Path

from optimizer import Plan, load_system, solve

ROOT = Path(__file__).resolve().parent.parent
SPEC = ROOT / "specs" / "routes.yaml"
PAGE = ROOT / "docs" / "scenarios" / "routes.md"
LIMITS = (0.0, 0.01, 0.02, 0.04, 1.0)


def _pools(plan: Plan, server: str) -> str:
    return " + ".join(f"{pool.num_replicas} × {pool.accelerator}" for pool in plan.allocations[server]) or "-"


def limits() -> list[str]:
    """Return the table of plans with other limits on the lost quality."""
    rows = ["| maxLoss | cents/h | small model | large model | saving |", "|---|---|---|---|---|"]
    system = load_system(SPEC)
    for limit in LIMITS:
        route = system.routes["chat"].model_copy(update={"max_loss": limit})
        plan = solve(system.with_routes({"chat": route}))
        saving = 100 * (plan.routes["chat"].saving or 0.0)
        pools = f"{_pools(plan, 'chat-8b')} | {_pools(plan, 'chat-70b')}"
        rows.append(f"| {limit:.0%} | {plan.total_cost_cents_per_h:,.0f} | {pools} | {saving:.1f} % |")
    return rows


def solved() -> str:
    """Return the output of solve."""
    command = [sys.executable, "-m", "optimizer", "solve", "specs/routes.yaml"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.rstrip()


def written(page: str) -> str:
    """Return the page with the figures of the program."""
    text = f"```text\n{solved()}\n```"
    page = re.sub(r"```text\n(?:.*?\n)?```", lambda _: text, page, count=1, flags=re.DOTALL)
    return re.sub(r"(?:^\|.*\n)+", lambda _: "\n".join(limits()) + "\n", page, count=1, flags=re.MULTILINE)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
