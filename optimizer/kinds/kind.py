"""The interface of a kind of replica; the layers above use it without naming any kind.

Kinds are below `optimizer.spec`: they depend on their own fields of profiles and servers and on loads, but
not on systems, arrays or plans.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from optimizer.arrays import IntArray
from optimizer.documents import Document
from optimizer.kinds.fields import Load, PlacedServer, ReplicaProfile
from optimizer.kinds.rows import Row
from optimizer.kinds.shown import Shown, TableName, Words
from optimizer.queueing.performance import OwnArrays, QueueModel
from optimizer.simulation.batches import BatchServer
from optimizer.simulation.replicas import SimulatedReplica
from optimizer.timing import Law
from optimizer.units import SECONDS_PER_MINUTE

Fault = tuple[str, str]
"""The path of a field within its document, with dots, and its error message."""


class Refused(NamedTuple):
    """Fields that a kind does not allow, by Python name, and the reason."""

    fields: tuple[str, ...] = ()
    because: str = ""


class OwnRows(NamedTuple):
    """Additional arrays for servers of a kind, with one row for each way to run a server."""

    arrays: OwnArrays
    server: IntArray
    """Server of each row, in ascending order. The best row of a server is chosen, or the first of equally
    good rows; the last row has the settings of the document.
    """


class EngineSettings(NamedTuple):
    """Settings of a plan for the engine of a replica, as its Deployment states them."""

    args: tuple[str, ...] = ()
    """Arguments of the container with the engine."""
    annotations: Mapping[str, str] = MappingProxyType({})
    """Values by annotation name, for engines without a common command line."""


class EngineContainer(NamedTuple):
    """Container of an engine, in a Deployment that is written from nothing."""

    image: str = ""
    """Image; empty if the user's own image has the engine."""
    command: tuple[str, ...] = ()
    """Command of one replica on one node, without the arguments of a plan; empty: that of the image."""
    port: int = 8080
    port_flag: str = ""
    """Flag of the command that sets the port; empty: the image reads the environment variable `PORT`."""
    health_path: str = "/health"
    """Path of the probes; its answer is 200 once the engine can serve."""
    hub_variable: str = ""
    """Environment variable with the token of the hub of models; empty: none."""
    leader_args: tuple[str, ...] = ()
    """Further arguments of the first node of a replica on several nodes."""
    worker_args: tuple[str, ...] = ()
    """Further arguments of its other nodes; both can use the variables of a LeaderWorkerSet."""


P = TypeVar("P", bound=ReplicaProfile)
S = TypeVar("S", bound=PlacedServer)


