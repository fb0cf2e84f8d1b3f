"""Token batching: a replica that answers in tokens, several requests at a time."""

from typing import ClassVar

from optimizer.kinds.kind import Kind
from optimizer.timing import FullIterationLaw, IterationLaw, Law, LinearLaw, MixtureIterationLaw, StaticLaw


class TokenBatching(Kind):
    """Continuous batching, and static batches."""

    name: ClassVar[str] = "token batching"
    laws: ClassVar[tuple[type[Law], ...]] = (
        LinearLaw,
        IterationLaw,
        MixtureIterationLaw,
        FullIterationLaw,
        StaticLaw,
    )
