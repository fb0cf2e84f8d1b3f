"""The flags that say how to solve and for which load, and what they stand for."""

import argparse
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from optimizer.cli.command import number, tell
from optimizer.units import SECONDS, SHARE

if TYPE_CHECKING:
    from optimizer.jobs import LoadChange, RepairRequest, SimulateRequest, SolveOptions
    from optimizer.spec.system import System
    from optimizer.studies.simulation.document import RepairedPlan, Simulation
    from optimizer.studies.simulation.plans import Progress

POLICIES = ("None", "PriorityExhaustive", "PriorityRoundRobin", "RoundRobin")
"""Saturation policies; a test holds them to those of documents."""


def add_batch_sizing(parser: argparse.ArgumentParser) -> None:
    """Add the choice of batch sizes."""
    parser.add_argument(
        "--batch-sizing", choices=["profile", "optimal"], help="the profiles' batch limits, or chosen ones"
    )


def add_estimates(parser: argparse.ArgumentParser) -> None:
    """Add the choice of the end of the intervals of estimates."""
    parser.add_argument(
        "--estimates",
        choices=["upper", "middle", "lower"],
        help="end of the interval of estimated token times: slow, the middle, or fast (upper)",
    )


def add_exact_flags(parser: argparse.ArgumentParser, time_limit: str) -> None:
    """Add the flags that override the document's options where the exact solver is used in any case."""
    _add_plan_flags(parser)
    add_batch_sizing(parser)
    add_estimates(parser)
    _add_stopping(parser, time_limit)


def add_solving_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that override the document's options, and the choice of the MILP solver."""
    _add_plan_flags(parser)
    parser.add_argument("--solver", choices=["milp", "greedy"], help="exact, or the greedy baseline")
    add_batch_sizing(parser)
    add_estimates(parser)
    parser.add_argument(
        "--backend", metavar="NAME", default="highs", help="MILP solver: highs, CBC, … (highs)"
    )
    _add_stopping(parser, "time limit of the solve [s]")


def _add_plan_flags(parser: argparse.ArgumentParser) -> None:
    limits = parser.add_mutually_exclusive_group()
    limits.add_argument("--limited", action="store_true", help="stay within the cards that exist")
    limits.add_argument("--unlimited", action="store_true", help="ignore the capacities")
    parser.add_argument("--mixed", action="store_true", help="let a server run on several accelerators")
    parser.add_argument(
        "--saturation",
        metavar="POLICY",
        type=_policy,
        choices=POLICIES,
        help=f"who is served in part if not everything fits: {', '.join(POLICIES)}",
    )


def _policy(text: str) -> str:
    """Return a policy as documents spell it, whatever its case."""
    return {name.lower(): name for name in POLICIES}.get(text.lower(), text)


def _add_stopping(parser: argparse.ArgumentParser, time_limit: str) -> None:
    gap = number(0, 1, "the gap", scale=SHARE)
    limit = number(0, 1e6, "the time limit", open_end=True, scale=SECONDS)
    parser.add_argument(
        "--gap", metavar="G", type=gap, help="relative gap at which the solver may stop, 0 … 1"
    )
    parser.add_argument("--time-limit", metavar="S", type=limit, help=time_limit)


def solve_options_of(arguments: argparse.Namespace) -> "SolveOptions":
    """Return the options for solving that the flags give.

    Raises:
        SpecError: they contradict each other.
    """
    from optimizer.errors import SpecError
    from optimizer.jobs import RequestError, SolveOptions

    options = SolveOptions(
        unlimited=arguments.unlimited if arguments.limited or arguments.unlimited else None,
        mixed=arguments.mixed or None,
        solver=getattr(arguments, "solver", None),
        batch_sizing=arguments.batch_sizing,
        gap=arguments.gap,
        time_limit_s=arguments.time_limit,
        saturation=arguments.saturation,
        estimates=arguments.estimates,
    )
    try:
        options.given()
    except RequestError as error:
        raise SpecError(error.said(lambda field: flag_of(field, arguments))) from None
    return options


def flag_of(field: str, arguments: argparse.Namespace) -> str:
    """Return the flag that gives a field of a request."""
    if field == "unlimited" and arguments.limited:
        return "--limited"
    return "--" + {"csv": "load"}.get(field, field).replace("_", "-")


def solving_options(arguments: argparse.Namespace) -> dict[str, object]:
    """Return the optimizer options that the flags override, by their Python names; only those that are given.

    Raises:
        SpecError: the flags contradict each other.
    """
    return solve_options_of(arguments).given()


