"""Study that replays past loads."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from optimizer.jobs.flag import Flag
from optimizer.jobs.pictures import AnswerFormat, drawn
from optimizer.jobs.requests import ExactOptions
from optimizer.jobs.study import Study
from optimizer.render.replay_sections import replay_sections
from optimizer.spec.arguments import checks_documents
from optimizer.spec.load_traces import read_load_trace
from optimizer.spec.system import System
from optimizer.stabilisation.rules import RECOMMENDED, Rules, read_rules
from optimizer.studies.replay.loop_replay import LoopSettings
from optimizer.studies.replay.replay import FOLLOWED, each_alone, replay
from optimizer.studies.replay.replay_document import Replay
from optimizer.studies.replay.replay_figure import replay_figure
from optimizer.units import SECONDS


class ReplayOptions(ExactOptions):
    """Options of a replay of past loads, and optimizer options that override the document's."""

    loads: Annotated[str | Path, Flag("LOADS.csv", positional=True, only="command")]
    """CSV file of loads over time (see below), or a .jsonl file with records of the loop."""
    rules: Annotated[Path | None, Flag("FILE", only="command")] = None
    """File of stabilisation rules, as for serve --stabilise (all rules)."""
    each: bool = False
    """Also replay with each rule alone."""
    loop: bool = False
    """Also replay the control loop, perfect foresight, and the loop with several headrooms (docs/loop.md)."""
    late_cost: float = Field(20.0, ge=0, le=10_000)
    """Cost of a late request for the loop, in costs of serving one request (20)."""
    queue: Literal["common", "own"] = "own"
    """For the loop: whether the replicas of a server serve one queue, or each has its own (own)."""
    startup: Annotated[float, Flag("S", SECONDS)] = Field(180.0, ge=0, le=1e6)
    """Start-up time of a replica (180 s)."""
    format: AnswerFormat = "json"
    """Format of the response: the numbers as JSON, or a picture."""


@checks_documents
def replay_loads(system: System, options: ReplayOptions) -> Replay:
    """Replay past loads with a fleet that follows every plan, and with fleets with stabilisation rules.

    Raises:
        SpecError: a file cannot be read, or the system has no server with its loads.
        SolverError: the solver failed.
    """
    rules = RECOMMENDED if options.rules is None else read_rules(options.rules)
    variants = {FOLLOWED: Rules()}
    if options.each:
        variants |= each_alone(rules)
    variants["recommended rules" if options.rules is None else "the rules"] = rules
    loop = LoopSettings(options.startup, options.late_cost, options.queue == "common")
    steps = read_load_trace(system, options.loads)
    return replay(system, steps, variants, options.startup, loop if options.loop else None)


STUDY = Study(
    title="Replay loads",
    options=ReplayOptions,
    answer=Replay,
    run=replay_loads,
    sections=replay_sections,
    table_names=("ways", "servers", "routes", "headrooms"),
    page=drawn(replay_figure),
    has_load=False,
    epilog=(
        "LOADS.csv has the columns time, server and arrivalRate, and optionally avgInTokens and "
        "avgOutTokens; or time and a column of rates for each server. A route is named like a server, in "
        "place of its two servers, and has a rate only. A row holds the load measured in the "
        "interval that ends at its time, in seconds or as a date. Each plan knows the loads up to its time, "
        "and is judged by those of the next interval."
    ),
)
