"""Real-time streams: a replica has fixed places, each of which a stream holds for as long as it lasts.

A kind of replica that only this folder knows. Who finds every place taken is turned away, so that a replica
is Erlang's loss system, which depends on the mean duration alone.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field

from optimizer.arrays import BoolArray, FloatArray, IntArray, frozen
from optimizer.documents import Coefficient, Document, Milliseconds, is_none
from optimizer.kinds.fields import Load, PlacedServer, ReplicaProfile
from optimizer.kinds.kind import Fault, KindOf, OwnRows, Refused
from optimizer.kinds.shown import Shown, Words
from optimizer.queueing.measures import TargetMeasure
from optimizer.queueing.performance import (
    MS_PER_S,
    OwnArrays,
    Performance,
    QueueModel,
    ReplicaLimits,
    Variability,
)
from optimizer.simulation.engine import SimulatedRun
from optimizer.simulation.replicas import SimulatedReplica, batches_run
from optimizer.simulation.requests import Requests
from optimizer.timing.law import Law, RequestShapes, TokenTimes

MAX_LOAD = 20.0
"""Offered load, as a multiple of the places, up to which rates are sought."""


class StreamParms(Document):
    """How a replica starts a stream."""

    start_ms: Milliseconds = Field(alias="start")
    """Time until a stream that finds a place begins [ms]."""


class StreamLawFields(Document):
    """The fields of a document that gives the law of streams."""

    streams: StreamParms | None = Field(None, alias="streamParms", exclude_if=is_none)
    """Law of streams, of which `maxBatchSize` have a place at once; excludes the other laws."""


class StreamProfile(StreamLawFields, ReplicaProfile):
    """What this kind sees of a profile."""


class StreamFields(PlacedServer):
    """How long streams last."""

    stream_ms: Milliseconds = Field(0.0, alias="streamDuration", exclude_if=lambda ms: ms == 0)
    """Mean duration of a stream [ms]."""
    stream_cv: Coefficient = Field(1.0, alias="streamCV", exclude_if=lambda cv: cv == 1)
    """Coefficient of variation of the duration."""


class StreamPoolFields(Document):
    """What only a pool of streams has."""

    places: int | None = Field(None, exclude_if=is_none)
    """Streams that a replica holds at once."""
    blocked: float | None = Field(None, exclude_if=is_none)
    """Probability that a stream finds no place, at the load."""


@dataclass(frozen=True, slots=True)
class StreamLaw(Law):
    """Streams that begin after a while; shape (R,)."""

    name: ClassVar[str] = "stream"
    parts: ClassVar[tuple[str, ...]] = ("streams",)
    start_ms: FloatArray

    @classmethod
    def parameters(cls, document: Document) -> tuple[float, ...]:
        """Return the time until a stream begins."""
        assert isinstance(document, StreamLawFields)
        return (document.streams.start_ms if document.streams else 0.0,)

    @classmethod
    def of_rows(cls, parameters: FloatArray, shapes: RequestShapes) -> Self:  # noqa: ARG003  no tokens
        """Return the law of R rows."""
        return cls(parameters[0])

    def has_work(self) -> BoolArray:
        """Return that every stream takes its time."""
        return np.ones(len(self.start_ms), np.bool_)

    def idle_times(self, max_batch: IntArray) -> tuple[TokenTimes, FloatArray]:
        """Return the time until a lone stream begins, and a second for as many as there are places."""
        none = np.zeros(len(max_batch))
        return TokenTimes(none, none, self.start_ms), none + MS_PER_S


@dataclass(frozen=True, slots=True)
class Durations(OwnArrays):
    """How long the streams of R replicas last, shape (R,)."""

    stream_ms: FloatArray


@dataclass(frozen=True, slots=True)
class StreamPerformance(Performance):
    """Figures of R replicas."""

    @property
    def own(self) -> Mapping[str, FloatArray]:
        """The probability of finding no place."""
        return {"blocked": self.loss}


@dataclass(frozen=True, slots=True)
class StreamQueues(QueueModel):
    """R replicas of places without a queue; shapes (R,)."""

    name: ClassVar[str] = "streams"
    start_ms: FloatArray
    places: IntArray
    stream_ms: FloatArray

    @classmethod
    def supports_measure(cls, measure: TargetMeasure) -> bool:
        """Say that only means are known."""
        return measure.percentile is None and measure.metric in {"ttft", "loss"}

    @classmethod
    def of_law(cls, law: Law, room: ReplicaLimits, variability: Variability) -> Self:  # noqa: ARG003  insensitive
        """Build the replicas."""
        assert isinstance(law, StreamLaw)
        assert isinstance(room.own, Durations)
        return cls(law.start_ms, room.max_batch, room.own.stream_ms)

    @property
    def law_type(self) -> type[Law]:
        """The law that drives it."""
        return StreamLaw

    @property
    def stable_rate_rps(self) -> FloatArray:
        """The largest rate that is looked at: there is a long run at any."""
        return MAX_LOAD * MS_PER_S * self.places / self.stream_ms

    @property
    def least_rate_rps(self) -> FloatArray:
        """The lower end of the rates that are looked at."""
        return 1e-6 * self.stable_rate_rps

    def analyze(self, rate_rps: FloatArray) -> StreamPerformance:
        """Return the figures at some rates, by Erlang's recursion."""
        offered, loss = rate_rps * self.stream_ms / MS_PER_S, np.ones(len(self.places))
        for n in range(1, int(self.places.max()) + 1):
            loss = np.where(n <= self.places, offered * loss / (n + offered * loss), loss)
        held, none = offered * (1 - loss), np.zeros(len(loss))
        return StreamPerformance(
            offered_rps=rate_rps,
            throughput_rps=rate_rps * (1 - loss),
            response_ms=self.stream_ms,
            wait_ms=none,
            service_ms=self.stream_ms,
            prefill_ms=none,
            ttft_ms=self.start_ms,
            itl_ms=none,
            in_service=held,
            in_queue=none,
            utilization=held / self.places,
            loss=loss,
            p_empty=none,
            p_full=loss,
        )


