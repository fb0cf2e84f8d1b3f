"""Base of latency models: parameters and request shapes of R rows, and the times of their phases.

A model holds the parameters of many rows at once; a row is one model on one accelerator with one request
shape. Equation numbers refer to ``docs/math.md``.
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
    """Time from the start of service to the first token, without queueing time [ms]."""


@dataclass(frozen=True, slots=True)
class RequestShapes:
    """Mean lengths of the requests of R rows [tokens], shapes (R,)."""

    in_tokens: FloatArray
    out_tokens: FloatArray
    out_tokens_cv: FloatArray | None = None
    """Coefficient of variation of the output length; None for 1."""


@dataclass(frozen=True, slots=True)
class Law(RowArrays, ABC):
    """Parameters and request shapes of R rows."""

    name: ClassVar[str]
    """Name in messages."""
    parts: ClassVar[tuple[str, ...]]
    """Fields of a document that contain its parameters, each a document of numbers."""
    is_static: ClassVar[bool] = False
    """Whether a batch completes before the next one starts."""

    @classmethod
    @abstractmethod
    def parameters(cls, document: Document) -> tuple[float, ...]:
        """Return the parameters from a document with the model's fields; a missing part is zero."""

    @classmethod
    @abstractmethod
    def of_rows(cls, parameters: FloatArray, shapes: RequestShapes) -> Self:
        """Return the model of R rows.

        Args:
            parameters: in the order of `parameters`, shape (K, R).
            shapes: request shapes of the rows.
        """

    @abstractmethod
    def has_work(self) -> BoolArray:
        """Return whether a lone request takes any time, shape (R,)."""

    @abstractmethod
    def idle_times(self, max_batch: IntArray) -> tuple[TokenTimes, FloatArray]:
        """Return times of one-token requests in an idle replica, and of a full batch [ms], shapes (R,)."""

    @classmethod
    def applies_to(cls, document: Document) -> bool:  # noqa: ARG003  laws with shared fields check them
        """Return whether a document that gives some of these fields uses this model."""
        return True

    @classmethod
    def keys(cls, document: type[Document]) -> str:
        """Return the model's keys in a kind of document, for messages."""
        return "/".join(document.model_fields[part].alias or part for part in cls.parts)


@dataclass(frozen=True, slots=True)
class ServiceLaw(Law):
    """A latency model with a service time at a constant batch, for birth-death queues."""

    @abstractmethod
    def service_time_ms(self, occupancy: FloatArray) -> FloatArray:
        """Return the service time of a request at a constant batch; both shapes (R,)."""

    @abstractmethod
    def token_times(
        self, mean_service_ms: FloatArray, mean_in_service: FloatArray, max_batch: IntArray
    ) -> TokenTimes:
        """Return the phase times for a mean service time.

        Args:
            mean_service_ms: mean service time, shape (R,).
            mean_in_service: mean batch, shape (R,).
            max_batch: batch limit, shape (R,).
        """

    def is_non_monotone(self, max_batch: IntArray) -> BoolArray:
        """Return whether a latency can fall between a batch of one and the limit; shapes (R,)."""
        return np.zeros(len(max_batch), np.bool_)

    def has_work(self) -> BoolArray:
        """Return whether a lone request takes any time, shape (R,)."""
        one = np.ones(len(getattr(self, fields(self)[0].name)))
        return np.asarray(self.service_time_ms(one) > 0)
