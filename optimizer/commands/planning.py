"""The sub-commands for systems: solve, check, candidates."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from optimizer.commands.command import Command, add_json, add_path, number, print_json

if TYPE_CHECKING:
    from optimizer.spec.system import System


def add_system_flags(parser: argparse.ArgumentParser) -> None:
    """Add what changes a system as it is read."""
    parser.add_argument("--load", metavar="CSV", help="loads by server, in place of the document's")
    parser.add_argument(
        "--batch-sizing", choices=["profile", "optimal"], help="batches of the profiles, or chosen ones"
    )


def read_system(arguments: argparse.Namespace, options: dict[str, object]) -> "System":
    """Read the system that the arguments name, with its loads and options replaced as they say."""
    from optimizer.spec.loads import with_loads
    from optimizer.spec.system import load_system

    given = options | {"batch_sizing": arguments.batch_sizing}
    system = load_system(arguments.path)
    system = system.with_options(**{name: value for name, value in given.items() if value is not None})
    return system if arguments.load is None else with_loads(system, arguments.load)


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Add the choice between a limited and an unlimited plan."""
    limits = parser.add_mutually_exclusive_group()
    limits.add_argument("--limited", action="store_true", help="keep to the units that exist")
    limits.add_argument("--unlimited", action="store_true", help="ignore the capacities")


def add_mixed(parser: argparse.ArgumentParser) -> None:
    """Add the choice of a mixed plan."""
    parser.add_argument("--mixed", action="store_true", help="let a server run on several accelerators")


def add_stopping(parser: argparse.ArgumentParser, time_limit: str) -> None:
    """Add when the solver may stop."""
    gap, limit = number(0, 1, "the gap"), number(0, 1e6, "the time limit", open_end=True)
    parser.add_argument(
        "--gap", metavar="G", type=gap, help="relative gap at which the solver may stop, 0 … 1"
    )
    parser.add_argument("--time-limit", metavar="S", type=limit, help=time_limit)


def _add_solve(parser: argparse.ArgumentParser) -> None:
    add_path(parser)
    add_limits(parser)
    add_mixed(parser)
    parser.add_argument("--solver", choices=["milp", "greedy"], help="exact, or the greedy baseline")
    add_system_flags(parser)
    parser.add_argument(
        "--backend", metavar="NAME", default="highs", help="MILP solver: highs, CBC, … (highs)"
    )
    add_stopping(parser, "time for the whole solve [s]")
    add_json(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, help="write the plan as JSON to FILE as well"
    )
    parser.add_argument(
        "--write-model",
        metavar="FILE",
        type=Path,
        help="write the model to FILE.lp or FILE.mps",
    )
    parser.add_argument(
        "--require-complete", action="store_true", help="exit with 3 unless every server is served in full"
    )
    parser.add_argument("--timings", action="store_true", help="write the time of each stage to stderr")


def _options(arguments: argparse.Namespace) -> dict[str, object]:
    """Return the optimizer options that flags override; none where a flag is not given."""
    from optimizer.errors import SpecError

    if arguments.mixed and arguments.solver == "greedy":
        raise SpecError("--mixed: the greedy solver plans one accelerator per server; remove one of the two")
    exact = None if arguments.solver is None else arguments.solver == "milp"
    if arguments.mixed:
        exact = True  # whatever the document says
    return {
        "gap": arguments.gap,
        "time_limit_s": arguments.time_limit,
        "unlimited": arguments.unlimited if arguments.limited or arguments.unlimited else None,
        "heterogeneous": arguments.mixed or None,
        "milp_solver": exact,
    }


def _solve(arguments: argparse.Namespace) -> int | None:
    from optimizer.pipeline import Timings, solve
    from optimizer.report.progress import working
    from optimizer.spec.files import write_text

    timings = Timings()
    with working("solving"):
        with timings.stage("read"):
            system = read_system(arguments, _options(arguments))
        plan = solve(system, backend=arguments.backend, write_model_to=arguments.write_model, timings=timings)
    if arguments.output is not None:
        write_text(plan.to_json() + "\n", arguments.output)
    if arguments.json:
        print(plan.to_json())
    else:
        from optimizer.report.tables import plan_tables, show

        show(plan_tables(plan, system), sys.stdout)
    if arguments.timings:
        for stage, seconds in timings.stages_s.items():
            print(f"{stage:<12}{seconds * 1000:10.1f} ms", file=sys.stderr)
    if arguments.require_complete:
        sys.stdout.flush()
        plan.raise_for_status()
    return None


def _check(arguments: argparse.Namespace) -> None:
    from optimizer.spec.system import load_system

    system = load_system(arguments.path)
    counts = (
        (len(system.servers), "server"),
        (len(system.service_classes), "service class"),
        (len({model for model, _ in system.profiles}), "model"),
        (len(system.profiles), "profile"),
        (len(system.accelerators), "accelerator"),
        (len(system.capacity), "capacity"),
    )
    print(f"{arguments.path}: good: " + ", ".join(_plural(number, noun) for number, noun in counts))


def _plural(number: int, noun: str) -> str:
    if number == 1:
        return f"1 {noun}"
    return f"{number} " + (
        noun[:-1] + "ies" if noun.endswith("y") else noun + ("es" if noun.endswith("s") else "s")
    )


def _add_candidates(parser: argparse.ArgumentParser) -> None:
    add_path(parser)
    add_system_flags(parser)
    add_json(parser)


def _candidates(arguments: argparse.Namespace) -> None:
    from optimizer.candidates import find_candidates
    from optimizer.report.progress import working

    with working("sizing"):
        candidates = find_candidates(read_system(arguments, {}))
    if arguments.json:
        print_json(candidates.to_wire())
    else:
        from optimizer.report.tables import candidate_tables, show

        show(candidate_tables(candidates), sys.stdout)


COMMANDS = {
    "solve": Command("find the least-cost plan of a system", _add_solve, _solve),
    "check": Command("say whether a system is well-formed, and what it holds", add_path, _check),
    "candidates": Command(
        "size every server on every accelerator, or say why it cannot run there", _add_candidates, _candidates
    ),
}
