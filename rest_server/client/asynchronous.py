"""The client for asyncio: every method is awaited."""

from asyncio import sleep
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from optimizer.kinds.replicas import ReplicaPerformance, ReplicaSizing
from optimizer.plan import Plan
from optimizer.spec.schema import (
    Accelerator,
    Capacity,
    ModelProfile,
    OptimizerOptions,
    Server,
    ServiceClass,
    SystemSpec,
)
from optimizer.studies.comparison.document import Comparison
from optimizer.studies.explanation.document import Explanation
from optimizer.studies.figures.document import Figure
from optimizer.studies.reports.report import Report
from optimizer.studies.simulation.document import RepairedPlan, Simulation
from rest_server.client import calls, fleet_calls
from rest_server.client.calls import Answer, Call, SystemLike, SystemOrFleet
from rest_server.client.fleet_calls import Entity, Loads
from rest_server.client.sending import (
    Connection,
    answer_of,
    httpx_module,
    refusal,
    request_of,
    transport_error,
    wait_s,
)
from rest_server.v1.models import (
    Analysis,
    CandidateAnswer,
    CompareOptions,
    EffortOptions,
    ExplainOptions,
    FigureOptions,
    FleetHistory,
    LastPlan,
    OtherSide,
    PlanOptions,
    ReportOptions,
    ServerList,
    SizingOptions,
    SizingProblem,
    TargetAnswer,
    Unattainable,
)

if TYPE_CHECKING:
    from rest_server.client.errors import ServiceError, UnreachableError


