"""Linear law: latency model whose prefill and decode steps grow linearly with the batch."""

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from optimizer.arrays import FloatArray, IntArray
from optimizer.documents import Document, Milliseconds, MillisecondsPerRequest, MillisecondsPerToken
from optimizer.timing.law import RequestShapes, ServiceLaw, TokenTimes

Batching = Literal["continuous", "static", "padded"]
"""Batching policy of the linear law."""


class DecodeParms(Document):
    """Time of a decode step in the linear law [ms]: α + β × batch."""

    base_ms: Milliseconds = Field(0.0, alias="alpha")
    """α: time of a decode step of an empty batch [ms]."""
    per_request_ms: MillisecondsPerRequest = Field(0.0, alias="beta")
    """β: time added to a decode step by each request in the batch [ms per request]."""


class PrefillParms(Document):
    """Time of a prefill in the linear law [ms]: γ + δ × input tokens × batch."""

    base_ms: Milliseconds = Field(0.0, alias="gamma")
    """γ: time of the prefill of an empty prompt [ms]."""
    per_token_ms: MillisecondsPerToken = Field(0.0, alias="delta")
    """δ: time added to a prefill by each input token and request in the batch [ms per input token and
    request].
    """


class LinearFields(Document):
    """Document fields of the linear law."""

    decode: DecodeParms | None = Field(None, alias="decodeParms")
    """Decode step of the linear law."""
    prefill: PrefillParms | None = Field(None, alias="prefillParms")
    """Prefill of the linear law."""
    batching: Batching = Field("continuous", exclude_if=lambda batching: batching == "continuous")
    """Batching policy of the linear law: requests join and leave individually (`continuous`), or start
    together and leave when they complete (`static`) or when the longest one completes (`padded`). The last
    two require `outTokensCV` of the load, and compute only means.
    """


@dataclass(frozen=True, slots=True)
class LinearLaw(ServiceLaw):
    """Linear law of R rows: prefill and decode steps that grow linearly with the batch.

    A prefill takes γ + δ·in·n and a decode step α + β·n at batch n (eq. 1, 2). All fields have shape (R,).
    Source: the first queue analyser of llm-inferno (llm-inferno/optimizer).
    """

    name: ClassVar[str] = "linear"
    parts: ClassVar[tuple[str, ...]] = ("decode", "prefill")

    decode_base_ms: FloatArray
    """α: time of a decode step of an empty batch [ms]."""
    decode_per_request_ms: FloatArray
    """β: time added to a decode step [ms per request in the batch]."""
    prefill_base_ms: FloatArray
    """γ: time of the prefill of an empty prompt [ms]."""
    prefill_per_token_ms: FloatArray
    """δ: time added to a prefill [ms per input token and request in the batch]."""
    in_tokens: FloatArray
    out_tokens: FloatArray

    @classmethod
    def applies_to(cls, document: Document) -> bool:
        """Return whether a document uses continuous batching."""
        return getattr(document, "batching", "continuous") == "continuous"

    @classmethod
    def parameters(cls, document: Document) -> tuple[float, ...]:
        """Return α, β, γ and δ."""
        assert isinstance(document, LinearFields)
        decode, prefill = document.decode or DecodeParms(), document.prefill or PrefillParms()
        return decode.base_ms, decode.per_request_ms, prefill.base_ms, prefill.per_token_ms

    @classmethod
    def of_rows(cls, parameters: FloatArray, shapes: RequestShapes) -> Self:
        """Return the latency model of R rows from α, β, γ and δ, shape (4, R)."""
        alpha, beta, gamma, delta = parameters
        return cls(alpha, beta, gamma, delta, shapes.in_tokens, shapes.out_tokens)

    def _service_coefficients(self) -> tuple[FloatArray, FloatArray]:
        """Return the coefficients of the service time, which is base + slope·n (eq. 3).

        They are the base [ms] and the slope [ms per request].
        """
        decode_steps = self.out_tokens - 1
        base = np.where(self.in_tokens > 0, self.prefill_base_ms, 0.0) + self.decode_base_ms * decode_steps
        slope = self.prefill_per_token_ms * self.in_tokens + self.decode_per_request_ms * decode_steps
        return base, slope

    def service_time_ms(self, occupancy: FloatArray) -> FloatArray:
        """Return the service time of a request at a constant batch [ms]; both shapes (R,)."""
        base, slope = self._service_coefficients()
        return base + slope * occupancy

    def token_times(
        self, mean_service_ms: FloatArray, mean_in_service: FloatArray, max_batch: IntArray
    ) -> TokenTimes:
        """Return the times of a request's phases at the batch whose service time equals the mean (eq. 19).

        Without a prompt there is no prefill: γ is then neither added to the service time nor subtracted from
        it. If the service time does not depend on the batch, neither do the phases, so any batch gives the
        same times.
        """
        base, slope = self._service_coefficients()
        varies = slope > 0
        effective = np.where(
            varies, (mean_service_ms - base) / np.where(varies, slope, 1.0), mean_in_service
        ).clip(0.0, max_batch)
        prefill = np.where(
            self.in_tokens > 0,
            self.prefill_base_ms + self.prefill_per_token_ms * self.in_tokens * effective,
            0.0,
        )
        return TokenTimes(prefill, self.decode_base_ms + self.decode_per_request_ms * effective, prefill)

    def idle_times(self, max_batch: IntArray) -> tuple[TokenTimes, FloatArray]:
        """Return the times of a single request with a one-token prompt, and of a full batch [ms]."""
        prefill = self.prefill_base_ms + self.prefill_per_token_ms
        times = TokenTimes(prefill, self.decode_base_ms + self.decode_per_request_ms, prefill)
        return times, prefill + self.decode_base_ms + self.decode_per_request_ms * max_batch
