"""The table of kinds: a kind is a module or a package beside this one, and an entry here."""

from collections.abc import Collection, Iterable

from optimizer.documents import Document
from optimizer.kinds import batch_servers
from optimizer.kinds.batch_servers import BatchServers
from optimizer.kinds.kind import Kind
from optimizer.kinds.shown import Shown, TableName
from optimizer.kinds.token_batching import TokenBatching
from optimizer.timing import Law, laws_given

KINDS: tuple[Kind, ...] = (TokenBatching(), BatchServers())
"""All kinds, in the order in which tables and messages name them; the first is the default."""


class KindPoolFields(batch_servers.PoolFields):
    """The fields of a pool that only some kinds have, each absent for the others."""


class KindServerFields(batch_servers.ServerFields):
    """The fields of a server that only some kinds have, beside its pools."""


class KindSimulatedFields(batch_servers.SimulatedFields):
    """The fields of a simulated pool that only some kinds have."""


def kind_of_law(law: type[Law]) -> Kind:
    """Return the kind of a latency model; the default for one that no kind lists."""
    return next((kind for kind in KINDS if law in kind.laws), KINDS[0])


def kind_of_profile(profile: Document) -> Kind:
    """Return the kind of a document that gives a latency model; the default if it gives none."""
    given = laws_given(profile)
    return kind_of_law(given[0]) if given else KINDS[0]


def kind_of_pool(pool: Document) -> Kind:
    """Return the kind of a pool, planned or simulated, by the field that marks it."""
    return next((kind for kind in KINDS if _is_marked(pool, kind)), KINDS[0])


def _is_marked(pool: Document, kind: Kind) -> bool:
    values = [getattr(pool, name, None) for name in (kind.mark, kind.simulated_mark) if name]
    return any(value is not None and value is not False for value in values)


def kinds_of(pools: Iterable[Document]) -> list[Kind]:
    """Return the kinds of pools, in the order of the table; without any the default."""
    return in_order({kind_of_pool(pool) for pool in pools})


def in_order(kinds: Collection[Kind]) -> list[Kind]:
    """Return kinds in the order of the table; the default where there is none."""
    return [kind for kind in KINDS if kind in kinds] or [KINDS[0]]


def shown_in(table: TableName, kinds: Iterable[Kind]) -> list[Shown]:
    """Return what a table shows of pools of some kinds: of all figures of one metric the first.

    What several kinds have stands behind what is their own.
    """
    found: dict[str, Shown] = {}
    for kind in kinds:
        for metric, shown in kind.shown(table).items():
            found[metric] = found.pop(metric, shown)
    return list(found.values())
