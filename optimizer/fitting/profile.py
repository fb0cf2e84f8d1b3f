"""A fitted profile: a document with a law, its errors, where it holds, and what it was fitted to."""

import os
from typing import Literal

from pydantic import Field

from optimizer.documents import Count, Document, Name, PositiveCount, Quantity, SliceCount
from optimizer.errors import FitError, SpecError
from optimizer.fitting.runs import Arrivals, BenchmarkRun, RunMeasurements, TokenCounts
from optimizer.fitting.server import ServerSettings
from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.lengths import LengthDistributionKind
from optimizer.spec.files import plain_value, read_text
from optimizer.spec.messages import validated
from optimizer.spec.provenance import FitErrors, Provenance
from optimizer.timing import DEFAULT_MAX_NUM_TOKENS, PerfParms, SchedulerName


def _is_none(value: object) -> bool:
    return value is None


SHARED_FIELDS = ("source", "arrivals", "arrival_cv", "duration_s", "requests", "max_in_flight", "burst")
"""Fields that a point has in common with its run."""


class MeasuredPoint(Document):
    """A run that was measured, by the names of the columns of a CSV file of points, and what is predicted."""

    source: str = ""
    """The file, and which run in it."""
    in_tokens: Quantity
    """Mean prompt length [tokens]."""
    out_tokens: Quantity
    """Mean answer length [tokens]."""
    in_tokens_cv: Quantity = 0.0
    """Coefficient of variation of the prompt length."""
    out_tokens_cv: Quantity = 0.0
    """Coefficient of variation of the answer length."""
    in_lengths: LengthDistributionKind = Field(LengthDistributionKind.UNIFORM, strict=False)
    """The law of the prompt lengths."""
    out_lengths: LengthDistributionKind = Field(LengthDistributionKind.UNIFORM, strict=False)
    """The law of the answer lengths."""
    arrivals: Arrivals = Field(strict=False)
    """How the client sent."""
    arrival_cv: float | None = Field(None, exclude_if=_is_none)
    """Coefficient of variation of the times between arrivals, where it is not that of the name."""
    rate_rps: Quantity | None = Field(None, exclude_if=_is_none)
    """Offered [requests/s]."""
    duration_s: Quantity | None = Field(None, exclude_if=_is_none)
    """How long it took [s]."""
    requests: Count | None = Field(None, exclude_if=_is_none)
    """Requests sent."""
    max_in_flight: Count | None = Field(None, exclude_if=_is_none)
    """Requests of the client on the way at once."""
    burst: Count = Field(0, exclude_if=lambda burst: not burst)
    """Requests sent at once at the beginning."""
    fitted: bool = True
    """Whether it was fitted, or held out."""
    ttft_ms: Quantity | None = Field(None, exclude_if=_is_none)
    """Measured: median time to the first token [ms]."""
    itl_ms: Quantity | None = Field(None, exclude_if=_is_none)
    """Measured: mean time between tokens [ms]."""
    throughput_rps: Quantity | None = Field(None, exclude_if=_is_none)
    """Measured: completed [requests/s]."""
    predicted_ttft_ms: Quantity | None = Field(None, exclude_if=_is_none)
    """Predicted by the profile's law."""
    predicted_itl_ms: Quantity | None = Field(None, exclude_if=_is_none)
    """Predicted by the profile's law."""
    predicted_throughput_rps: Quantity | None = Field(None, exclude_if=_is_none)
    """Predicted by the profile's law."""

    @classmethod
    def of(cls, run: BenchmarkRun) -> "MeasuredPoint":
        """Return a run as a point, without predictions."""
        return cls(
            in_tokens=run.prompts.mean,
            out_tokens=run.answers.mean,
            in_tokens_cv=run.prompts.cv,
            out_tokens_cv=run.answers.cv,
            in_lengths=run.prompts.kind,
            out_lengths=run.answers.kind,
            rate_rps=None if run.rate_rps is None or run.rate_rps > MAX_RATE_RPS else run.rate_rps,
            **{name: getattr(run, name) for name in SHARED_FIELDS},
            **run.measured._asdict(),
        )

    def run(self) -> BenchmarkRun:
        """Return the run that was measured."""
        return BenchmarkRun(
            TokenCounts(self.in_tokens, self.in_tokens_cv, self.in_lengths),
            TokenCounts(self.out_tokens, self.out_tokens_cv, self.out_lengths),
            rate_rps=self.rate_rps,
            measured=RunMeasurements(self.ttft_ms, self.itl_ms, self.throughput_rps),
            **{name: getattr(self, name) for name in SHARED_FIELDS},
        )


