"""What a latency model is: R requests' shapes under fitted parameters, asked for the times of their phases.

A law holds the parameters of many rows at once (a row is one model on one accelerator with one request
shape). It reads them from the fields of a document, makes rows of them, and answers what a queue model asks.
Equation numbers refer to ``docs/math.md``.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar, Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, RowArrays
from optimizer.documents import Document


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """Mean times of a request's phases, each in ms with shape (R,)."""

    prefill_ms: FloatArray
    itl_ms: FloatArray
    first_token_ms: FloatArray
    """From the start of service to the first token; the wait before service is not in it."""


@dataclass(frozen=True, slots=True)
class RequestShapes:
    """Mean lengths of the requests of R rows [tokens], shapes (R,)."""

    in_tokens: FloatArray
    out_tokens: FloatArray
    out_tokens_cv: FloatArray | None = None
    """Coefficient of variation of the output length; none: 1."""


@dataclass(frozen=True, slots=True)
class Law(RowArrays, ABC):
    """Parameters and request shapes of R rows as equally long arrays."""

    name: ClassVar[str]
    """What the law is called in messages."""
    parts: ClassVar[tuple[str, ...]]
    """The fields of a document that hold its parameters, each a document of numbers."""
    is_static: ClassVar[bool] = False
    """Whether a batch is answered as a whole before the next one begins."""

    @classmethod
    @abstractmethod
    def parameters(cls, document: Document) -> tuple[float, ...]:
        """Return the law's parameters from a document that has its fields; a part not given is all zero."""

    @classmethod
    @abstractmethod
    def of_rows(cls, parameters: FloatArray, shapes: RequestShapes) -> Self:
        """Return the law of R rows from parameters in the order of `parameters`, shape (K, R)."""

    @abstractmethod
    def has_work(self) -> BoolArray:
        """Return whether a lone request takes any time at all, shape (R,)."""

    @abstractmethod
    def idle_times(self, max_batch: IntArray) -> tuple[TokenTimes, FloatArray]:
        """Return what is quoted for replicas without load, from requests of one token.

        The second part is the turnaround of a full batch [ms]; all shapes (R,).
        """

    @classmethod
    def takes(cls, document: Document) -> bool:  # noqa: ARG003  laws that share parts tell them apart
        """Say whether what a document gives of these fields is of this law; it gives some of it."""
        return True

    @classmethod
    def keys(cls, document: type[Document]) -> str:
        """Return the law's keys in a document of the given kind, as messages name them."""
        return "/".join(document.model_fields[part].alias or part for part in cls.parts)


@dataclass(frozen=True, slots=True)
class ServiceLaw(Law):
    """A law that knows the service time of a request at a constant batch, as a birth-death queue needs it."""

    @abstractmethod
    def service_time_ms(self, occupancy: FloatArray) -> FloatArray:
        """Return the service time of a request at a constant batch; both shapes (R,)."""

    @abstractmethod
    def token_times(
        self, mean_service_ms: FloatArray, mean_in_service: FloatArray, max_batch: IntArray
    ) -> TokenTimes:
        """Return the phase times that belong to a mean service time; all shapes (R,)."""

    def is_non_monotone(self, max_batch: IntArray) -> BoolArray:
        """Return whether a latency can fall between a batch of one and the limit; shapes (R,)."""
        return np.zeros(len(max_batch), np.bool_)

    def has_work(self) -> BoolArray:
        """Return whether a lone request takes any time at all, shape (R,)."""
        one = np.ones(len(getattr(self, fields(self)[0].name)))
        return np.asarray(self.service_time_ms(one) > 0)