@dataclass(frozen=True, slots=True)
class StreamReplica(SimulatedReplica):
    """The places of one replica."""

    places: int
    start_ms: float
    stream_ms: float
    stream_cv: float

    def with_chances(self, requests: Requests, seed: np.random.SeedSequence) -> Requests:
        """Return streams with their durations, gamma distributed."""
        (own,) = seed.spawn(1)
        shape = 1 / self.stream_cv**2
        lasting_ms = np.random.default_rng(own).gamma(shape, self.stream_ms / shape, (1, len(requests)))
        return replace(requests, stage_ms=frozen(lasting_ms))

    def run(self, requests: Requests) -> SimulatedRun:
        """Give each stream a place, if there is one."""
        assert requests.arrival_ms is not None
        assert requests.stage_ms is not None
        last_ms, ends = np.full(len(requests), np.nan), list[float]()
        for row, (now, lasting) in enumerate(zip(requests.arrival_ms, requests.stage_ms[0], strict=True)):
            while ends and ends[0] <= now:
                heapq.heappop(ends)
            if len(ends) < self.places:
                heapq.heappush(ends, float(now + lasting))
                last_ms[row] = now + lasting
        held_ms = float(requests.stage_ms[0][~np.isnan(last_ms)].sum())
        first_ms = np.where(np.isnan(last_ms), np.nan, requests.arrival_ms + self.start_ms)
        return batches_run(requests, first_ms, last_ms, float(requests.arrival_ms[-1]), held_ms, len(ends))


class Streams(KindOf[StreamProfile, StreamFields]):
    """Places that streams hold."""

    name: ClassVar[str] = "streams"
    gives: ClassVar[str] = "streamParms"
    queue_models: ClassVar[Mapping[type[Law], tuple[type[QueueModel], ...]]] = {StreamLaw: (StreamQueues,)}
    server_fields: ClassVar[type[Document] | None] = StreamFields
    does: ClassVar[str] = "last"
    refused_in_profiles: ClassVar[Refused] = Refused(("at_tokens",), "streams have no tokens; remove it")
    refused_targets: ClassVar[Refused] = Refused(("itl_ms", "e2e_ms", "user_tps", "tps"), "it has no tokens")
    mark: ClassVar[str | None] = "places"
    metrics: ClassVar[tuple[Shown, ...]] = (
        Shown("ttft", "ttft_ms", "start", ("plan", "simulated"), "ms", ",.0f", target="ttft_ms"),
        Shown("places", "places", "places", ("plan",), "", "d"),
        Shown("blocked", "blocked", "blocked", ("plan", "use", "comparison"), "", ".2%"),
    )
    words: ClassVar[Words] = Words(
        utilisation="the places that streams hold",
        replica="a server of streams, which has no tokens",
    )

    def check(
        self,
        server: StreamFields,
        profiles: Sequence[StreamProfile],  # noqa: ARG002
        load: Load,  # noqa: ARG002
    ) -> Iterator[Fault]:
        """Yield that streams need a duration."""
        if not server.stream_ms:
            yield "streamDuration", "missing; give the mean duration of a stream"

    def own(self, servers: Sequence[StreamFields]) -> OwnRows:
        """Return how long streams last."""
        return OwnRows(Durations(np.array([s.stream_ms for s in servers])), np.arange(len(servers)))

    def replica(
        self,
        server: StreamFields,
        profile: StreamProfile,
        max_batch: int,
        pool: Document | None = None,  # noqa: ARG002  a plan chooses nothing else
    ) -> StreamReplica:
        """Return the places of a replica."""
        start_ms = profile.streams.start_ms if profile.streams else 0.0
        return StreamReplica(max_batch, start_ms, server.stream_ms, server.stream_cv)

    def pool_fields(
        self,
        server: StreamFields,  # noqa: ARG002
        profile: StreamProfile,  # noqa: ARG002
        max_batch: int,
        own: OwnArrays | None,  # noqa: ARG002
    ) -> Mapping[str, Any]:
        """Return the places."""
        return {"places": max_batch}
