"""Provenance of measured token times, and the range of requests for which they are valid."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from optimizer.documents import Count, Document, Quantity, is_none
from optimizer.quantities import counted, precise, quantity

Range = Annotated[tuple[float, float], Field(strict=False)]
"""Minimum and maximum of a measured quantity."""
DOMAIN_TOLERANCE = 0.05
"""Relative tolerance at both ends of a measured range."""


class Domain(Document):
    """Range of each quantity in the measured runs: minimum and maximum."""

    in_tokens: Range = Field(alias="inTokens")
    """Range of the mean input length [tokens]."""
    out_tokens: Range = Field(alias="outTokens")
    """Range of the mean output length [tokens]."""
    rate_rps: Range = Field(alias="rate")
    """Range of the throughput of one replica [requests/s]."""
    concurrency: Range
    """Range of the number of requests in flight per replica."""

    def misses(self, in_tokens: float, out_tokens: float, concurrency: float) -> Iterator[str]:
        """Yield a description of each quantity that is outside the measured range.

        Args:
            in_tokens: mean input length [tokens].
            out_tokens: mean output length [tokens].
            concurrency: requests in flight per replica.
        """
        for what, value, (low, high) in (
            ("prompts", in_tokens, self.in_tokens),
            ("answers", out_tokens, self.out_tokens),
        ):
            if not low * (1 - DOMAIN_TOLERANCE) <= value <= high * (1 + DOMAIN_TOLERANCE):
                measured = f"measured from {precise(low)} to {precise(high)}"
                yield f"{what} of {counted(value, 'token')}, {measured}"
        high = self.concurrency[1]
        if concurrency > high * (1 + DOMAIN_TOLERANCE):
            yield f"requests in flight: {quantity(concurrency, 3)}, measured up to {quantity(high, 3)}"


class FitErrors(Document):
    """Errors of predicted times relative to measured ones: Σ|predicted − measured| / Σ measured."""

    ttft: Quantity
    """Relative error of the median time to first token."""
    itl: Quantity
    """Relative error of the mean inter-token latency."""
    ttft_median: Quantity = Field(alias="ttftMedian")
    """Median over runs of the relative error of the time to first token."""
    itl_median: Quantity = Field(alias="itlMedian")
    """Median over runs of the relative error of the inter-token latency."""
    runs: Count
    """Number of runs compared."""


class Provenance(Document):
    """Source of fitted token times: the benchmark and the fit."""

    source: str
    """The benchmark reports used for the fit."""
    tool: str | None = Field(None, exclude_if=is_none)
    """The benchmark tool."""
    date: str | None = Field(None, exclude_if=is_none)
    """Date of the benchmark."""
    engine: str | None = Field(None, exclude_if=is_none)
    """Serving engine of the benchmark, with its version."""
    weights: str | None = Field(None, exclude_if=is_none)
    """Weight format of the benchmarked model."""
    runs: Count
    """Number of runs used for the fit."""
    domain: Domain
    """Range of the quantities that were measured."""
    errors: FitErrors
    """Errors of the fit, for the runs that it used."""

    def of_pair(self, model: str, accelerator: str) -> str:
        """Return the one-line summary, preceded by the model and the accelerator."""
        return f"{model} on {accelerator}: {self.summary}"

    @property
    def summary(self) -> str:
        """Summary in one line for tables and reports."""
        origin = ", ".join(part for part in (self.tool, self.engine, self.weights, self.date) if part)
        return (
            f"measured ({origin or self.source}), {counted(self.runs, 'run')} of "
            f"{precise(self.domain.in_tokens[0])}-{precise(self.domain.in_tokens[1])} tokens in, "
            f"{precise(self.domain.out_tokens[0])}-{precise(self.domain.out_tokens[1])} out; "
            f"errors TTFT {self.errors.ttft:.1%}{f', ITL {self.errors.itl:.1%}' if self.errors.itl else ''}"
        )
