"""Flags for solver options and load, and the options that they set."""

import argparse
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from optimizer.cli.command import print_stderr
from optimizer.cluster import on_cluster
from optimizer.errors import SpecError
from optimizer.jobs.requests import Request
from optimizer.render.progress import counting
from optimizer.simulation.engine import announcing_compilation
from optimizer.spec.loads import with_loads
from optimizer.spec.system import System, load_system
from optimizer.studies.simulation.plans import Progress


def add_cluster(parser: argparse.ArgumentParser, work: str = "simulate") -> None:
    """Add the flag for the address of a cluster that does the work."""
    parser.add_argument(
        "--cluster", metavar="ADDRESS", help=f"{work} on a dask cluster: tcp://HOST:PORT of its scheduler"
    )


def check_simulates(arguments: argparse.Namespace) -> None:
    """Reject flags of simulations without ``--simulate``.

    Raises:
        SpecError: one of them is given.
    """
    for name in () if arguments.simulate else ("requests", "seed", "cluster"):
        if getattr(arguments, name) is not None:
            raise SpecError(f"--{name}: requires --simulate")


@contextmanager
def simulating(arguments: argparse.Namespace) -> Iterator[Progress]:
    """Context for simulating, locally or on the named cluster, with progress on stderr."""
    compiled_here = announced() if arguments.cluster is None else nullcontext()
    with with_progress("simulating", arguments) as progress, compiled_here:
        yield progress


@contextmanager
def with_progress(what: str, arguments: argparse.Namespace) -> Iterator[Progress]:
    """Context for work that reports progress on stderr, locally or on the named cluster."""
    place = nullcontext() if arguments.cluster is None else on_cluster(arguments.cluster)
    with place, counting(what) as progress:
        yield progress


def announced(what: str = "the simulator") -> AbstractContextManager[None]:
    """Context that announces on stderr if code is compiled first."""
    return announcing_compilation(
        lambda: print_stderr(f"inferplan: compiling {what}; this happens once and takes up to half a minute")
    )


def announced_for(system: System) -> AbstractContextManager[None]:
    """Context that announces on stderr if queues are compiled first; other plans load no compiler."""
    compiled = [kind.name for kind in system.server_kinds() if kind.compiles_queues]
    return announced(f"the queues of {compiled[0]}") if compiled else nullcontext()


def add_load(parser: argparse.ArgumentParser) -> None:
    """Add the flag that replaces the loads of the document."""
    parser.add_argument("--load", metavar="CSV", help="loads by server, which replace those of the document")


def read_system(arguments: argparse.Namespace, options: Request) -> System:
    """Read the system that the arguments name, and apply the loads and options that they set."""
    system = load_system(arguments.path)
    return options.applied(system if arguments.load is None else with_loads(system, arguments.load))