class AsyncClient:
    """A service at an address; for asyncio. Errors are those of `rest_server.client`.

    Args:
        url: the service's address, such as ``http://127.0.0.1:8080``.
        api_key: sent with every request; printable ASCII characters without spaces.
        timeout_s: how long to wait for an answer [s].
        retries: further attempts where the service is busy or a connection breaks.
        transport: how httpx sends, such as its ``ASGITransport``; none: over the network.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = 60.0,
        retries: int = 2,
        transport: Any = None,
    ) -> None:
        """Set up the client; nothing is sent yet.

        Raises:
            MissingExtraError: httpx is not installed.
            SpecError: the URL, the key or the time limit cannot be used.
        """
        httpx = httpx_module()
        self._connection = Connection(url, api_key, timeout_s, retries)
        self._http = httpx.AsyncClient(**self._connection.settings(), transport=transport)
        self._transport_errors: tuple[type[Exception], ...] = (httpx.RequestError,)

    async def __aenter__(self) -> Self:
        """Return the client itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def plan(self, system: SystemLike, options: PlanOptions | None = None) -> Plan:
        """Return the best plan of a system."""
        return await self._sent(calls.plan(system, options))

    async def candidates(self, system: SystemLike, options: SizingOptions | None = None) -> CandidateAnswer:
        """Return what every server takes on every accelerator, or why it cannot run there."""
        return await self._sent(calls.candidates(system, options))

    async def analyze(self, analysis: Analysis) -> ReplicaPerformance:
        """Return what a replica does at a rate."""
        return await self._sent(calls.analyze(analysis))

    async def size(self, problem: SizingProblem) -> ReplicaSizing:
        """Return the largest rate at which a replica meets its targets."""
        return await self._sent(calls.size(problem))

    async def analyze_all(self, analyses: Sequence[Analysis]) -> tuple[ReplicaPerformance, ...]:
        """Return what several replicas do, each at a rate, in one request."""
        return await self._sent(calls.analyze_all(analyses))

    async def size_all(self, problems: Sequence[SizingProblem]) -> tuple[ReplicaSizing | Unattainable, ...]:
        """Return the largest rates of several replicas, or why one meets its targets at no rate."""
        return await self._sent(calls.size_all(problems))

    async def compare(
        self, sides: SystemOrFleet | OtherSide, options: CompareOptions | None = None
    ) -> Comparison:
        """Return two plans side by side.

        Args:
            sides: a system or `FLEET`: its unlimited plan and its limited one; `TwoSides`: these;
                `OtherSide`: the fleet and what is given.
            options: a change of the load, and options in place of the document's.
        """
        return await self._sent(calls.compare(sides, options))

    async def explain(self, system: SystemOrFleet, options: ExplainOptions | None = None) -> Explanation:
        """Return why the best plan is as it is."""
        return await self._sent(calls.explain(system, options))

    async def simulate(self, system: SystemOrFleet, options: EffortOptions | None = None) -> Simulation:
        """Return what the pools of the best plan do, request by request, beside what was predicted."""
        return await self._sent(calls.simulate(system, options))

    async def repair(self, system: SystemOrFleet, options: EffortOptions | None = None) -> RepairedPlan:
        """Return a plan whose pools meet their targets when simulated, and what was changed for it."""
        return await self._sent(calls.repair(system, options))

    async def report(self, system: SystemOrFleet, options: PlanOptions | None = None) -> Report:
        """Return the report of the best plan as numbers."""
        return await self._sent(calls.report(system, options))

    async def report_page(self, system: SystemOrFleet, options: ReportOptions) -> str:
        """Return the report as a page, in the format of the options."""
        return await self._sent(calls.report_page(system, options))

    async def figure(self, system: SystemOrFleet, options: FigureOptions) -> Figure:
        """Return what a picture shows, as numbers."""
        return await self._sent(calls.figure(system, options))

    async def picture(self, system: SystemOrFleet, options: FigureOptions) -> bytes:
        """Return a picture, in the format of the options."""
        return await self._sent(calls.picture(system, options))

    async def put_loads(self, loads: Loads, *, if_match: str | None = None) -> Plan:
        """Store loads by server in the fleet, with their replicas if given, plan it, and return the plan."""
        return await self._sent(fleet_calls.put_loads(loads, if_match))

    async def last_plan(self) -> LastPlan:
        """Return the last plan of the fleet."""
        return await self._sent(fleet_calls.last_plan())

    async def apply_plan(self, *, if_match: str | None = None) -> ServerList:
        """Apply the last plan, and return the servers."""
        return await self._sent(fleet_calls.apply_plan(if_match))

    async def targets(self) -> tuple[TargetAnswer, ...]:
        """Return how many replicas are desired of every server on every accelerator.

        Raises:
            BusyError: there is no plan, or none that is young enough; raised at once.
        """
        return await self._sent(fleet_calls.targets())

    async def target(self, server: str, accelerator: str) -> TargetAnswer:
        """Return how many replicas are desired of a server on an accelerator.

        Raises:
            BusyError: there is no plan, or none that is young enough; raised at once.
        """
        return await self._sent(fleet_calls.target(server, accelerator))

    async def history(self, limit: int | None = None) -> FleetHistory:
        """Return the last changes and plans of the fleet, the newest first; 100 unless a limit is given."""
        return await self._sent(fleet_calls.history(limit))

    async def past_plan(self, revision: int) -> Plan:
        """Return the plan that was made for a revision of the fleet."""
        return await self._sent(fleet_calls.past_plan(revision))

    async def metrics(self) -> str:
        """Return the metrics, in Prometheus' text format."""
        return await self._sent(fleet_calls.metrics())

    async def etag(self) -> str:
        """Return the `ETag` of the fleet, for `if_match`; ask for it before you read what you change."""
        return await self._sent(fleet_calls.etag())

    async def export_fleet(self) -> SystemSpec:
        """Return the whole fleet as one system document."""
        return await self._sent(fleet_calls.export_fleet())

    async def import_fleet(self, system: SystemLike, *, if_match: str | None = None) -> SystemSpec:
        """Put a system in place of the whole fleet, in one step, and return the fleet."""
        return await self._sent(fleet_calls.import_fleet(system, if_match))

    async def options(self) -> OptimizerOptions:
        """Return the options with which the fleet is planned."""
        return await self._sent(fleet_calls.options())

    async def put_options(
        self, options: OptimizerOptions, *, if_match: str | None = None
    ) -> OptimizerOptions:
        """Replace all options; one that is not given takes its default."""
        return await self._sent(fleet_calls.put_options(options, if_match))

    async def delete_options(self, *, if_match: str | None = None) -> None:
        """Take the default options."""
        await self._sent(fleet_calls.delete_options(if_match))

    async def accelerators(self) -> tuple[Accelerator, ...]:
        """Return the accelerators of the fleet."""
        return await self._sent(fleet_calls.accelerators())

    async def models(self) -> tuple[ModelProfile, ...]:
        """Return the model profiles of the fleet."""
        return await self._sent(fleet_calls.models())

    async def service_classes(self) -> tuple[ServiceClass, ...]:
        """Return the service classes of the fleet."""
        return await self._sent(fleet_calls.service_classes())

    async def servers(self) -> tuple[Server, ...]:
        """Return the servers of the fleet."""
        return await self._sent(fleet_calls.servers())

    async def capacity(self) -> tuple[Capacity, ...]:
        """Return the units of the fleet by type."""
        return await self._sent(fleet_calls.capacity())

    async def put(self, entity: Entity, *, if_match: str | None = None) -> None:
        """Add an entity to the fleet, or replace the one of its name."""
        await self._sent(fleet_calls.put(entity, if_match))

    async def delete(self, entity: Entity, *, if_match: str | None = None) -> None:
        """Take an entity out of the fleet."""
        await self._sent(fleet_calls.delete(entity, if_match))

    async def _sent(self, call: Call[Answer]) -> Answer:
        """Send a request, again where that may help, and return its answer."""
        attempt = 0
        while True:
            headers: Any = {}
            error: ServiceError | UnreachableError | None
            try:
                response = await self._http.request(**request_of(call))
            except self._transport_errors as failed:
                error = transport_error(failed, self._connection)
            else:
                error, headers = refusal(response), response.headers
                if error is None:
                    return answer_of(call, response)
            wait = wait_s(attempt, error, headers, call, self._connection)
            if wait is None:
                raise error
            await sleep(wait)
            attempt += 1
