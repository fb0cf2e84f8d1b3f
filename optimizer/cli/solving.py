"""Flags for loads and a cluster, and contexts that show progress on stderr."""

import argparse
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from optimizer.cli.command import one_line, print_stderr
from optimizer.cli.flags import add_request, in_flags, request_of
from optimizer.cluster import on_cluster
from optimizer.errors import SpecError
from optimizer.jobs.requests import LoadFiles, PlanOptions, Request, RequestError
from optimizer.parallel import Progress
from optimizer.pipeline import solve
from optimizer.plan import Plan, load_plan
from optimizer.plan.document import PlanWarning
from optimizer.render.progress import counting, working
from optimizer.simulation.engine import announcing_compilation
from optimizer.spec.system import System, load_system


def add_cluster(parser: argparse.ArgumentParser, work: str = "simulate") -> None:
    """Add the flag ``--cluster``, the address of a dask cluster that does the work named by `work`."""
    parser.add_argument(
        "--cluster", metavar="ADDRESS", help=f"{work} on a dask cluster: tcp://HOST:PORT of its scheduler"
    )


def check_simulates(arguments: argparse.Namespace) -> None:
    """Reject flags of simulations if ``--simulate`` is not given.

    Raises:
        SpecError: one of them is given.
    """
    for name in () if arguments.simulate else ("requests", "seed", "cluster"):
        if getattr(arguments, name) is not None:
            raise SpecError(f"--{name}: requires --simulate")


@contextmanager
def simulating(arguments: argparse.Namespace) -> Iterator[Progress]:
    """Context manager in which simulations run locally, or on the cluster of the arguments, with progress."""
    compiled_here = announced() if arguments.cluster is None else nullcontext()
    with with_progress("simulating", arguments) as progress, compiled_here:
        yield progress


@contextmanager
def with_progress(what: str, arguments: argparse.Namespace) -> Iterator[Progress]:
    """Context manager in which work runs locally, or on the arguments' cluster, with progress on stderr."""
    place = nullcontext() if arguments.cluster is None else on_cluster(arguments.cluster)
    with place, counting(what) as progress:
        yield progress


def announced(what: str = "the simulator") -> AbstractContextManager[None]:
    """Context manager that prints a note on stderr if its body compiles code."""
    return announcing_compilation(
        lambda: print_stderr(f"inferplan: compiling {what}; this happens once and takes up to half a minute")
    )


def announced_for(system: System) -> AbstractContextManager[None]:
    """Context manager that prints a note on stderr if planning the system compiles queue models."""
    compiled = [kind.name for kind in system.server_kinds() if kind.compiles_queues]
    return announced(f"the queues of {compiled[0]}") if compiled else nullcontext()


def read_or_solve(system: System, options: PlanOptions, path: Path | None) -> Plan:
    """Return the plan in a file, or else the best plan of a system, with progress and notes on stderr."""
    if path is not None:
        return load_plan(path)
    with working("solving"), announced_for(system):
        return solve(system, backend=options.backend)


def add_load(parser: argparse.ArgumentParser) -> None:
    """Add the flags ``--load``, ``--from-trace`` and ``--shapes``, which replace loads of the document."""
    add_request(parser, LoadFiles)


def show_warnings(warnings: Iterable[PlanWarning]) -> None:
    """Write the warnings about a system to stderr, one line each."""
    for warning in warnings:
        print_stderr(f"inferplan: warning: {one_line(str(warning))}")


def read_system(arguments: argparse.Namespace, options: Request) -> System:
    """Read the system that the arguments name, and apply the loads and options that they set."""
    try:
        system = request_of(LoadFiles, arguments).with_files(load_system(arguments.path))
    except RequestError as error:
        raise in_flags(error, arguments) from None
    return options.applied(system)