class KindOf(ABC, Generic[P, S]):
    """A kind of replica: immutable, with one object of each in the table of kinds.

    P and S are the types of its profiles and servers, with the common fields and its own.
    """

    name: ClassVar[str]
    """Plural name in code and messages."""
    gives: ClassVar[str]
    """Key or quantity that marks a profile of this kind: "batchParms", "tokens"."""
    queue_models: ClassVar[Mapping[type[Law], tuple[type[QueueModel], ...]]]
    """Latency models of this kind, each with its queue models, the default first."""
    server_fields: ClassVar[type[Document] | None] = None
    """Server fields that only this kind has."""
    does: ClassVar[str] = ""
    """Verb phrase about those fields, to follow the kind's name: "collect requests"."""
    refused_in_profiles: ClassVar[Refused] = Refused()
    refused_targets: ClassVar[Refused] = Refused()
    row: ClassVar[type[Row] | None] = None
    """Input row for one replica at one rate, recognised by the key `gives`; None: the reference's format."""
    compiles_queues: ClassVar[bool] = False
    """Whether its queue models run compiled code; compilation takes some seconds."""
    mark: ClassVar[str | None] = None
    """Field that only pools of this kind have; None for the default kind."""
    simulated_mark: ClassVar[str | None] = None
    """Boolean field that is true only for simulated pools of this kind."""
    metrics: ClassVar[tuple[Shown, ...]]
    """Metrics of its pools, in column order."""
    orders: ClassVar[Mapping[TableName, tuple[str, ...]]] = MappingProxyType({})
    """Column order of single tables; metrics not listed are last."""
    lengths: ClassVar[tuple[str, ...]] = ()
    """Fields of a load that this kind uses, in addition to the rate."""
    of_server: ClassVar[tuple[str, ...]] = ()
    """Server fields that are shown with its pools."""
    words: ClassVar[Words]

    def check(self, server: S, profiles: Sequence[P], load: Load) -> Iterator[Fault]:  # noqa: ARG002  most kinds override this
        """Yield the faults of a server and the profiles of its model.

        Args:
            server: the server.
            profiles: the profiles of its model.
            load: its load.
        """
        yield from ()

    def demand_rps(self, load: Load, throughput_tps: float) -> float:  # noqa: ARG002  used by kinds with tokens
        """Return the rate that a server must carry [requests/s]; 0 if it is idle.

        Args:
            load: its load.
            throughput_tps: its throughput target [tokens/s]; 0 if it has none.
        """
        return load.arrival_rate_rpm / SECONDS_PER_MINUTE

    def own(self, servers: Sequence[S]) -> OwnRows | None:  # noqa: ARG002  used by kinds with own arrays
        """Return the additional arrays of some servers; None if the kind has none."""
        return None

    @abstractmethod
    def replica(
        self, server: S, profile: P, max_batch: int, pool: Document | None = None
    ) -> SimulatedReplica:
        """Return a replica of a server for the simulator.

        Args:
            server: the server.
            profile: its model on an accelerator.
            max_batch: its batch limit.
            pool: a pool of a plan, with the settings that the plan chose; None selects the server's own
                settings.
        """

    def pool_fields(self, server: S, profile: P, max_batch: int, own: OwnArrays | None) -> Mapping[str, Any]:  # noqa: ARG002
        """Return the additional fields of a `Pool` of this kind, which do not depend on the load.

        Args:
            server: its server.
            profile: its model on an accelerator.
            max_batch: its batch limit.
            own: its row of the additional arrays of this kind.
        """
        return {}

    def engine_settings(self, pool: Document) -> EngineSettings:
        """Return a planned pool's settings for its Deployment; by default a note of its batch limit."""
        return EngineSettings(annotations={"max-batch": str(getattr(pool, "max_batch", 0))})

    def container(self, profile: P, cards: int, source: str) -> EngineContainer:  # noqa: ARG002  only some kinds have a known engine
        """Return the container of a replica; by default the user's own image.

        Args:
            profile: its model on an accelerator.
            cards: cards of the replica.
            source: repository or path of the model's weights.
        """
        return EngineContainer()

    def takes_turns(self, server: S, profile: P, max_batch: int) -> BatchServer | None:  # noqa: ARG002  most kinds do not support it
        """Return a replica that shares a card in time, one batch at a time; None if it cannot share.

        Args:
            server: its server.
            profile: its model on the card.
            max_batch: its batch limit.
        """
        return None

    def shown(self, table: TableName) -> Mapping[str, Shown]:
        """Return the metrics of its pools in a table, by name, in column order."""
        return self._tables.get(table, {})

    @cached_property
    def _tables(self) -> dict[TableName, dict[str, Shown]]:
        found: dict[TableName, dict[str, Shown]] = {}
        for shown in self.metrics:
            for table in shown.tables:
                found.setdefault(table, {})[shown.metric] = shown
        for table, order in self.orders.items():
            found[table] = {metric: found[table][metric] for metric in (*order, *found[table])}
        return found

    @property
    def fields(self) -> set[str]:
        """Return the fields of a pool's row that apply to this kind."""
        own = {shown.field for shown in self.metrics if shown.field and not shown.alias}
        targets = {shown.target_field for shown in self.metrics if shown.target}
        return {*self.lengths, *own, *targets}


Kind = KindOf[Any, Any]
"""Any kind of replica."""
