"""The interface of a kind of replica, which all other packages use without knowing the kind.

Kinds are below `optimizer.spec`: they depend on fields of profiles and servers, and on loads, but not on
systems, arrays or plans.
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
from optimizer.timing.law import Law
from optimizer.units import SECONDS_PER_MINUTE

Fault = tuple[str, str]
"""An error in a document: the path of a field, with dots, and the message."""


class Refused(NamedTuple):
    """Fields that a kind does not support (Python names), and the reason."""

    fields: tuple[str, ...] = ()
    because: str = ""


class OwnRows(NamedTuple):
    """Additional arrays for servers of a kind, with one row for each alternative setting of a server."""

    arrays: OwnArrays
    server: IntArray
    """Index of the server of each row, in ascending order. Plans choose the best row of a server, or the
    first of equally good ones. The last row of a server has the settings of its document.
    """


class EngineSettings(NamedTuple):
    """Settings that a plan chose for the serving engine of a replica, as Kubernetes manifests state them."""

    args: tuple[str, ...] = ()
    """Command-line arguments of the engine's container."""
    annotations: Mapping[str, str] = MappingProxyType({})
    """Annotations for engines without known arguments: values by name."""


class EngineContainer(NamedTuple):
    """Container of a serving engine, for Deployments that are written completely."""

    image: str = ""
    """Container image; empty if the user provides the image."""
    command: tuple[str, ...] = ()
    """Command of a replica on one node, without the arguments of a plan; empty for that of the image."""
    port: int = 8080
    port_flag: str = ""
    """Flag of the command that sets the port; empty if the image reads the environment variable `PORT`."""
    health_path: str = "/health"
    """Path of the health probes; it responds with status 200 when the engine can serve."""
    hub_variable: str = ""
    """Environment variable for the access token of the model hub; empty for none."""
    leader_args: tuple[str, ...] = ()
    """Additional arguments on the first node of a replica that spans several nodes."""
    worker_args: tuple[str, ...] = ()
    """Additional arguments on the other nodes of a replica that spans several nodes; like `leader_args`, they
    can use the variables of a LeaderWorkerSet.
    """
    handover_args: tuple[str, ...] = ()
    """Additional arguments of prefill and decode replicas, by which they hand over KV caches."""
    handover_host: str = ""
    """Environment variable of these replicas for the address of their pod; empty for none."""


P = TypeVar("P", bound=ReplicaProfile)
S = TypeVar("S", bound=PlacedServer)