def add_effort(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say how much to simulate."""
    parser.add_argument(
        "--requests", metavar="N", type=int, help="requests to the replica of each pool (20,000)"
    )
    parser.add_argument("--seed", metavar="S", type=int, help="seed of the random numbers (1)")
    parser.add_argument(
        "--cluster", metavar="ADDRESS", help="simulate on a dask cluster: tcp://HOST:PORT of its scheduler"
    )


def effort_given(arguments: argparse.Namespace, *, simulates: bool = True) -> dict[str, int]:
    """Return how much to simulate as far as the flags say it, by the names of the fields.

    Raises:
        SpecError: they say it where nothing is simulated.
    """
    from optimizer.errors import SpecError

    values = {name: getattr(arguments, name) for name in ("requests", "seed")}
    given = {name: value for name, value in values.items() if value is not None}
    if given and not simulates:
        raise SpecError(f"--{next(iter(given))}: says how much to simulate; add --simulate")
    if arguments.cluster is not None and not simulates:
        raise SpecError("--cluster: says where to simulate; add --simulate")
    return given


def simulated(request: "SimulateRequest", arguments: argparse.Namespace) -> "Simulation":
    """Return the simulation of a plan; progress and the first compilation show on stderr.

    Raises:
        SpecError: the parts of the request contradict each other, in terms of flags.
    """
    from optimizer.errors import SpecError
    from optimizer.jobs import RequestError, simulate_plan

    with simulating(arguments) as progress:
        try:
            return simulate_plan(request, progress)
        except RequestError as error:
            raise SpecError(error.said(lambda field: flag_of(field, arguments))) from None


def repaired(request: "RepairRequest", arguments: argparse.Namespace) -> "RepairedPlan":
    """Return a plan that is repaired after its simulation; progress shows on stderr."""
    from optimizer.jobs import repair_plan

    with simulating(arguments) as progress:
        return repair_plan(request, progress)


@contextmanager
def simulating(arguments: argparse.Namespace) -> "Iterator[Progress]":
    """Simulate in the body, here or on the cluster that is named; progress shows on stderr."""
    from optimizer.render.progress import counting

    if arguments.cluster is None:
        with counting("simulating") as progress, announced():
            yield progress
    else:
        from optimizer.cluster import on_cluster

        with on_cluster(arguments.cluster), counting("simulating") as progress:
            yield progress


def announced(what: str = "the simulator") -> AbstractContextManager[None]:
    """Say on stderr if something is compiled first."""
    from optimizer.simulation.engine import announcing_compilation

    return announcing_compilation(
        lambda: tell(f"inferplan: compiling {what}; this happens once and takes up to half a minute")
    )


def announced_for(system: "System") -> AbstractContextManager[None]:
    """Say on stderr if the queues of a kind are compiled first; other plans load no compiler."""
    compiled = [kind.name for kind in system.server_kinds() if kind.compiles_queues]
    return announced(f"the queues of {compiled[0]}") if compiled else nullcontext()


def add_load(parser: argparse.ArgumentParser) -> None:
    """Add the flag that replaces the loads of the document."""
    parser.add_argument("--load", metavar="CSV", help="loads by server, in place of the document's")


def read_system(arguments: argparse.Namespace, options: Mapping[str, object]) -> "System":
    """Read the system that the arguments name, with its loads and options replaced as they say."""
    from optimizer.spec.loads import with_loads
    from optimizer.spec.system import load_system

    system = load_system(arguments.path).with_options(**options)
    return system if arguments.load is None else with_loads(system, arguments.load)


def add_load_change(parser: argparse.ArgumentParser) -> None:
    """Add the flags that change the load: before and after."""
    loads = parser.add_mutually_exclusive_group()
    loads.add_argument("--load", metavar="CSV", help="after: loads by server, in place of the document's")
    loads.add_argument(
        "--scale", metavar="X", type=number(0, 1e6, "the factor"), help="after: every arrival rate times X"
    )
    loads.add_argument(
        "--random-load",
        metavar="SEED",
        type=_seed,
        help="after: every arrival rate times 0.5 … 1.5, every token length times 0.8 … 1.2, at random",
    )


def _seed(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r}: the seed must be an integer, at least 0")
    return int(text)


def load_change(arguments: argparse.Namespace) -> "LoadChange":
    """Return the change of the load that the flags ask for."""
    from optimizer.jobs import LoadChange

    return LoadChange(csv=arguments.load, scale=arguments.scale, random_load=arguments.random_load)
