"""Sub-commands `analyze` and `size`, for one replica."""

import argparse
import json
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field

from optimizer.cli.command import Command, print_stderr, show_answer
from optimizer.cli.flags import add_request, given_values
from optimizer.cli.replica_flags import (
    TARGET_FLAGS,
    add_flags,
    add_targets,
    batch_server_of,
    batch_server_to_size,
    refuse_beside_batch,
    refuse_beside_document,
    replica_of,
    targets_of,
)
from optimizer.cli.solving import announced, announced_for
from optimizer.compat.queue_service import read_problems
from optimizer.compat.row_types import kind_of_row
from optimizer.documents import Document
from optimizer.errors import AnalysisError, SpecError
from optimizer.jobs.flag import Flag
from optimizer.jobs.requests import Request
from optimizer.kinds.batch_servers.rows import BatchAnswer, BatchRow
from optimizer.kinds.replicas import ReplicaPerformance, analyze_replicas, size_replicas
from optimizer.kinds.rows import Row, UnstableReplica
from optimizer.kinds.simulated import simulate_replica
from optimizer.profiles.replicas import EstimatedReplica
from optimizer.quantities import precise
from optimizer.render.current_sections import current_sections
from optimizer.render.replica_sections import performance_sections, sizing_sections
from optimizer.schema.files import lines_of, read_text
from optimizer.simulation.replicas import MAX_REQUESTS, Effort
from optimizer.simulation.summary import MIN_REQUESTS
from optimizer.spec.system import load_system
from optimizer.studies.current import current_service, with_rate
from optimizer.units import REQUESTS_PER_SECOND


class AnalyzeFlags(Request):
    """Flags of `analyze`: arrival rate and simulation."""

    rate: Annotated[float | None, Flag("REQ/S", REQUESTS_PER_SECOND)] = Field(None, gt=0, allow_inf_nan=False)
    """Arrival rate [requests/s]."""
    simulate: bool = False
    """Simulate the replica as well."""
    requests: Annotated[int | None, Flag("N")] = Field(None, ge=MIN_REQUESTS, le=MAX_REQUESTS)
    """Number of requests to simulate (20,000)."""
    seed: Annotated[int | None, Flag("S")] = Field(None, ge=0)
    """Random seed (1)."""


def _add_analyze(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path", metavar="PATH", nargs="?",
        help="a system: analyse every server at its current allocation (currentAlloc), with its targets",
    )  # fmt: skip
    add_request(parser, AnalyzeFlags, fields=("rate",))
    add_flags(parser, "performance", "simulated")
    add_request(parser.add_argument_group("simulation"), AnalyzeFlags, skipped=("rate",))


def _effort(arguments: argparse.Namespace) -> Effort | None:
    """Return the length and the seed of the requested simulation; None if none is requested."""
    given = given_values(arguments, ("requests", "seed"))
    if arguments.simulate:
        return Effort(**given)
    if given:
        raise SpecError(f"--{next(iter(given))}: nothing is simulated; add --simulate, or remove it")
    return None


def _analyze(arguments: argparse.Namespace) -> int | None:
    effort = _effort(arguments)
    if arguments.path is not None:
        _analyze_document(arguments)
        return None
    if arguments.batch is not None:
        refuse_beside_batch(arguments, ["rate"])
        return _answer_lines(arguments.batch, lambda row: row.analyze(), effort)

    row, rate_rps = batch_server_of(arguments, RPS=arguments.rate or 0.0), arguments.rate
    replica, named = (None, None) if row else replica_of(arguments)
    if rate_rps is None:
        raise SpecError("--rate: missing; give the arrival rate in requests/s")
    performance: ReplicaPerformance | BatchAnswer
    simulated: Any
    with announced():
        if row is None:
            assert replica is not None
            (performance,) = analyze_replicas([replica], [rate_rps])
            simulated = effort and simulate_replica(replica, rate_rps, effort)
        else:
            performance, simulated = _analyzed(row), effort and row.simulate(effort)
    show_answer(
        arguments,
        lambda: _values(performance, simulated, named),
        lambda: performance_sections(performance, simulated, named),
    )
    if isinstance(performance, ReplicaPerformance) and performance.offered_rps > performance.stable_rate_rps:
        print_stderr(
            f"inferplan: note: rate {precise(performance.offered_rps)} requests/s exceeds the stable maximum "
            f"{precise(performance.stable_rate_rps)}; {performance.loss:.1%} of the requests are rejected; "
            "the latencies are those of the others"
        )
    return None


def _analyze_document(arguments: argparse.Namespace) -> None:
    """Show the performance of every server of a document at its current allocation."""
    refuse_beside_document(arguments, ["batch", "simulate", "requests", "seed"])
    system = load_system(arguments.path)
    if arguments.rate is not None:
        system = with_rate(system, arguments.rate)
    with announced_for(system):
        current = current_service(system)
    show_answer(
        arguments, lambda: current.model_dump(mode="json", by_alias=True), lambda: current_sections(current)
    )


def _analyzed(row: BatchRow) -> BatchAnswer:
    performance = row.analyze()
    if isinstance(performance, UnstableReplica):
        raise AnalysisError(f"{performance.message}; lower it, or limit the queue")
    return performance


def _values(document: Document, simulated: Any, named: EstimatedReplica | None = None) -> dict[str, Any]:
    """Return the performance of one replica as plain values, with any simulation and estimated profile."""
    values: dict[str, Any] = document.model_dump(by_alias=True)
    if named is not None:
        values = {"estimated": named.end, "assumed": named.document()} | values
    if simulated is not None:
        values["simulated"] = simulated.model_dump(by_alias=True)
    return values


def _add_size(parser: argparse.ArgumentParser) -> None:
    add_targets(parser)
    add_flags(parser, "rates", "performance")


def _size(arguments: argparse.Namespace) -> int | None:
    if arguments.batch is not None:
        refuse_beside_batch(arguments, TARGET_FLAGS)
        return _answer_lines(arguments.batch, lambda row: row.size())

    row = batch_server_to_size(arguments)
    if row is not None:
        with announced():
            sized = row.size()
        show_answer(arguments, lambda: _values(sized, None), lambda: performance_sections(sized, None))
        return None
    targets = targets_of(arguments)
    replica, named = replica_of(arguments)
    (sizing,) = size_replicas([replica], [targets])
    if isinstance(sizing, AnalysisError):
        raise sizing
    show_answer(
        arguments, lambda: _values(sizing, None, named), lambda: sizing_sections(sizing, targets, named)
    )
    return None


def _answer_lines(path: str, answer: Callable[[Row], Document], effort: Effort | None = None) -> int:
    """Print one result or one error message for each line of a file of replicas; return the exit status."""
    bad = 0
    for problem in read_problems(lines_of(read_text(path)), kind_of_row):
        if isinstance(problem, SpecError):
            bad += 1
            print(json.dumps({"message": str(problem)}, ensure_ascii=False))
            continue
        try:
            answer_lines = answer(problem)
            if effort is None:
                print(answer_lines.model_dump_json(by_alias=True))
                continue
            with announced():
                simulated = problem.simulate(effort)
            print(json.dumps(_values(answer_lines, simulated), ensure_ascii=False, separators=(",", ":")))
        except (AnalysisError, SpecError) as error:
            print(json.dumps({"message": str(error)}, ensure_ascii=False))
    if bad:
        print_stderr(f"inferplan: error: {path}: {bad} line{'s' if bad > 1 else ''} could not be read")
    return 2 if bad else 0


COMMANDS = {"analyze": Command(_add_analyze, _analyze), "size": Command(_add_size, _size)}
