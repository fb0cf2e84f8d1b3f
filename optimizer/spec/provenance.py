"""Where measured token times come from, and for which requests they hold."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from optimizer.documents import Count, Document, Quantity
from optimizer.quantities import counted, precise, quantity

Range = Annotated[tuple[float, float], Field(strict=False)]
"""Least and most."""
DOMAIN_TOLERANCE = 0.05
"""Relative distance from the measured range that still counts as inside."""


class Domain(Document):
    """What was measured: the least and the most of each."""

    in_tokens: Range = Field(alias="inTokens")
    """Mean prompt length [tokens]."""
    out_tokens: Range = Field(alias="outTokens")
    """Mean answer length [tokens]."""
    rate_rps: Range = Field(alias="rate")
    """Completed by one replica [requests/s]."""
    concurrency: Range
    """Requests in flight at one replica."""

    def misses(self, in_tokens: float, out_tokens: float, concurrency: float) -> Iterator[str]:
        """Yield what of a use was not measured, in words."""
        for what, value, (least, most) in (
            ("prompts", in_tokens, self.in_tokens),
            ("answers", out_tokens, self.out_tokens),
        ):
            if not least * (1 - DOMAIN_TOLERANCE) <= value <= most * (1 + DOMAIN_TOLERANCE):
                measured = f"measured from {precise(least)} to {precise(most)}"
                yield f"{what} of {counted(value, 'token')}, {measured}"
        most = self.concurrency[1]
        if concurrency > most * (1 + DOMAIN_TOLERANCE):
            yield f"requests in flight: {quantity(concurrency, 3)}, measured up to {quantity(most, 3)}"


class FitErrors(Document):
    """How far predicted times are from measured ones: Σ|predicted − measured| / Σ measured."""

    ttft: Quantity
    """Of the median time to the first token."""
    itl: Quantity
    """Of the mean time between tokens."""
    ttft_median: Quantity = Field(alias="ttftMedian")
    """Median relative error of a run."""
    itl_median: Quantity = Field(alias="itlMedian")
    """The same of the time between tokens."""
    runs: Count
    """Runs that were compared."""


class Provenance(Document):
    """Where token times come from."""

    source: str
    """The reports that they were fitted to."""
    tool: str | None = Field(None, exclude_if=lambda tool: tool is None)
    """What measured."""
    date: str | None = Field(None, exclude_if=lambda date: date is None)
    """When it was measured."""
    engine: str | None = Field(None, exclude_if=lambda engine: engine is None)
    """The serving engine, and its version."""
    weights: str | None = Field(None, exclude_if=lambda weights: weights is None)
    """Format of the weights."""
    runs: Count
    """Runs that were fitted."""
    domain: Domain
    """What was measured."""
    errors: FitErrors
    """Errors at the runs that were fitted."""

    def of_pair(self, model: str, accelerator: str) -> str:
        """As plans say it of a model on an accelerator."""
        return f"{model} on {accelerator}: {self.summary}"

    @property
    def summary(self) -> str:
        """As tables and reports say it, in one line."""
        origin = ", ".join(part for part in (self.tool, self.engine, self.weights, self.date) if part)
        return (
            f"measured ({origin or self.source}), {counted(self.runs, 'run')} of "
            f"{precise(self.domain.in_tokens[0])}-{precise(self.domain.in_tokens[1])} tokens in, "
            f"{precise(self.domain.out_tokens[0])}-{precise(self.domain.out_tokens[1])} out; "
            f"errors TTFT {self.errors.ttft:.1%}, ITL {self.errors.itl:.1%}"
        )


def domain_of(lengths: list[tuple[float, float, float, float]]) -> Domain:
    """Return the domain of runs, each with its prompt, answer, rate and requests in flight."""
    columns = list(zip(*lengths, strict=True))
    ends = [(float(min(column)), float(max(column))) for column in columns]
    return Domain(in_tokens=ends[0], out_tokens=ends[1], rate_rps=ends[2], concurrency=ends[3])