MAX_RATE_RPS = 1e9


class FitReport(Document):
    """How well the law is known."""

    standard_errors: PerfParms = Field(alias="standardErrors")
    """Of each parameter; 0 of those that were not fitted."""
    condition_number: Quantity = Field(alias="conditionNumber")
    """Of the equilibrated Jacobian: 1 is ideal, above 30 the runs tell some parameters hardly apart."""
    fitted_terms: tuple[str, ...] = Field(alias="fittedTerms", strict=False)
    """The parameters that were fitted."""
    errors: FitErrors
    """At the runs that were fitted."""
    held_out: FitErrors | None = Field(None, alias="heldOut", exclude_if=_is_none)
    """At rates that were held out of the fit."""
    held_out_throughput: Quantity | None = Field(None, alias="heldOutThroughput", exclude_if=_is_none)
    """Median relative error of what is completed at runs held out whose client sent all that it might."""
    left_out: dict[str, FitErrors] = Field(
        default_factory=dict, alias="leftOut", exclude_if=lambda one: not one
    )
    """By shape, at its runs below 85 % of its largest rate, had the shape not been measured."""
    warnings: tuple[str, ...] = Field((), strict=False)
    """What the runs cannot tell, and what was assumed."""


class FittedProfile(Document):
    """Token times of one model on one accelerator, measured."""

    name: Name
    """The model."""
    accelerator: Name = Field(alias="acc")
    """The accelerator's name."""
    acc_count: SliceCount = Field(1, alias="accCount")
    """Accelerators of one replica."""
    iteration: PerfParms = Field(alias="perfParms")
    """The law."""
    max_num_tokens: PositiveCount = Field(DEFAULT_MAX_NUM_TOKENS, alias="maxNumTokens")
    """Token budget of one iteration."""
    scheduler: SchedulerName = "chunked"
    """How prompts are computed."""
    kv_capacity_tokens: Count | None = Field(None, alias="kvCapacity", exclude_if=_is_none)
    """Tokens of KV cache; absent: not stated."""
    max_batch_size: Count = Field(0, alias="maxBatchSize")
    """Largest batch; 0: not stated."""
    queue_model: Literal["continuous"] = Field("continuous", alias="queueModel")
    """What plans with it."""
    provenance: Provenance
    """Where it comes from."""
    fit: FitReport
    """How well the law is known."""
    points: tuple[MeasuredPoint, ...] = Field((), strict=False)
    """What was measured."""

    @property
    def settings(self) -> ServerSettings:
        """The server that was measured."""
        return ServerSettings(
            self.kv_capacity_tokens, self.max_batch_size or None, self.max_num_tokens, self.scheduler
        )

    @property
    def coefficients(self) -> IterationCoefficients:
        """The law as the simulator takes it."""
        return coefficients_of(self.iteration)

    def entry(self) -> dict[str, object]:
        """Return what a system document says of the model on the accelerator, in plain values."""
        values = self.model_dump(mode="json", by_alias=True, exclude={"fit", "points"})
        values["perfParms"] = {key: value for key, value in values["perfParms"].items() if value}
        return {key: value for key, value in values.items() if key != "maxBatchSize" or value}

    def document(self) -> dict[str, object]:
        """Return the profile in plain values under the wire names."""
        return self.model_dump(mode="json", by_alias=True)


def coefficients_of(law: PerfParms) -> IterationCoefficients:
    """Return the coefficients of a latency model for the simulator."""
    return IterationCoefficients(**{name: getattr(law, name) for name in IterationCoefficients._fields})


def read_profile(path: str | os.PathLike[str]) -> FittedProfile:
    """Read a fitted profile from a YAML or JSON file.

    Raises:
        FitError: it is no profile.
        SpecError: it cannot be read.
    """
    value = plain_value(read_text(path), str(path))
    if not isinstance(value, dict) or "perfParms" not in value:
        raise FitError(f"{path}: not a fitted profile; give a file written by 'inferplan fit -o'")
    try:
        return validated(FittedProfile, value, f"{path}: ")
    except SpecError as error:
        raise FitError(str(error)) from None
