"""Sub-commands for one replica: `analyze`, `size`."""

import argparse
import json
from collections.abc import Callable, Iterable
from typing import Annotated, Any

from optimizer.cli import batch_servers, replica_flags
from optimizer.cli.command import Command, print_stderr, show_answer
from optimizer.cli.flags import add_request, given_values
from optimizer.cli.solving import announced
from optimizer.compat.queue_service import read_problems
from optimizer.compat.row_types import kind_of_row
from optimizer.documents import Document
from optimizer.errors import AnalysisError, SpecError
from optimizer.jobs.flag import Flag
from optimizer.jobs.requests import Request
from optimizer.kinds.batch_servers.rows import BatchAnswer
from optimizer.kinds.replicas import LatencyTargets, Replica, analyze_replicas, size_replicas
from optimizer.kinds.rows import Row
from optimizer.kinds.simulated import simulate_replica
from optimizer.profiles.replicas import EstimatedReplica
from optimizer.quantities import precise
from optimizer.render.replica_sections import batch_sections, performance_sections, sizing_sections
from optimizer.schema.files import lines_of, read_text
from optimizer.schema.messages import validated
from optimizer.simulation.replicas import Effort
from optimizer.units import MILLISECONDS, REQUESTS_PER_SECOND

_Target = Annotated[float | None, Flag("MS", MILLISECONDS)]


class AnalyzeFlags(Request):
    """Rate and simulation of a replica."""

    rate: Annotated[float | None, Flag("REQ/S", REQUESTS_PER_SECOND)] = None
    """Arrival rate [requests/s]."""
    simulate: bool = False
    """Simulate the replica as well."""
    requests: Annotated[int | None, Flag("N")] = None
    """Requests to simulate (20,000)."""
    seed: Annotated[int | None, Flag("S")] = None
    """Random seed (1)."""


class SizeFlags(Request):
    """Targets of a replica."""

    target_ttft: _Target = None
    """Time to first token [ms]; 0: none."""
    target_itl: _Target = None
    """Inter-token latency [ms]; 0: none."""
    target_e2e: _Target = None
    """Time to the last token [ms]; 0: none."""
    percentile: Annotated[float | None, Flag("P")] = None
    """Percentile at which the targets must hold (the mean)."""
    throughput_target: bool = False
    """Cap the rate at 0.9 of the largest stable one, as slo-tps does."""


def _add_analyze(parser: argparse.ArgumentParser) -> None:
    add_request(parser, AnalyzeFlags, fields=("rate",))
    replica_flags.add_flags(parser, "performance", "simulated")
    add_request(parser.add_argument_group("simulation"), AnalyzeFlags, skipped=("rate",))


def _effort(arguments: argparse.Namespace) -> Effort | None:
    """Return the length and seed of the simulation; None if nothing is simulated."""
    given = given_values(arguments, ("requests", "seed"))
    if not arguments.simulate:
        if given:
            raise SpecError(f"--{next(iter(given))}: nothing is simulated; add --simulate, or remove it")
        return None

    return Effort(**given)


def _simulated(replica: Replica, rate_rps: float, effort: Effort) -> Any:
    """Return the simulated performance of a replica, or a result that it is overloaded."""
    with announced():
        return simulate_replica(replica, rate_rps, effort)


def _simulated_row(row: Row, effort: Effort) -> Any:
    """Return the simulated performance of a row, or a result that it is overloaded."""
    with announced():
        return row.simulate(effort)


def _analyze(arguments: argparse.Namespace) -> int | None:
    effort = _effort(arguments)
    if arguments.batch is not None:
        _refuse_beside_batch(arguments, ["rate"])
        return _answer_lines(arguments.batch, lambda row: row.analyze(), effort)

    rate_rps = arguments.rate
    row = batch_servers.batch_server_row(arguments, replica_flags.TOKEN_FLAGS, rate_rps or 0.0)
    named = replica_flags.estimated_of(arguments) if row is None else None
    replica: Any = row or (named and named.replica) or replica_flags.replica_of(arguments)
    if rate_rps is None:
        raise SpecError("--rate: missing; give the arrival rate in requests/s")
    if row is not None:
        with announced():
            answer = batch_servers.analyzed(row)
        _show_batch_server(arguments, answer, effort and _simulated_row(row, effort))
        return None

    found = analyze_replicas([replica], [rate_rps])[0]
    simulated = None if effort is None else _simulated(replica, rate_rps, effort)
    show_answer(
        arguments,
        lambda: _values(found, simulated, named),
        lambda: performance_sections(found, simulated, named),
    )
    if found.offered_rps > found.stable_rate_rps:
        print_stderr(
            f"inferplan: note: rate {precise(found.offered_rps)} requests/s exceeds the stable maximum "
            f"{precise(found.stable_rate_rps)}; {found.loss:.1%} of the requests are rejected; "
            "the latencies are those of the others"
        )
    return None


