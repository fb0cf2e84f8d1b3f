"""Sub-command `verify`: checks existing plans."""

import argparse
from pathlib import Path

from optimizer.cli.command import Command, print_json, print_stderr
from optimizer.cli.flags import add_request, request_of
from optimizer.cli.solving import add_load, read_system
from optimizer.jobs.requests import PlanOptions
from optimizer.jobs.verifying import verify_plan
from optimizer.plan import load_plan
from optimizer.plan.proof import load_proof

NOT_HELD = 4
"""Exit status if a plan or its proof is wrong; equal to that of a solve whose result fails verification."""
MAX_SHOWN = 10
"""Maximum number of mistakes that are listed for a plan."""


def _add_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="plan written by `solve -o` (JSON), or - for stdin")
    parser.add_argument("path", metavar="SYSTEM", help="system of the plan; give the same flags as for solve")
    add_request(parser, PlanOptions)
    add_load(parser)
    parser.add_argument(
        "--proof", metavar="FILE", type=Path, help="check the plan's bounds by the multipliers in FILE"
    )
    parser.add_argument("--json", action="store_true", help="write the findings as JSON")


def _verify(arguments: argparse.Namespace) -> int:
    plan = load_plan(arguments.plan)
    proof = None if arguments.proof is None else load_proof(arguments.proof)
    system = read_system(arguments, request_of(PlanOptions, arguments))
    verification = verify_plan(plan, system, proof)
    if arguments.json:
        print_json(
            {"holds": not verification.wrong, "wrong": verification.wrong, "open": verification.open_points}
        )
        return NOT_HELD if verification.wrong else 0
    for line in verification.wrong[:MAX_SHOWN]:
        print_stderr(f"inferplan: error: {line}")
    if len(verification.wrong) > MAX_SHOWN:
        print_stderr(f"inferplan: error: {len(verification.wrong) - MAX_SHOWN} more; --json shows all")
    if any(len(pools) > 1 for pools in plan.allocations.values()) and not system.options.heterogeneous:
        print_stderr(
            "inferplan: note: this is a mixed plan; if it was solved with --mixed, verify it with --mixed"
        )
    partly = any(0 < item.served_fraction < 1 for item in plan.unserved)
    if partly and system.options.saturation_policy == "None":
        print_stderr(
            "inferplan: note: this plan serves in part; if it was solved with --saturation, verify it with it"
        )
    for line in verification.open_points:
        print_stderr(f"inferplan: note: {line}")
    if verification.wrong:
        return NOT_HELD
    proved = (
        "" if proof is None else f"; {_of_levels(len(plan.levels) - len(verification.open_points))} proved"
    )
    print(f"{arguments.plan}: the plan holds{proved}")
    return 0


def _of_levels(count: int) -> str:
    return f"the bound of {count} level" if count == 1 else f"the bounds of {count} levels"


COMMANDS = {"verify": Command(_add_verify, _verify)}
