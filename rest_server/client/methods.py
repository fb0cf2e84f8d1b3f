"""Methods of both clients, each defined once by the request that it sends."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel
from pydantic_core import to_json

from optimizer.documents import Document
from optimizer.jobs.memory import MemoryQuestion
from optimizer.jobs.study import StudyEntry
from optimizer.jobs.table import Studies
from optimizer.kinds.replicas import ReplicaPerformance, ReplicaSizing
from optimizer.plan import Plan
from optimizer.profiles.memory_document import MemoryAnswer
from optimizer.schema import (
    Accelerator,
    Capacity,
    ModelProfile,
    OptimizerOptions,
    Route,
    Server,
    ServiceClass,
    SystemSpec,
)
from optimizer.studies.comparison.comparison_document import Comparison
from optimizer.studies.figures.figure_document import Figure
from optimizer.studies.report import Report
from optimizer.studies.simulation.simulation_document import RepairedPlan, Simulation
from rest_server.client.calls import (
    Answer,
    Call,
    Sent,
    SystemLike,
    SystemOrFleet,
    computing,
    document,
    study,
    text,
    text_of_system,
)
from rest_server.fleet import key_of
from rest_server.v1.models import (
    AcceleratorList,
    Analyses,
    Analysis,
    CandidateAnswer,
    CapacityList,
    CompareOptions,
    EffortOptions,
    FigureOptions,
    FleetHistory,
    LastPlan,
    LoadsAnswer,
    LoadUpdate,
    ModelList,
    OtherSide,
    Performances,
    PlanOptions,
    ReportOptions,
    RouteList,
    ServerList,
    ServiceClassList,
    SimulateOptions,
    SizingOptions,
    SizingProblem,
    SizingProblems,
    Sizings,
    TargetAnswer,
    TargetList,
    TwoSides,
    Unattainable,
)

Loads = Mapping[str, LoadUpdate]
"""New loads by name of the server."""
Entity = Accelerator | ModelProfile | ServiceClass | Server | Capacity | Route
"""An item of the fleet that can be stored or deleted by itself."""


class Methods(Studies):
    """Methods of the clients; those for studies come from the table of studies."""

    def method_of(self, entry: StudyEntry[Any, Any]) -> Callable[..., Any]:
        """Return the client method of a study."""

        def method(system: SystemOrFleet, options: Any = None) -> Any:
            return self.send(study(entry.name, system, options, document(entry.study.answer)))

        method.__doc__ = entry.study.description
        return method

    def send(self, call: Call[Any]) -> Any:
        """Send a request, and return the value of its response."""
        raise NotImplementedError

    @Sent
    def plan(self, system: SystemLike, options: PlanOptions | None = None) -> Call[Plan]:
        """Return the best plan of a system."""
        return computing("plan", text_of_system(system), options, document(Plan))

    @Sent
    def candidates(self, system: SystemLike, options: SizingOptions | None = None) -> Call[CandidateAnswer]:
        """Return the candidates of every server, and the reason for each rejected accelerator."""
        return computing("candidates", text_of_system(system), options, document(CandidateAnswer))

    @Sent
    def analyze(self, analysis: Analysis) -> Call[ReplicaPerformance]:
        """Return the performance of a replica at a given rate."""
        return computing("analyze", text(analysis), None, document(ReplicaPerformance))

    @Sent
    def size(self, problem: SizingProblem) -> Call[ReplicaSizing]:
        """Return the maximum rate at which a replica meets its targets."""
        return computing("size", text(problem), None, document(ReplicaSizing))

    @Sent
    def analyze_all(self, analyses: Sequence[Analysis]) -> Call[tuple[ReplicaPerformance, ...]]:
        """Return the performance of several replicas, each at a given rate, with one request."""
        body = text(Analyses(items=tuple(analyses)))
        return computing("analyze", body, None, lambda found: Performances.model_validate_json(found).items)

    @Sent
    def size_all(self, problems: Sequence[SizingProblem]) -> Call[tuple[ReplicaSizing | Unattainable, ...]]:
        """Return the maximum rates of several replicas, or an error for those that miss their targets."""
        body = text(SizingProblems(items=tuple(problems)))
        return computing("size", body, None, lambda found: Sizings.model_validate_json(found).items)

    @Sent
    def memory(self, question: MemoryQuestion) -> Call[MemoryAnswer]:
        """Return the number of requests that fit in the memory of each accelerator at the same time."""
        return replace(computing("memory", None, question, document(MemoryAnswer)), method="GET")

    @Sent
    def compare(
        self, sides: SystemOrFleet | OtherSide, options: CompareOptions | None = None
    ) -> Call[Comparison]:
        """Compare two plans.

        Args:
            sides: a system or `FLEET` compares its unlimited and limited plans; `TwoSides` compares its two
                systems; `OtherSide` compares its system with the fleet.
            options: a change of the load, and optimizer options that override those of the documents.
        """
        if isinstance(sides, OtherSide):
            route = "compare" if isinstance(sides, TwoSides) else "fleet/compare"
            return computing(route, text(sides), options, document(Comparison))
        return study("compare", sides, options, document(Comparison))

    @Sent
    def simulate(self, system: SystemOrFleet, options: EffortOptions | None = None) -> Call[Simulation]:
        """Simulate the pools of the best plan request by request, and compare them with its predictions."""
        return study("simulate", system, _effort(options, repair=False), document(Simulation))

    @Sent
    def repair(self, system: SystemOrFleet, options: EffortOptions | None = None) -> Call[RepairedPlan]:
        """Return a plan whose pools meet their targets in simulation, and the changes that were needed."""
        return study("simulate", system, _effort(options, repair=True), document(RepairedPlan))

    @Sent
    def report(self, system: SystemOrFleet, options: PlanOptions | None = None) -> Call[Report]:
        """Return the report on the best plan as a document."""
        if isinstance(options, ReportOptions):
            options = options.model_copy(update={"format": "json"})
        return study("report", system, options, document(Report))

    @Sent
    def report_page(self, system: SystemOrFleet, options: ReportOptions) -> Call[str]:
        """Return the report on the best plan as a page, in the format that the options select."""
        return study("report", system, options, bytes.decode)

    @Sent
    def figure(self, system: SystemOrFleet, options: FigureOptions) -> Call[Figure]:
        """Return a figure as data."""
        return study("figure", system, options.model_copy(update={"format": "json"}), document(Figure))

    @Sent
    def picture(self, system: SystemOrFleet, options: FigureOptions) -> Call[bytes]:
        """Return a drawn figure as a file, in the format that the options select."""
        return study("figure", system, options, bytes)

    @Sent
    def put_loads(self, loads: Loads, *, if_match: str | None = None) -> Call[LoadsAnswer]:
        """Store loads of servers, with their replicas if given, and return the new plan."""
        changes = {
            name: change.model_dump(by_alias=True, exclude_unset=True) for name, change in loads.items()
        }
        return _change("POST", "/v1/loads", document(LoadsAnswer), if_match, to_json(changes))

    @Sent
    def last_plan(self) -> Call[LastPlan]:
        """Return the last plan of the fleet."""
        return _read("plan", LastPlan)

    @Sent
    def apply_plan(self, *, if_match: str | None = None) -> Call[ServerList]:
        """Make the last plan the current allocation of the fleet, and return the servers."""
        headers = _condition(if_match)
        read = document(ServerList)
        return Call("POST", "/v1/plan/apply", read, headers=headers, repeatable=False)

    @Sent
    def targets(self) -> Call[tuple[TargetAnswer, ...]]:
        """Return the desired replicas of every server on every accelerator.

        Raises:
            UnavailableError: there is no plan, or it is stale; raised immediately.
        """
        return _listed("targets", TargetList, waits=False)

    @Sent
    def target(self, server: str, accelerator: str) -> Call[TargetAnswer]:
        """Return the desired replicas of a server on an accelerator.

        Raises:
            UnavailableError: there is no plan, or it is stale; raised immediately.
        """
        return Call("GET", _path("targets", server, accelerator), document(TargetAnswer), waits=False)

    @Sent
    def history(self, limit: int | None = None) -> Call[FleetHistory]:
        """Return the last changes and plans of the fleet, the newest first: `limit` of them, or else 100."""
        params = {} if limit is None else {"limit": str(limit)}
        return Call("GET", "/v1/history", document(FleetHistory), params=params)

    @Sent
    def past_plan(self, revision: int) -> Call[Plan]:
        """Return the plan that was made for a given revision of the fleet."""
        return _read(f"history/plans/{revision}", Plan)

    @Sent
    def metrics(self) -> Call[str]:
        """Return the metrics of the service in Prometheus' text format."""
        return Call("GET", "/metrics", bytes.decode)

    @Sent
    def etag(self) -> Call[str]:
        """Return the fleet's `ETag` for `if_match`; call this before reading the items to change."""
        return Call("GET", "/v1/optimizer", bytes.decode, header="etag")

    @Sent
    def export_fleet(self) -> Call[SystemSpec]:
        """Return the entire fleet as a system document."""
        return _read("fleet", SystemSpec)

    @Sent
    def import_fleet(self, system: SystemLike, *, if_match: str | None = None) -> Call[SystemSpec]:
        """Replace the entire fleet by a system in one step, and return the fleet."""
        return _change("PUT", "/v1/fleet", document(SystemSpec), if_match, text_of_system(system))

    @Sent
    def options(self) -> Call[OptimizerOptions]:
        """Return the optimizer options with which the fleet is planned."""
        return _read("optimizer", OptimizerOptions)

    @Sent
    def put_options(
        self, options: OptimizerOptions, *, if_match: str | None = None
    ) -> Call[OptimizerOptions]:
        """Replace all optimizer options of the fleet; options that are not given get their defaults."""
        return _change("PUT", "/v1/optimizer", document(OptimizerOptions), if_match, text(options))

    @Sent
    def delete_options(self, *, if_match: str | None = None) -> Call[None]:
        """Restore the default optimizer options of the fleet."""
        return _change("DELETE", "/v1/optimizer", _nothing, if_match)

    @Sent
    def accelerators(self) -> Call[tuple[Accelerator, ...]]:
        """Return the accelerators of the fleet."""
        return _listed("accelerators", AcceleratorList)

    @Sent
    def models(self) -> Call[tuple[ModelProfile, ...]]:
        """Return the model profiles of the fleet."""
        return _listed("models", ModelList)

    @Sent
    def service_classes(self) -> Call[tuple[ServiceClass, ...]]:
        """Return the service classes of the fleet."""
        return _listed("service-classes", ServiceClassList)

    @Sent
    def servers(self) -> Call[tuple[Server, ...]]:
        """Return the servers of the fleet."""
        return _listed("servers", ServerList)

    @Sent
    def capacity(self) -> Call[tuple[Capacity, ...]]:
        """Return the number of cards of the fleet by accelerator type."""
        return _listed("capacity", CapacityList)

    @Sent
    def routes(self) -> Call[tuple[Route, ...]]:
        """Return the routes of the fleet, which divide requests between a small and a large model."""
        return _listed("routes", RouteList)

    @Sent
    def put(self, entity: Entity, *, if_match: str | None = None) -> Call[None]:
        """Add an item to the fleet, or replace the item with its name."""
        return _change("PUT", _path_of(entity), _nothing, if_match, text(entity))

    @Sent
    def delete(self, entity: Entity, *, if_match: str | None = None) -> Call[None]:
        """Delete an item of the fleet."""
        return _change("DELETE", _path_of(entity), _nothing, if_match)


