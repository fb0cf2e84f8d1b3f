"""The table of kinds of replicas: each is a module or package, with document fields and an entry here."""

from collections.abc import Collection, Iterable
from typing import Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from optimizer.documents import Document
from optimizer.kinds.batch_servers.fields import BatchServerFields, PoolFields, RowFields, SimulatedFields
from optimizer.kinds.batch_servers.kind import BatchServers
from optimizer.kinds.kind import Kind
from optimizer.kinds.shown import Shown, TableName
from optimizer.kinds.token_batching import TokenBatching, TokenFields, TokenPoolFields
from optimizer.queueing.performance import QueueModel
from optimizer.timing.batch import BatchFields
from optimizer.timing.law import Law
from optimizer.timing.static import is_static

KINDS: tuple[Kind, ...] = (
    TokenBatching(),
    BatchServers(),
)
"""All kinds of replicas, in the order of tables and messages; the first is the default."""


class LawFields(BatchFields, TokenFields):  # pydantic orders fields by the last base first
    """Fields for one latency model of any kind."""

    @model_validator(mode="after")
    def _static_batches_are_linear(self) -> Self:
        if is_static(self) and (self.iteration is not None or self.batch is not None):
            raise PydanticCustomError(
                "static_law",
                "batching: {batching} batches take decodeParms and prefillParms (linear law); give those",
                {"batching": self.batching},
            )
        return self


class ServerFields(BatchServerFields):
    """Fields of a server: those of all kinds, and those of single kinds."""


class KindPoolFields(TokenPoolFields, PoolFields):  # pydantic orders fields by the last base first
    """Fields of a pool that only some kinds have; absent for other kinds."""


class KindRowFields(RowFields):
    """Settings of a pool's server that only some kinds have; absent for other kinds."""


class KindSimulatedFields(SimulatedFields):
    """Fields of a simulated pool that only some kinds have; absent for other kinds."""


QUEUE_MODELS_OF: dict[type[Law], tuple[type[QueueModel], ...]] = {
    law: models for kind in KINDS for law, models in kind.queue_models.items()
}
"""Queue models of each type of latency model, the default first; in the order of messages."""


_PARTS = tuple((part, kind) for kind in KINDS[1:] for law in kind.queue_models for part in law.parts)
"""Fields of a profile that select a kind other than the default."""


def kind_of_law(law: type[Law]) -> Kind:
    """Return the kind of replica with a latency model; the default kind if no kind lists it."""
    return next((kind for kind in KINDS if law in kind.queue_models), KINDS[0])


def kind_of_profile(profile: Document) -> Kind:
    """Return the kind of replica of a document with a latency model; the default kind if it has none."""
    given = vars(profile)
    for part, kind in _PARTS:
        if given.get(part) is not None:
            return kind
    return KINDS[0]


def kind_of_pool(pool: Document) -> Kind:
    """Return the kind of a planned or simulated pool, which a field identifies (`Kind.mark`)."""
    return next((kind for kind in KINDS if _is_marked(pool, kind)), KINDS[0])


def _is_marked(pool: Document, kind: Kind) -> bool:
    values = [getattr(pool, name, None) for name in (kind.mark, kind.simulated_mark) if name]
    return any(value is not None and value is not False for value in values)


def kinds_of(pools: Iterable[Document]) -> list[Kind]:
    """Return the distinct kinds of pools, in table order; the default kind if there are no pools."""
    return in_order({kind_of_pool(pool) for pool in pools})


def in_order(kinds: Collection[Kind]) -> list[Kind]:
    """Sort kinds in table order; return the default kind if there are none."""
    return [kind for kind in KINDS if kind in kinds] or [KINDS[0]]


def shown_in(table: TableName, kinds: Iterable[Kind]) -> list[Shown]:
    """Return the metrics that a table shows for pools of the given kinds, without duplicate names.

    Metrics common to several kinds are last.
    """
    by_metric: dict[str, Shown] = {}
    for kind in kinds:
        for metric, shown in kind.shown(table).items():
            by_metric[metric] = by_metric.pop(metric, shown)
    return list(by_metric.values())
