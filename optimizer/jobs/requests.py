"""Requests: the parameters of jobs, defined once for the command line, HTTP routes and clients.

The fields of a `Request` are the flags of its command, the query parameters of its routes under ``/v1``
and the options of the clients' methods. A field's docstring is its description everywhere. A `Flag` in its
annotation adds details that only the command line needs.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from optimizer.errors import SpecError
from optimizer.jobs.flag import Flag
from optimizer.kinds.request_shapes import MAX_SHAPES
from optimizer.schema import EstimateEnd, OptimizerOptions
from optimizer.schema.options import AnyCasePolicy
from optimizer.spec.changes import with_default
from optimizer.spec.loads import with_loads
from optimizer.spec.system import System
from optimizer.spec.trace_shapes import DEFAULT_SHAPES, with_traces
from optimizer.studies.load_changes import scale_loads, vary_loads
from optimizer.units import SECONDS, SHARE

_OPTIONS = {
    "time_limit": "time_limit_s", "mixed": "heterogeneous", "saturation": "saturation_policy",
    "headroom": "headroom_share",
}  # fmt: skip
"""Python names of optimizer options whose request fields have different names, by field."""
MAX_SPARE = 1_000
"""Maximum number of spare replicas of all servers."""


class Request(BaseModel):
    """Base class of requests: parameters of a job; unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    def given(self) -> dict[str, object]:
        """Return the optimizer options that the request overrides, by their Python names.

        Raises:
            RequestError: fields contradict each other.
        """
        return {}

    def with_given(self, system: System) -> System:
        """Return the system with the optimizer options of the request, but with unchanged loads.

        Raises:
            RequestError: fields contradict each other.
            SpecError: an option is out of range.
        """
        return system.with_options(**self.given())

    def applied(self, system: System) -> System:
        """Return the system with the optimizer options of the request.

        Raises:
            RequestError: fields contradict each other.
            SpecError: an option or a load is out of range.
        """
        return self.with_given(system)


class RequestError(SpecError):
    """Raised if the fields of a request contradict each other."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field = field
        """Python name of the field to which the message belongs."""
        self.problem = problem
        """Description of the problem; names of other fields are in braces."""

    def __str__(self) -> str:
        return self.said(lambda name: name)

    def said(self, name_of: Callable[[str], str]) -> str:
        """Return the message, with the names of fields converted by `name_of`."""
        problem = re.sub(r"{(\w+)}", lambda match: name_of(match[1]), self.problem)
        return f"{name_of(self.field)}: {problem}"


class LoadFiles(Request):
    """Files that replace loads of a document."""

    load: Annotated[str | Path | None, Flag("CSV", only="command")] = None
    """CSV file of loads by server, which replace those of the document."""
    from_trace: Annotated[tuple[str, ...], Flag("[SERVER=]FILE", only="command")] = ()
    """Recorded requests (Azure, BurstGPT or Mooncake) whose rate and request shapes are the load of a server;
    can be given several times.
    """
    shapes: Annotated[int | None, Flag("N", only="command")] = Field(None, ge=1, le=MAX_SHAPES)
    """Number of request shapes of a trace, 1 to 8 (4)."""

    def with_files(self, system: System) -> System:
        """Return the system with the loads in the files: first those of traces, then those of the CSV file.

        Raises:
            RequestError: a number of shapes is given without a trace.
            SpecError: a file cannot be read, or contradicts the system.
        """
        if self.shapes is not None and not self.from_trace:
            raise RequestError("shapes", "is the number of shapes of a trace; give {from_trace}")
        if self.from_trace:
            system = with_traces(system, self.from_trace, self.shapes or DEFAULT_SHAPES)
        return system if self.load is None else with_loads(system, self.load)


class ScaleOption(Request):
    """Request with a factor on all loads."""

    scale: Annotated[float | None, Flag("X", SHARE)] = Field(None, ge=0, le=1e6, allow_inf_nan=False)
    """Multiply every arrival rate by this factor."""

    def applied(self, system: System) -> System:
        """Return the system with the optimizer options of the request, and with scaled loads.

        Raises:
            RequestError: fields contradict each other.
            SpecError: an option or a load is out of range.
        """
        changed = super().applied(system)
        return changed if self.scale is None else scale_loads(changed, self.scale)


class ModelOptions(Request):
    """Optimizer options that affect the maximum rate of a replica and override the document's."""

    batch_sizing: Literal["profile", "optimal"] | None = None
    """Batch limits: those of the profiles (`profile`), or chosen for each server (`optimal`)."""
    estimates: EstimateEnd | None = None
    """Point of the intervals of estimated token times: upper (cautious, the default), middle (typical) or
    lower.
    """

    def given(self) -> dict[str, object]:
        """Return the optimizer options that the request overrides, by their Python names.

        Raises:
            RequestError: fields contradict each other.
        """
        known = OptimizerOptions.model_fields
        named = {_OPTIONS.get(name, name): getattr(self, name) for name in type(self).model_fields}
        given = {name: value for name, value in named.items() if name in known and value is not None}
        exact = {"milp_solver": True} if given.get("heterogeneous") else {}  # greedy plans cannot be mixed
        return given | exact


