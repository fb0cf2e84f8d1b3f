"""Token batching: a replica that answers in tokens, several requests at a time."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from optimizer.kinds.kind import Kind
from optimizer.kinds.shown import EVERYWHERE, LOSS, WAIT, Shown, TableName, Words
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
    metrics: ClassVar[tuple[Shown, ...]] = (
        Shown(
            "itl", "itl_ms", "ITL", (*EVERYWHERE, "bars"), "ms", ",.1f", rank=2, target="itl_ms",
            spoken="token time",
        ),
        Shown(
            "ttft", "ttft_ms", "TTFT", EVERYWHERE, "ms", ",.0f", rank=1, target="ttft_ms",
            spoken="first token",
        ),
        Shown("e2e", "", "end-to-end", ("simulated",), "ms", ",.0f", spoken="last token"),
        WAIT._replace(part_of="ttft", long="of which wait"),
        LOSS._replace(long="lost requests"),
    )  # fmt: skip
    orders: ClassVar[Mapping[TableName, tuple[str, ...]]] = MappingProxyType(
        dict.fromkeys(("simulation", "simulated"), ("ttft", "itl"))
    )
    lengths: ClassVar[tuple[str, ...]] = ("in_tokens", "out_tokens")
    words: ClassVar[Words] = Words(
        section=("latencies", "Latencies against targets"), utilisation_heading="batch in use"
    )
