"""The client for asyncio: every method is awaited."""

from asyncio import sleep
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from optimizer.plan import Plan
from optimizer.replica import ReplicaPerformance, ReplicaSizing
from optimizer.spec.schema import Accelerator, Capacity, ModelProfile, Server, ServiceClass
from optimizer.studies.comparison.document import Comparison
from optimizer.studies.explanation.document import Explanation
from optimizer.studies.figures.document import Figure
from optimizer.studies.reports.report import Report
from rest_server.client import calls
from rest_server.client.calls import Answer, Call, Entity, Loads, SystemLike
from rest_server.client.sending import (
    Connection,
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
    ExplainOptions,
    FigureOptions,
    LastPlan,
    PlanOptions,
    ReportOptions,
    ServerList,
    SizingProblem,
    TwoSides,
)

if TYPE_CHECKING:
    from rest_server.client.errors import ServiceError, UnreachableError


class AsyncClient:
    """A service at an address; for asyncio. Errors are those of `rest_server.client`.

    Args:
        url: the service's address, such as ``http://127.0.0.1:8080``.
        api_key: sent with every request.
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
        """
        httpx = httpx_module()
        self._connection = Connection(url, api_key, timeout_s, retries)
        self._http = httpx.AsyncClient(**self._connection.settings(), transport=transport)
        self._transport_errors: tuple[type[Exception], ...] = (httpx.TransportError,)

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

    async def candidates(self, system: SystemLike) -> CandidateAnswer:
        """Return what every server takes on every accelerator, or why it cannot run there."""
        return await self._sent(calls.candidates(system))

    async def analyze(self, analysis: Analysis) -> ReplicaPerformance:
        """Return what a replica does at a rate."""
        return await self._sent(calls.analyze(analysis))

    async def size(self, problem: SizingProblem) -> ReplicaSizing:
        """Return the largest rate at which a replica meets its targets."""
        return await self._sent(calls.size(problem))

    async def compare(
        self, sides: SystemLike | TwoSides, options: CompareOptions | None = None
    ) -> Comparison:
        """Return two plans side by side; of a system alone the limited and the unlimited one."""
        return await self._sent(calls.compare(sides, options))

    async def explain(self, system: SystemLike, options: ExplainOptions | None = None) -> Explanation:
        """Return why the best plan is as it is."""
        return await self._sent(calls.explain(system, options))

    async def report(self, system: SystemLike, options: PlanOptions | None = None) -> Report:
        """Return the report of the best plan as numbers."""
        return await self._sent(calls.report(system, options))

    async def report_page(self, system: SystemLike, options: ReportOptions) -> str:
        """Return the report as a page, in the format of the options."""
        return await self._sent(calls.report_page(system, options))

    async def figure(self, system: SystemLike, options: FigureOptions) -> Figure:
        """Return what a picture shows, as numbers."""
        return await self._sent(calls.figure(system, options))

    async def picture(self, system: SystemLike, options: FigureOptions) -> bytes:
        """Return a picture, in the format of the options."""
        return await self._sent(calls.picture(system, options))

    async def put_loads(self, loads: Loads, *, if_match: str | None = None) -> Plan:
        """Store loads by server in the fleet, plan it, and return the plan."""
        return await self._sent(calls.put_loads(loads, if_match))

    async def last_plan(self) -> LastPlan:
        """Return the last plan of the fleet."""
        return await self._sent(calls.last_plan())

    async def apply_plan(self, *, if_match: str | None = None) -> ServerList:
        """Take the last plan as carried out, and return the servers."""
        return await self._sent(calls.apply_plan(if_match))

    async def accelerators(self) -> tuple[Accelerator, ...]:
        """Return the accelerators of the fleet."""
        return await self._sent(calls.accelerators())

    async def models(self) -> tuple[ModelProfile, ...]:
        """Return the model profiles of the fleet."""
        return await self._sent(calls.models())

    async def service_classes(self) -> tuple[ServiceClass, ...]:
        """Return the service classes of the fleet."""
        return await self._sent(calls.service_classes())

    async def servers(self) -> tuple[Server, ...]:
        """Return the servers of the fleet."""
        return await self._sent(calls.servers())

    async def capacity(self) -> tuple[Capacity, ...]:
        """Return the units of the fleet by type."""
        return await self._sent(calls.capacity())

    async def put(self, entity: Entity, *, if_match: str | None = None) -> None:
        """Add an entity to the fleet, or replace the one of its name."""
        await self._sent(calls.put(entity, if_match))

    async def delete(self, entity: Entity, *, if_match: str | None = None) -> None:
        """Take an entity out of the fleet."""
        await self._sent(calls.delete(entity, if_match))

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
                    return call.read(response.content)
            wait = wait_s(attempt, error, headers, call, self._connection)
            if wait is None:
                raise error
            await sleep(wait)
            attempt += 1