class SizingOptions(ScaleOption, ModelOptions):
    """A factor on all loads, and optimizer options for sizing that override the document's."""


class ExactOptions(ModelOptions):
    """Optimizer options that override the document's, for studies that always use the exact solver."""

    unlimited: Annotated[bool | None, Flag(off="limited: stay within the capacities")] = None
    """Plan as if there were any number of cards."""
    mixed: bool | None = None
    """Allow a server to run on several accelerators."""
    gap: Annotated[float | None, Flag("G", SHARE)] = Field(None, ge=0, le=1)
    """Relative optimality gap at which the solver can stop, 0 … 1."""
    time_limit: Annotated[float | None, Flag("S", SECONDS)] = Field(None, gt=0, le=1e6)
    """Time limit of each solve [s]."""
    saturation: Annotated[AnyCasePolicy | None, Flag("POLICY")] = None
    """Policy for partial service if capacity runs out: None, PriorityExhaustive, PriorityRoundRobin or
    RoundRobin."""
    headroom: Annotated[float | None, Flag("SHARE", SHARE)] = Field(None, ge=0, le=10)
    """Headroom: share by which loads can grow, for servers whose document and class state none."""
    spare: Annotated[int | None, Flag("N")] = Field(None, ge=0, le=MAX_SPARE)
    """Number of spare replicas of each server whose document does not state spareReplicas."""

    def with_given(self, system: System) -> System:
        """Return the system with the optimizer options and reserves of the request, but with unchanged loads.

        Raises:
            RequestError: fields contradict each other, or a server cannot have spare replicas.
            SpecError: an option is out of range.
        """
        changed = super().with_given(system)
        try:
            return changed if self.spare is None else with_default(changed, "spareReplicas", self.spare)
        except SpecError as error:
            raise RequestError("spare", str(error)) from None


class PlanOptions(ScaleOption, ExactOptions):
    """A factor on all loads, and optimizer options that override the document's."""

    solver: Literal["milp", "greedy"] | None = None
    """Solver: `milp` (exact), or `greedy` (baseline heuristic)."""
    backend: Annotated[str, Flag("NAME", only="command")] = "highs"
    """MILP solver: highs, CBC, … (highs)"""

    def given(self) -> dict[str, object]:
        """Return the optimizer options that the request overrides, by their Python names.

        Raises:
            RequestError: fields contradict each other.
        """
        if self.mixed and self.solver == "greedy":
            problem = "the greedy solver plans one accelerator per server; remove one of the two"
            raise RequestError("mixed", problem)
        exact = {} if self.solver is None else {"milp_solver": self.solver == "milp"}
        return exact | super().given()


class LoadChangeOptions(LoadFiles, PlanOptions):
    """A load change, and optimizer options that override the document's."""

    scale: Annotated[float | None, Flag("X", SHARE)] = Field(None, ge=0, le=1e6, allow_inf_nan=False)
    """Load change: multiply every arrival rate by this factor."""
    random_load: Annotated[int | None, Flag("SEED")] = Field(None, ge=0, lt=2**64)
    """Load change: multiply rates by 0.5 … 1.5 and token lengths by 0.8 … 1.2 at random, with this seed."""

    def applied(self, system: System) -> System:
        """Return the system with the optimizer options of the request, but without its load change.

        Raises:
            RequestError: fields contradict each other.
            SpecError: an option is out of range.
        """
        return self.with_given(system)

    @property
    def load_changes(self) -> list[str]:
        """Return the names of the given fields that change the load."""
        names = ("load", "from_trace", "scale", "random_load")
        return [name for name in names if getattr(self, name) not in {None, ()}]

    def with_changed_load(self, system: System) -> System:
        """Return the system with the requested load change, or the same system if there is none.

        Raises:
            RequestError: several fields change the load.
            SpecError: the load cannot be read, or is out of range.
        """
        if len(self.load_changes) > 1:
            first, second, *_ = self.load_changes
            problem = f"the load can be changed in only one way; remove it, or {{{second}}}"
            raise RequestError(first, problem)
        if self.scale is not None:
            return scale_loads(system, self.scale)
        if self.random_load is not None:
            return vary_loads(system, np.random.default_rng(self.random_load))
        return self.with_files(system)
