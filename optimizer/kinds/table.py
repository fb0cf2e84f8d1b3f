"""The table of kinds: a kind is a module or a package beside this one, and an entry here."""

from optimizer.documents import Document
from optimizer.kinds import batch_servers
from optimizer.kinds.batch_servers import BatchServers
from optimizer.kinds.kind import Kind
from optimizer.kinds.token_batching import TokenBatching
from optimizer.timing import Law, laws_given

KINDS: tuple[Kind, ...] = (TokenBatching(), BatchServers())
"""All kinds, in the order in which tables and messages name them; the first is the default."""


class KindPoolFields(batch_servers.PoolFields):
    """The fields of a pool that only some kinds have, each absent for the others."""


def kind_of_law(law: type[Law]) -> Kind:
    """Return the kind of a latency model; the default for one that no kind lists."""
    return next((kind for kind in KINDS if law in kind.laws), KINDS[0])


def kind_of_profile(profile: Document) -> Kind:
    """Return the kind of a document that gives a latency model; the default if it gives none."""
    given = laws_given(profile)
    return kind_of_law(given[0]) if given else KINDS[0]


def kind_of_pool(pool: Document) -> Kind:
    """Return the kind of a pool, by the field that marks it."""
    return next(
        (kind for kind in KINDS if kind.mark and getattr(pool, kind.mark, None) is not None), KINDS[0]
    )
