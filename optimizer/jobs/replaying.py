"""Replay loads of the past."""

from dataclasses import dataclass
from pathlib import Path

from optimizer.spec.load_traces import read_load_trace
from optimizer.spec.system import System
from optimizer.stabilisation.rules import RECOMMENDED, Rules, read_rules
from optimizer.studies.replay.document import Replay
from optimizer.studies.replay.replay import FOLLOWED, each_alone, replay


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """Loads of the past to run through planning and stabilisation."""

    system: System
    loads: str | Path
    """A CSV file of loads over time."""
    rules: Path | None = None
    """A file of rules; none: every rule, with the recommended values."""
    each: bool = False
    """Whether each of the rules is shown alone, too."""
    startup_s: float = 180.0
    """Time that a replica takes to start [s]."""


def replay_loads(request: ReplayRequest) -> Replay:
    """Return the course of a fleet that follows every plan, and of one with stabilisation rules.

    Raises:
        SpecError: a file cannot be read, or its loads are not of the system.
        SolverError: the solver failed.
    """
    rules = RECOMMENDED if request.rules is None else read_rules(request.rules)
    variants = {FOLLOWED: Rules()}
    if request.each:
        variants |= each_alone(rules)
    variants["recommended rules" if request.rules is None else "the rules"] = rules
    steps = read_load_trace(request.system, request.loads)
    return replay(request.system, steps, variants, request.startup_s)