class KindOf(ABC, Generic[P, S]):
    """Base class of kinds of replicas; the table of kinds has one immutable object of each.

    P and S are the types of the kind's profiles and servers, which have the common fields and those of the
    kind.
    """

    name: ClassVar[str]
    """Plural name of the kind in code and messages."""
    gives: ClassVar[str]
    """Key or quantity that identifies profiles of this kind, such as "batchParms" or "tokens"."""
    queue_models: ClassVar[Mapping[type[Law], tuple[type[QueueModel], ...]]]
    """Latency models of this kind, each with its queue models; the first is the default."""
    server_fields: ClassVar[type[Document] | None] = None
    """Document with the server fields that only this kind has; None if there are none."""
    does: ClassVar[str] = ""
    """Verb phrase about the fields that only this kind has, such as "collect requests"; in messages, it
    follows the kind's name.
    """
    refused_in_profiles: ClassVar[Refused] = Refused()
    refused_targets: ClassVar[Refused] = Refused()
    row: ClassVar[type[Row] | None] = None
    """Type of input lines for one replica of this kind, recognised by the key `gives`; None for llm-inferno's
    format.
    """
    compiles_queues: ClassVar[bool] = False
    """Whether the kind's queue models run compiled code; the compilation takes some seconds."""
    mark: ClassVar[str | None] = None
    """Pool field that only pools of this kind have; None for the default kind."""
    simulated_mark: ClassVar[str | None] = None
    """Boolean field that is true only for simulated pools of this kind; None for the default kind."""
    metrics: ClassVar[tuple[Shown, ...]]
    """Metrics of the kind's pools, in column order."""
    orders: ClassVar[Mapping[TableName, tuple[str, ...]]] = MappingProxyType({})
    """Column order in tables that differ: names of metrics by table; other metrics are last."""
    lengths: ClassVar[tuple[str, ...]] = ()
    """Fields of a load that this kind uses, in addition to the rate."""
    of_server: ClassVar[tuple[str, ...]] = ()
    """Server fields that tables show with the kind's pools."""
    words: ClassVar[Words]

    def check(self, server: S, profiles: Sequence[P], load: Load) -> Iterator[Fault]:  # noqa: ARG002  most kinds override this
        """Yield the errors in a server and in the profiles of its model.

        Args:
            profiles: the profiles of its model.
            load: the load of the server.
        """
        yield from ()

    def demand_rps(self, load: Load, throughput_tps: float) -> float:  # noqa: ARG002  used by kinds with tokens
        """Return the request rate that a server must carry [requests/s]; 0 if it is idle.

        Args:
            load: load of the server.
            throughput_tps: throughput target of the server [tokens/s]; 0 if it has none.
        """
        return load.arrival_rate_rpm / SECONDS_PER_MINUTE

    def own(self, servers: Sequence[S]) -> OwnRows | None:  # noqa: ARG002  used by kinds with own arrays
        """Return the additional arrays of the given servers; None if the kind has none."""
        return None

    @abstractmethod
    def replica(
        self, server: S, profile: P, max_batch: int, pool: Document | None = None
    ) -> SimulatedReplica:
        """Return a replica of a server for the simulator.

        Args:
            profile: profile of the server's model on an accelerator.
            max_batch: batch limit [requests].
            pool: pool of a plan, whose settings are used; None selects the settings of the server.
        """

    def pool_fields(self, server: S, profile: P, max_batch: int, own: OwnArrays | None) -> Mapping[str, Any]:  # noqa: ARG002
        """Return the fields of a `Pool` that only this kind has and that do not depend on the load.

        Args:
            profile: profile of the server's model on an accelerator.
            max_batch: batch limit [requests].
            own: row of the kind's additional arrays; None if it has none.
        """
        return {}

    def engine_settings(self, pool: Document) -> EngineSettings:
        """Return a planned pool's settings for its manifest; by default an annotation of its batch limit."""
        return EngineSettings(annotations={"max-batch": str(getattr(pool, "max_batch", 0))})

    def container(self, profile: P, cards: int, source: str) -> EngineContainer:  # noqa: ARG002  only some kinds have a known engine
        """Return the container of a replica; by default one with the user's own image.

        Args:
            profile: profile of the replica's model on an accelerator.
            cards: number of cards of the replica.
            source: repository or path of the model's weights.
        """
        return EngineContainer()

    def takes_turns(self, server: S, profile: P, max_batch: int) -> BatchServer | None:  # noqa: ARG002  most kinds do not support it
        """Return the server as one that shares a card in time, one batch at a time; None if it cannot.

        Args:
            profile: profile of the server's model on the card.
            max_batch: batch limit [requests].
        """
        return None

    def shown(self, table: TableName) -> Mapping[str, Shown]:
        """Return the metrics of the kind's pools in a table, by name, in column order."""
        return self._tables.get(table, {})

    @cached_property
    def _tables(self) -> dict[TableName, dict[str, Shown]]:
        tables: dict[TableName, dict[str, Shown]] = {}
        for shown in self.metrics:
            for table in shown.tables:
                tables.setdefault(table, {})[shown.metric] = shown
        for table, order in self.orders.items():
            tables[table] = {metric: tables[table][metric] for metric in (*order, *tables[table])}
        return tables

    @property
    def fields(self) -> set[str]:
        """Return the fields of rows about pools that apply to this kind."""
        own = {shown.field for shown in self.metrics if shown.field and not shown.alias}
        targets = {shown.target_field for shown in self.metrics if shown.target}
        return {*self.lengths, *own, *targets}


Kind = KindOf[Any, Any]
"""Any kind of replica."""
