"""Flags for solver options and load, and the options that they set."""

import argparse
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from optimizer.cli.command import print_stderr
from optimizer.cli.flags import add_request, in_flags, request_of
from optimizer.cluster import on_cluster
from optimizer.errors import SpecError
from optimizer.jobs import RepairRequest, SimulateRequest, repair_plan, simulate_plan
from optimizer.jobs.requests import PlanOptions, Request, RequestError
from optimizer.jobs.simulating import EffortOptions
from optimizer.render.progress import counting
from optimizer.simulation.engine import announcing_compilation
from optimizer.spec.loads import with_loads
from optimizer.spec.system import System, load_system
from optimizer.studies.simulation.document import RepairedPlan, Simulation
from optimizer.studies.simulation.plans import Progress


def add_solving_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that override the document's options, and the choice of the MILP solver."""
    add_request(parser, PlanOptions)
    add_backend(parser)


def add_backend(parser: argparse.ArgumentParser) -> None:
    """Add the choice of the MILP solver."""
    parser.add_argument(
        "--backend", metavar="NAME", default="highs", help="MILP solver: highs, CBC, … (highs)"
    )


def solving_options(arguments: argparse.Namespace, model: type[Request] = PlanOptions) -> dict[str, object]:
    """Return the optimizer options that the flags override, by their Python names.

    Raises:
        SpecError: the flags contradict each other.
    """
    return request_of(model, arguments).given()


def add_effort(parser: argparse.ArgumentParser) -> None:
    """Add the length and the seed of simulations, and the cluster."""
    add_request(parser, EffortOptions, skipped=PlanOptions.model_fields)
    add_cluster(parser)


def add_cluster(parser: argparse.ArgumentParser, work: str = "simulate") -> None:
    """Add the address of a cluster that does the work."""
    parser.add_argument(
        "--cluster", metavar="ADDRESS", help=f"{work} on a dask cluster: tcp://HOST:PORT of its scheduler"
    )


def check_simulates(arguments: argparse.Namespace) -> None:
    """Reject flags of simulations without ``--simulate``.

    Raises:
        SpecError: one is given.
    """
    for name in () if arguments.simulate else ("requests", "seed", "cluster"):
        if getattr(arguments, name) is not None:
            raise SpecError(f"--{name}: requires --simulate")


def simulated(request: SimulateRequest, arguments: argparse.Namespace) -> Simulation:
    """Return the simulation of a plan; progress and the first compilation show on stderr.

    Raises:
        SpecError: the parts of the request contradict each other, in terms of flags.
    """
    with simulating(arguments) as progress:
        try:
            return simulate_plan(request, progress)
        except RequestError as error:
            raise in_flags(error, arguments) from None


def repaired(request: RepairRequest, arguments: argparse.Namespace) -> RepairedPlan:
    """Return a plan that is repaired after its simulation; progress shows on stderr."""
    with simulating(arguments) as progress:
        return repair_plan(request, progress)


@contextmanager
def simulating(arguments: argparse.Namespace) -> Iterator[Progress]:
    """Simulate in the body, here or on the cluster that is named; progress shows on stderr."""
    compiled_here = announced() if arguments.cluster is None else nullcontext()
    with counted("simulating", arguments) as progress, compiled_here:
        yield progress


@contextmanager
def counted(what: str, arguments: argparse.Namespace) -> Iterator[Progress]:
    """Work in the body, here or on the cluster that is named; progress shows on stderr."""
    place = nullcontext() if arguments.cluster is None else on_cluster(arguments.cluster)
    with place, counting(what) as progress:
        yield progress


def announced(what: str = "the simulator") -> AbstractContextManager[None]:
    """Announce on stderr if something is compiled first."""
    return announcing_compilation(
        lambda: print_stderr(f"inferplan: compiling {what}; this happens once and takes up to half a minute")
    )


def announced_for(system: System) -> AbstractContextManager[None]:
    """Announce on stderr if the queues of a kind are compiled first; other plans load no compiler."""
    compiled = [kind.name for kind in system.server_kinds() if kind.compiles_queues]
    return announced(f"the queues of {compiled[0]}") if compiled else nullcontext()


def add_load(parser: argparse.ArgumentParser) -> None:
    """Add the flag that replaces the loads of the document."""
    parser.add_argument("--load", metavar="CSV", help="loads by server, which replace those of the document")


def read_system(arguments: argparse.Namespace, options: Mapping[str, object]) -> System:
    """Read the system that the arguments name, with its loads and options replaced as they say."""
    system = load_system(arguments.path).with_options(**options)
    return system if arguments.load is None else with_loads(system, arguments.load)
