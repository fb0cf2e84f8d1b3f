"""Batch servers: a replica that collects requests and answers them together, without tokens."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from pydantic import Field

from optimizer.documents import Document, is_none
from optimizer.kinds.kind import Kind
from optimizer.kinds.shown import EVERYWHERE, LOSS, WAIT, Shown, TableName, Words
from optimizer.quantities import quantity
from optimizer.simulation.batches import TriggerName
from optimizer.timing import BatchLaw, Law


class PoolFields(Document):
    """What only a pool of batch servers has."""

    busy: float | None = Field(None, exclude_if=is_none)
    """Share of the time in which a batch server is busy, at the load; absent for others, as the next two."""
    mean_batch: float | None = Field(None, alias="avgBatch", exclude_if=is_none)
    """Mean number of requests that it answers together."""
    batch_window_ms: float | None = Field(None, alias="batchWindow", exclude_if=is_none)
    """How long it collects a batch: the window, as given or chosen [ms]."""
    binding: str | None = Field(None, exclude_if=is_none)
    """What can serve the least where it has stages: `server`, `stage:` and a name, or `jobs`; else absent."""


class ServerFields(Document):
    """What stands beside a pool of batch servers of what its server asks for."""

    batch_trigger: TriggerName | None = Field(None, alias="batchTrigger", exclude_if=is_none)
    """What starts a batch that is not full."""


class SimulatedFields(Document):
    """What only a simulated pool of batch servers has."""

    answers_together: bool = Field(
        default=False, alias="answersTogether", exclude_if=lambda together: not together
    )
    """Whether it is of a batch server: there are no tokens, and the answer is all at once; else absent."""


_WINDOW = Shown("window", "batch_window_ms", "window", ("plan",), "ms", ",g", rank=3)
_BUSY = "Busy is the share of the time in which a batch server answers, be its batches full or not."


class BatchServers(Kind):
    """Bulk service of whole batches."""

    name: ClassVar[str] = "batch servers"
    laws: ClassVar[tuple[type[Law], ...]] = (BatchLaw,)
    mark: ClassVar[str | None] = "batch_window_ms"
    simulated_mark: ClassVar[str | None] = "answers_together"
    metrics: ClassVar[tuple[Shown, ...]] = (
        Shown("trigger", "batch_trigger", "trigger", ("plan", "latencies"), rank=6, is_text=True),
        _WINDOW,
        _WINDOW._replace(tables=("latencies",), form=quantity),
        Shown("mean batch", "mean_batch", "mean batch", ("plan", "latencies"), "", ",.1f", rank=7),
        WAIT,
        Shown(  # in the field that clients know; beside TTFT the mean, which both have, before percentiles
            "e2e", "ttft_ms", "latency", (*EVERYWHERE, "bars"), "ms", ",.0f", rank=2, rank_beside=1,
            percentile_ranks=(1, 2), alias="latencyAverage",
        ),
        LOSS._replace(heading="rejected"),
        Shown("busy", "busy", "busy", ("plan", "use"), "", ".0%", rank=8, note=_BUSY),
    )  # fmt: skip
    orders: ClassVar[Mapping[TableName, tuple[str, ...]]] = MappingProxyType(
        {"plan": ("e2e", "window", "trigger", "mean batch", "busy"), "comparison": ("e2e",), "bars": ("e2e",)}
    )
    of_server: ClassVar[tuple[str, ...]] = ("batch_trigger",)
    words: ClassVar[Words] = Words(
        section=("batches", "Latencies of batch servers"),
        about=(
            "of the time from the arrival of a request to its answer, at the load that each pool carries; "
            "the wait before the batch is part of it"
        ),
        utilisation="what arrives over what full batches answer",
        replica="a batch server, which has no tokens",
    )
