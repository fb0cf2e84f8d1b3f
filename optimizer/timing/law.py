"""Base classes of latency models: parameters and request shapes of R rows, and phases of requests.

A latency model holds the parameters of many rows at once. A row is one model on one accelerator with one
request shape. Equation numbers refer to ``docs/math.md``.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar, Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, RowArrays
from optimizer.documents import Document


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """Mean times of the phases of a request [ms], each of shape (R,)."""

    prefill_ms: FloatArray
    itl_ms: FloatArray
    first_token_ms: FloatArray
    """Time from the start of service to the first token, without queueing time [ms]."""


@dataclass(frozen=True, slots=True)
class RequestShapes:
    """Mean lengths of the requests of R rows [tokens], shapes (R,)."""

    in_tokens: FloatArray
    out_tokens: FloatArray
    out_tokens_cv: FloatArray | None = None
    """Coefficient of variation of the output length, shape (R,); None for 1."""


@dataclass(frozen=True, slots=True)
class Law(RowArrays, ABC):
    """A latency model: parameters and request shapes of R rows."""

    name: ClassVar[str]
    """Name of the latency model in messages."""
    parts: ClassVar[tuple[str, ...]]
    """Document fields that contain the parameters; each is a document of numbers."""
    is_static: ClassVar[bool] = False
    """Whether a batch is completed before the next one starts."""

    @classmethod
    @abstractmethod
    def parameters(cls, document: Document) -> tuple[float, ...]:
        """Return the parameters of the latency model from a document; those of a missing field are zero."""

    @classmethod
    @abstractmethod
    def of_rows(cls, parameters: FloatArray, shapes: RequestShapes) -> Self:
        """Return the latency model of R rows.

        Args:
            parameters: parameters in the order that the method `parameters` returns, shape (K, R).
            shapes: request shapes of the rows.
        """

    @abstractmethod
    def has_work(self) -> BoolArray:
        """Return a mask of the rows in which a single request takes time, shape (R,)."""

    @abstractmethod
    def idle_times(self, max_batch: IntArray) -> tuple[TokenTimes, FloatArray]:
        """Return the times of one-token requests in an idle replica and of a full batch [ms], shapes (R,)."""

    @classmethod
    def applies_to(cls, document: Document) -> bool:  # noqa: ARG003  laws with shared fields check them
        """Return whether a document that gives some of these fields uses this latency model."""
        return True

    @classmethod
    def keys(cls, document: type[Document]) -> str:
        """Return the keys of the latency model in a type of document, for messages."""
        return "/".join(document.model_fields[part].alias or part for part in cls.parts)


@dataclass(frozen=True, slots=True)
class ServiceLaw(Law):
    """A latency model with a service time at a constant batch, for birth-death queues."""

    @abstractmethod
    def service_time_ms(self, occupancy: FloatArray) -> FloatArray:
        """Return the service time of a request at a constant batch [ms]; both shapes (R,)."""

    @abstractmethod
    def token_times(
        self, mean_service_ms: FloatArray, mean_in_service: FloatArray, max_batch: IntArray
    ) -> TokenTimes:
        """Return the times of a request's phases for a mean service time.

        Args:
            mean_service_ms: mean service time [ms], shape (R,).
            mean_in_service: mean batch [requests], shape (R,).
            max_batch: batch limit [requests], shape (R,).
        """

    def is_non_monotone(self, max_batch: IntArray) -> BoolArray:
        """Return a mask of the rows in which a latency can fall as the batch grows, shape (R,)."""
        return np.zeros(len(max_batch), np.bool_)

    def has_work(self) -> BoolArray:
        """Return a mask of the rows in which a single request takes time, shape (R,)."""
        one = np.ones(len(getattr(self, fields(self)[0].name)))
        return np.asarray(self.service_time_ms(one) > 0)