_COLLECTIONS: dict[type[BaseModel], str] = {
    Accelerator: "accelerators",
    ModelProfile: "models",
    ServiceClass: "service-classes",
    Server: "servers",
    Capacity: "capacity",
    Route: "routes",
}


def _effort(options: EffortOptions | None, *, repair: bool) -> SimulateOptions:
    given = {} if options is None else options.model_dump(exclude_unset=True)
    return SimulateOptions(**given | {"repair": repair})


def _path_of(entity: Entity) -> str:
    return _path(_COLLECTIONS[type(entity)], *key_of(entity))


def _path(collection: str, *names: str) -> str:
    return "/".join(("/v1", collection, *(quote(name, safe="") for name in names)))


def _listed(path: str, model: type[Document], **how: Any) -> Call[Any]:
    """Return a request for a document whose first field is a list, of which the items are returned."""
    field = next(iter(model.model_fields))
    return Call("GET", f"/v1/{path}", lambda body: getattr(model.model_validate_json(body), field), **how)


def _read(path: str, model: type[Answer]) -> Call[Answer]:
    return Call("GET", f"/v1/{path}", document(model))


def _change(
    method: str, path: str, read: Callable[[bytes], Answer], if_match: str | None, body: bytes | None = None
) -> Call[Answer]:
    """Return a request that changes the fleet; it is not repeated if it has an `if_match` condition."""
    headers = _condition(if_match)
    return Call(method, path, read, body, headers=headers, repeatable=not headers)


def _condition(if_match: str | None) -> dict[str, str]:
    return {} if if_match is None else {"If-Match": if_match}


def _nothing(_: bytes) -> None:
    return None
