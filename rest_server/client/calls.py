"""The requests of a client as values: what is sent, and how the answer is read. Nothing is sent here."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Generic, Literal, TypeVar

from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_json

from optimizer.kinds.replicas import ReplicaPerformance, ReplicaSizing
from optimizer.plan import Plan
from optimizer.spec.schema import SystemSpec
from optimizer.spec.system import System, load_system
from optimizer.studies.comparison.document import Comparison
from optimizer.studies.explanation.document import Explanation
from optimizer.studies.figures.document import Figure
from optimizer.studies.reports.report import Report
from optimizer.studies.simulation.document import RepairedPlan, Simulation
from rest_server.v1.models import (
    Analyses,
    Analysis,
    CandidateAnswer,
    CompareOptions,
    EffortOptions,
    ExactOptions,
    ExplainOptions,
    FigureOptions,
    OtherSide,
    Performances,
    PlanOptions,
    ReportOptions,
    SimulateOptions,
    SizingOptions,
    SizingProblem,
    SizingProblems,
    Sizings,
    TwoSides,
    Unattainable,
)


class _Held(Enum):
    """What stands for the fleet that a service holds."""

    FLEET = "fleet"


FLEET: Final = _Held.FLEET
"""In place of a system: the fleet that a stateful service holds."""

SystemLike = System | SystemSpec | Mapping[str, Any] | str | os.PathLike[str]
"""A system, its document, the same as plain values, or the path of a file or directory."""
SystemOrFleet = SystemLike | Literal[_Held.FLEET]
"""A system, or `FLEET`."""
Answer = TypeVar("Answer")
_Document = TypeVar("_Document", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer]):
    """A request, and how its answer is read."""

    method: str
    path: str
    read: Callable[[bytes], Answer]
    """Turns the body of the answer, or its `header`, into what is returned."""
    body: bytes | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True
    """Whether it may be sent again when nobody knows if it was carried out."""
    waits: bool = True
    """Whether it is sent again after a 503."""
    header: str | None = None
    """The header that is read in place of the body."""

    def answer(self, content: bytes, headers: Mapping[str, str]) -> Answer:
        """Return what an answer says."""
        return self.read(content if self.header is None else headers[self.header].encode())


def plan(system: SystemLike, options: PlanOptions | None) -> Call[Plan]:
    """Return the request of `plan` of the clients."""
    return _computing("plan", text_of_system(system), options, document(Plan))


def candidates(system: SystemLike, options: SizingOptions | None) -> Call[CandidateAnswer]:
    """Return the request of `candidates` of the clients."""
    return _computing("candidates", text_of_system(system), options, document(CandidateAnswer))


def analyze(analysis: Analysis) -> Call[ReplicaPerformance]:
    """Return the request of `analyze` of the clients."""
    return _computing("analyze", text(analysis), None, document(ReplicaPerformance))


def size(problem: SizingProblem) -> Call[ReplicaSizing]:
    """Return the request of `size` of the clients."""
    return _computing("size", text(problem), None, document(ReplicaSizing))


def analyze_all(analyses: Sequence[Analysis]) -> Call[tuple[ReplicaPerformance, ...]]:
    """Return the request of `analyze_all` of the clients."""
    body = text(Analyses(items=tuple(analyses)))
    return _computing("analyze", body, None, lambda found: Performances.model_validate_json(found).items)


def size_all(problems: Sequence[SizingProblem]) -> Call[tuple[ReplicaSizing | Unattainable, ...]]:
    """Return the request of `size_all` of the clients."""
    body = text(SizingProblems(items=tuple(problems)))
    return _computing("size", body, None, lambda found: Sizings.model_validate_json(found).items)


def compare(sides: SystemOrFleet | OtherSide, options: CompareOptions | None) -> Call[Comparison]:
    """Return the request of `compare` of the clients."""
    if isinstance(sides, OtherSide):
        route = "compare" if isinstance(sides, TwoSides) else "fleet/compare"
        return _computing(route, text(sides), options, document(Comparison))
    return _study("compare", sides, options, document(Comparison))


def explain(system: SystemOrFleet, options: ExplainOptions | None) -> Call[Explanation]:
    """Return the request of `explain` of the clients."""
    return _study("explain", system, options, document(Explanation))


def simulate(system: SystemOrFleet, options: EffortOptions | None) -> Call[Simulation]:
    """Return the request of `simulate` of the clients."""
    return _study("simulate", system, _effort(options, repair=False), document(Simulation))


def repair(system: SystemOrFleet, options: EffortOptions | None) -> Call[RepairedPlan]:
    """Return the request of `repair` of the clients."""
    return _study("simulate", system, _effort(options, repair=True), document(RepairedPlan))


def report(system: SystemOrFleet, options: PlanOptions | None) -> Call[Report]:
    """Return the request of `report` of the clients."""
    if isinstance(options, ReportOptions):
        options = options.model_copy(update={"format": "json"})
    return _study("report", system, options, document(Report))


def report_page(system: SystemOrFleet, options: ReportOptions) -> Call[str]:
    """Return the request of `report_page` of the clients."""
    return _study("report", system, options, bytes.decode)


def figure(system: SystemOrFleet, options: FigureOptions) -> Call[Figure]:
    """Return the request of `figure` of the clients."""
    shown = options.model_copy(update={"format": "json"})
    return _study("figure", system, shown, document(Figure))


def picture(system: SystemOrFleet, options: FigureOptions) -> Call[bytes]:
    """Return the request of `picture` of the clients."""
    return _study("figure", system, options, bytes)


def document(model: type[_Document]) -> Callable[[bytes], _Document]:
    """Return what reads an answer as a document."""
    return TypeAdapter(model).validate_json


def text(value: BaseModel) -> bytes:
    """Return a document as it is sent."""
    return value.model_dump_json(by_alias=True, exclude_unset=True).encode()


def text_of_system(system: SystemLike) -> bytes:
    """Return a system as it is sent.

    Raises:
        SpecError: a path has no system.
    """
    if isinstance(system, Mapping):
        return to_json(system)
    if not isinstance(system, System | SystemSpec):
        system = load_system(system)
    return text(system.to_spec() if isinstance(system, System) else system)


def _study(
    route: str, system: SystemOrFleet, options: ExactOptions | None, read: Callable[[bytes], Answer]
) -> Call[Answer]:
    """Return the request of a study of a system, or of the fleet, which is not sent."""
    if system is FLEET:
        return _computing(f"fleet/{route}", None, options, read)
    return _computing(route, text_of_system(system), options, read)


def _effort(options: EffortOptions | None, *, repair: bool) -> SimulateOptions:
    given = {} if options is None else options.model_dump(exclude_unset=True)
    return SimulateOptions(**given | {"repair": repair})


def _computing(
    route: str, body: bytes | None, options: SizingOptions | None, read: Callable[[bytes], Answer]
) -> Call[Answer]:
    given = {} if options is None else options.model_dump(mode="json", exclude_none=True, exclude_unset=True)
    params = {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()
    }
    return Call("POST", f"/v1/{route}", read, body, params)