def _show_batch_server(arguments: argparse.Namespace, found: BatchAnswer, simulated: Any = None) -> None:
    show_answer(arguments, lambda: _values(found, simulated), lambda: batch_sections(found, simulated))


def _values(found: Any, simulated: Any, named: EstimatedReplica | None = None) -> dict[str, Any]:
    """Return the performance of one server, with its simulation and estimated profile, if any."""
    values: dict[str, Any] = found.model_dump(by_alias=True)
    if named is not None:
        values = {"estimated": named.end, "assumed": named.document()} | values
    if simulated is not None:
        values["simulated"] = simulated.model_dump(by_alias=True)
    return values


def _add_size(parser: argparse.ArgumentParser) -> None:
    add_request(parser, SizeFlags)
    replica_flags.add_flags(parser, "rates", "performance")


def _size(arguments: argparse.Namespace) -> int | None:
    if arguments.batch is not None:
        _refuse_beside_batch(arguments, SizeFlags.model_fields)
        return _answer_lines(arguments.batch, lambda row: row.size())

    row = batch_servers.row_to_size(arguments, replica_flags.TOKEN_FLAGS, arguments.percentile)
    if row is not None:
        with announced():
            sized = row.size()
        _show_batch_server(arguments, sized)
        return None
    wanted = {
        "ttft": arguments.target_ttft or 0.0,
        "itl": arguments.target_itl or 0.0,
        "e2e": arguments.target_e2e or 0.0,
        "percentile": arguments.percentile,
        "tps": bool(arguments.throughput_target),
    }
    try:
        targets = validated(LatencyTargets, wanted)
    except SpecError as error:
        flag = "--" if str(error).startswith("percentile") else "--target-"
        raise SpecError(f"{flag}{error}") from None
    named = replica_flags.estimated_of(arguments)
    sizing = size_replicas([named.replica if named else replica_flags.replica_of(arguments)], [targets])[0]
    if isinstance(sizing, AnalysisError):
        raise sizing
    show_answer(
        arguments, lambda: _values(sizing, None, named), lambda: sizing_sections(sizing, targets, named)
    )
    return None


def _refuse_beside_batch(arguments: argparse.Namespace, own: Iterable[str]) -> None:
    """Reject flags that describe a replica if ``--batch`` is given, because its lines describe replicas."""
    given = given_values(arguments, (*replica_flags.TOKEN_FLAGS, *batch_servers.OWN_FLAGS, *own))
    if given:
        flag = next(iter(given)).replace("_", "-")
        raise SpecError(f"--batch: reads all values from its lines; remove --{flag}")


def _answer_lines(
    path: str,
    answer: Callable[[Row], Document],
    effort: Effort | None = None,
) -> int:
    """Print one result or error message for each line of the file; return the exit status."""
    bad = 0
    for problem in read_problems(lines_of(read_text(path)), kind_of_row):
        if isinstance(problem, SpecError):
            bad += 1
            print(json.dumps({"message": str(problem)}, ensure_ascii=False))
            continue
        try:
            found = answer(problem)
            if effort is None:
                print(found.model_dump_json(by_alias=True))
                continue
            simulated = _simulated_row(problem, effort)
            print(json.dumps(_values(found, simulated), ensure_ascii=False, separators=(",", ":")))
        except (AnalysisError, SpecError) as error:
            print(json.dumps({"message": str(error)}, ensure_ascii=False))
    if bad:
        print_stderr(f"inferplan: error: {path}: {bad} line{'s' if bad > 1 else ''} could not be read")
    return 2 if bad else 0


COMMANDS = {"analyze": Command(_add_analyze, _analyze), "size": Command(_add_size, _size)}
