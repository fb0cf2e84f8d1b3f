"""What requests have in common: what is wrong in one, how to solve, and another load."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from optimizer.errors import SpecError
from optimizer.spec.loads import with_loads
from optimizer.spec.system import System
from optimizer.studies.load_changes import scale_loads, vary_loads


class RequestError(SpecError):
    """Raised when the parts of a request contradict each other."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field = field
        """The field at fault, by its Python name."""
        self.problem = problem
        """What is wrong with it; other fields stand in braces."""

    def __str__(self) -> str:
        return self.said(lambda name: name)

    def said(self, name_of: Callable[[str], str]) -> str:
        """Return the message with other names for the fields."""
        problem = re.sub(r"{(\w+)}", lambda found: name_of(found[1]), self.problem)
        return f"{name_of(self.field)}: {problem}"


@dataclass(frozen=True, slots=True)
class SolveOptions:
    """How to solve, in place of what the document says; none: as there."""

    unlimited: bool | None = None
    mixed: bool | None = None
    solver: str | None = None
    """``milp`` or ``greedy``."""
    batch_sizing: str | None = None
    gap: float | None = None
    time_limit_s: float | None = None
    saturation: str | None = None
    """Who is served in part if not everything fits: a saturation policy."""
    estimates: str | None = None
    """``upper``, ``middle`` or ``lower``."""

    def given(self) -> dict[str, object]:
        """Return the optimizer options that are given, by their Python names.

        Raises:
            RequestError: they contradict each other.
        """
        if self.mixed and self.solver == "greedy":
            problem = "the greedy solver plans one accelerator per server; remove one of the two"
            raise RequestError("mixed", problem)
        exact = None if self.solver is None else self.solver == "milp"
        options = {
            "gap": self.gap,
            "time_limit_s": self.time_limit_s,
            "unlimited": self.unlimited,
            "heterogeneous": self.mixed,
            "milp_solver": True if self.mixed else exact,  # only the exact solver makes mixed plans
            "batch_sizing": self.batch_sizing,
            "saturation_policy": self.saturation,
            "estimates": self.estimates,
        }
        return {name: value for name, value in options.items() if value is not None}


@dataclass(frozen=True, slots=True)
class LoadChange:
    """Another load of a system, in at most one way."""

    csv: str | Path | None = None
    """A file of loads by server."""
    scale: float | None = None
    """A factor on every arrival rate."""
    random_load: int | None = None
    """A seed: every rate times 0.5 … 1.5 and every length times 0.8 … 1.2, at random."""

    @property
    def field(self) -> str | None:
        """The way in which the load changes, if it does."""
        given = [name for name in ("csv", "scale", "random_load") if getattr(self, name) is not None]
        return given[0] if given else None

    def applied_to(self, system: System) -> System:
        """Return a system at the other load; the same system where none is given.

        Raises:
            RequestError: the load changes in two ways.
            SpecError: it cannot be read, or is out of range.
        """
        if self.scale is not None and self.random_load is not None:
            raise RequestError(
                "scale", "the load can be changed in only one way; remove it, or {random_load}"
            )
        if self.csv is not None:
            return with_loads(system, self.csv)
        if self.scale is not None:
            return scale_loads(system, self.scale)
        if self.random_load is not None:
            return vary_loads(system, np.random.default_rng(self.random_load))
        return system
