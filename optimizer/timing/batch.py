"""Latency model of dynamic batching: requests are served together, in a time linear in their number."""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.documents import Document, Milliseconds, MillisecondsPerRequest, is_none
from optimizer.timing.law import Law, RequestShapes, TokenTimes

MIN_MS = 1e-3
"""Smallest service time of one request that is accepted [ms]; 0 means unknown."""


class BatchParms(Document):
    """Service time of a batch of n requests [ms]: `base` + `slope` × n."""

    base_ms: Milliseconds = Field(0.0, alias="base")
    """Constant part of the service time of a batch [ms]."""
    slope_ms: MillisecondsPerRequest = Field(0.0, alias="slope")
    """Service time added by each request in the batch [ms per request]."""

    @model_validator(mode="after")
    def _takes_its_time(self) -> "BatchParms":
        """Reject times that are so short that they were probably not meant in milliseconds."""
        alone_ms = self.base_ms + self.slope_ms
        if 0 < alone_ms < MIN_MS:
            raise PydanticCustomError(
                "service_time",
                "a request alone takes {alone} ms (base + slope); it must be at least {least} ms",
                {"alone": f"{alone_ms:g}", "least": f"{MIN_MS:g}"},
            )
        return self


class BatchFields(Document):
    """Document fields of the latency model of dynamic batching."""

    batch: BatchParms | None = Field(None, alias="batchParms", exclude_if=is_none)
    """Service time of a batch of requests without tokens; excludes other latency models, `atTokens` and
    `kvCapacity`.
    """


@dataclass(frozen=True, slots=True)
class BatchLaw(Law):
    """Latency model of dynamic batching for R rows: requests are served together and have no tokens.

    All fields have shape (R,).
    """

    name: ClassVar[str] = "batch"
    parts: ClassVar[tuple[str, ...]] = ("batch",)

    base_ms: FloatArray
    slope_ms: FloatArray

    @classmethod
    def parameters(cls, document: Document) -> tuple[float, ...]:
        """Return base [ms] and slope [ms per request] of a document."""
        assert isinstance(document, BatchFields)
        given = document.batch or BatchParms()
        return given.base_ms, given.slope_ms

    @classmethod
    def of_rows(cls, parameters: FloatArray, shapes: RequestShapes) -> Self:  # noqa: ARG003  no tokens
        """Return the latency model of R rows from base and slope, shape (2, R)."""
        return cls(*parameters)

    def service_time_ms(self, requests: FloatArray) -> FloatArray:
        """Return the service time of a batch of some requests [ms], shape (R,)."""
        return self.base_ms + self.slope_ms * requests

    def has_work(self) -> BoolArray:
        """Return a mask of the rows in which a single request takes time, shape (R,)."""
        return np.asarray(self.service_time_ms(np.ones(1)) > 0)

    def idle_times(self, max_batch: IntArray) -> tuple[TokenTimes, FloatArray]:
        """Return the service times of a single request and of a full batch [ms]."""
        alone, none = self.service_time_ms(np.ones(1)), np.zeros(len(max_batch))
        return TokenTimes(none, none, alone), self.service_time_ms(max_batch.astype(np.float64))
