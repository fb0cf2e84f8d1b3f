"""The document of a fitted profile: a latency model with its errors, domain and measurements."""

import os
from dataclasses import fields
from operator import not_
from typing import Any, Literal

from pydantic import Field

from optimizer.documents import Count, Document, Name, PositiveCount, Quantity, SliceCount, is_none
from optimizer.errors import FitError, SpecError
from optimizer.fitting.options import ServerSettings
from optimizer.fitting.runs import Arrivals, BenchmarkRun, RunMeasurements, TokenCounts
from optimizer.printed import Printed
from optimizer.schema.files import plain_value, read_text
from optimizer.schema.messages import validated
from optimizer.schema.provenance import FitErrors, Provenance, Range
from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.lengths import LengthDistribution
from optimizer.timing import PerfParms
from optimizer.timing.engine import SchedulerName
from optimizer.timing.iteration import DEFAULT_MAX_NUM_TOKENS


class MeasuredPoint(Document):
    """A measured run with its prediction; fields have the names of the columns in CSV files of points."""

    source: str = ""
    """Name of the file, and of the run in it."""
    in_tokens: Quantity
    """Mean prompt length [tokens]."""
    out_tokens: Quantity
    """Mean output length [tokens]."""
    in_tokens_cv: Quantity = 0.0
    """Coefficient of variation of the prompt length."""
    out_tokens_cv: Quantity = 0.0
    """Coefficient of variation of the output length."""
    in_lengths: LengthDistribution = Field(LengthDistribution.UNIFORM, strict=False)
    """Distribution of the prompt length."""
    out_lengths: LengthDistribution = Field(LengthDistribution.UNIFORM, strict=False)
    """Distribution of the output length."""
    arrivals: Arrivals = Field(strict=False)
    """Arrival process of the client."""
    arrival_cv: float | None = Field(None, exclude_if=is_none)
    """Coefficient of variation of the interarrival times, if it differs from that of `arrivals`."""
    rate_rps: Quantity | None = Field(None, exclude_if=is_none)
    """Offered rate [requests/s]; absent for a closed loop."""
    duration_s: Quantity | None = Field(None, exclude_if=is_none)
    """Duration of the run [s]; absent if the run ends with its last request."""
    requests: Count | None = Field(None, exclude_if=is_none)
    """Maximum number of requests sent; absent if unlimited."""
    max_in_flight: Count | None = Field(None, exclude_if=is_none)
    """Maximum number of requests that the client keeps in flight; absent if unlimited."""
    burst: Count = Field(0, exclude_if=not_)
    """Number of requests sent at once at the start."""
    cached_share: Quantity = Field(0.0, exclude_if=not_)
    """Share of the tokens of each prompt that a prefix cache held."""
    think_ms: Quantity = Field(0.0, exclude_if=not_)
    """Think time of a user between requests [ms]."""
    fitted: bool = True
    """Whether the run was used in the fit; otherwise it was held out."""
    ttft_ms: Quantity | None = Field(None, exclude_if=is_none)
    """Measured median time to first token [ms]."""
    itl_ms: Quantity | None = Field(None, exclude_if=is_none)
    """Measured mean inter-token latency [ms]."""
    throughput_rps: Quantity | None = Field(None, exclude_if=is_none)
    """Measured throughput of completed requests [requests/s]."""
    predicted_ttft_ms: Quantity | None = Field(None, exclude_if=is_none)
    """Predicted median time to first token [ms]."""
    predicted_itl_ms: Quantity | None = Field(None, exclude_if=is_none)
    """Predicted mean inter-token latency [ms]."""
    predicted_throughput_rps: Quantity | None = Field(None, exclude_if=is_none)
    """Predicted throughput of completed requests [requests/s]."""

    @classmethod
    def of(cls, run: BenchmarkRun) -> "MeasuredPoint":
        """Create a point from a run, without predictions."""
        return cls.taken_from(
            run,
            in_tokens=run.prompts.mean,
            out_tokens=run.answers.mean,
            in_tokens_cv=run.prompts.cv,
            out_tokens_cv=run.answers.cv,
            in_lengths=run.prompts.distribution,
            out_lengths=run.answers.distribution,
            rate_rps=None if run.rate_rps is None or run.rate_rps > MAX_RATE_RPS else run.rate_rps,
            **run.measured._asdict(),
        )

    def run(self) -> BenchmarkRun:
        """Convert the point back to the measured run."""
        return BenchmarkRun(
            TokenCounts(self.in_tokens, self.in_tokens_cv, self.in_lengths),
            TokenCounts(self.out_tokens, self.out_tokens_cv, self.out_lengths),
            measured=RunMeasurements(self.ttft_ms, self.itl_ms, self.throughput_rps),
            **{
                field.name: getattr(self, field.name)
                for field in fields(BenchmarkRun)
                if hasattr(self, field.name)
            },
        )


MAX_RATE_RPS = 1e9
Z = 1.96
"""Half-width of a 95 % interval in standard errors."""


class FitReport(Document):
    """Quality of a fit: intervals of parameters, prediction errors and warnings."""

    intervals: dict[str, Range] = Field(default_factory=dict)
    """95 % interval of each parameter, from the posterior distribution."""
    fitted_terms: tuple[str, ...] = Field(alias="fittedTerms", strict=False)
    """Names of the parameters that the runs identify; the others are 0 or those of the prior."""
    prior: str = ""
    """Source of the prior distribution of the parameters."""
    errors: FitErrors
    """Prediction errors over the fitted runs."""
    held_out: FitErrors | None = Field(None, alias="heldOut", exclude_if=is_none)
    """Prediction errors over runs at held-out rates; absent if there are none."""
    held_out_throughput: Quantity | None = Field(None, alias="heldOutThroughput", exclude_if=is_none)
    """Median relative error of throughput over held-out closed loops of several users; absent if there are
    none.
    """
    left_out: dict[str, FitErrors] = Field(default_factory=dict, alias="leftOut", exclude_if=not_)
    """Cross-validation by shape (mean input and output length): prediction errors over its runs below 85 % of
    its maximum rate if the shape is excluded from the fit; absent if there are none.
    """
    spoiled_by: str | None = Field(None, alias="spoiledBy", exclude_if=is_none)
    """Sentence about a run that contradicts the others, so that the fit predicts another run much worse than
    without it; absent if there is none.
    """
    warnings: tuple[str, ...] = Field((), strict=False)
    """Sentences about parameters that the runs cannot identify, and about assumptions."""


class FittedProfile(Printed, Document):
    """Token times of one model on one accelerator, fitted to measurements."""

    name: Name
    """Name of the model."""
    accelerator: Name = Field(alias="acc")
    """Name of the accelerator."""
    acc_count: SliceCount = Field(1, alias="accCount")
    """Number of accelerators per replica."""
    iteration: PerfParms = Field(alias="perfParms")
    """Parameters of the latency model."""
    max_num_tokens: PositiveCount = Field(DEFAULT_MAX_NUM_TOKENS, alias="maxNumTokens")
    """Maximum number of tokens in one iteration."""
    scheduler: SchedulerName = "chunked"
    """Scheduler of the measured server: `chunked` or `prefill-first`."""
    kv_capacity_tokens: Count | None = Field(None, alias="kvCapacity", exclude_if=is_none)
    """KV cache capacity [tokens]; absent if unknown."""
    max_batch_size: Count = Field(0, alias="maxBatchSize")
    """Batch limit [requests]; 0 if unknown."""
    queue_model: Literal["continuous"] = Field("continuous", alias="queueModel")
    """Queue model that plans use for the profile."""
    provenance: Provenance
    """Origin of the measurements."""
    fit: FitReport
    """Quality of the fit: intervals of parameters, prediction errors and warnings."""
    points: tuple[MeasuredPoint, ...] = Field((), strict=False)
    """Measured runs with their predictions."""

    @property
    def settings(self) -> ServerSettings:
        """Settings of the measured server."""
        return ServerSettings(**{field.name: getattr(self, field.name) for field in fields(ServerSettings)})

    @property
    def coefficients(self) -> IterationCoefficients:
        """Coefficients of the latency model for the simulator."""
        names = IterationCoefficients._fields
        return IterationCoefficients(**{name: getattr(self.iteration, name) for name in names})

    def entry(self) -> dict[str, object]:
        """Return the profile's entry in the `models` of a system document, as plain values."""
        values = self.model_dump(mode="json", by_alias=True, exclude={"fit", "points"})
        values["perfParms"] = {key: value for key, value in values["perfParms"].items() if value}
        return {key: value for key, value in values.items() if key != "maxBatchSize" or value}

    def document(self) -> dict[str, object]:
        """Return the profile as plain values under its JSON keys."""
        return self.model_dump(mode="json", by_alias=True)


def read_profile(path: str | os.PathLike[str]) -> FittedProfile:
    """Read a fitted profile from a YAML or JSON file.

    Raises:
        FitError: the file is not a profile.
        SpecError: the file cannot be read.
    """
    value = plain_value(read_text(path), str(path))
    if not isinstance(value, dict) or "perfParms" not in value:
        raise FitError(f"{path}: not a fitted profile; give a file written by 'inferplan fit -o'")
    try:
        return validated(FittedProfile, _with_intervals(value), f"{path}: ")
    except SpecError as error:
        raise FitError(str(error)) from None


def _with_intervals(value: dict[str, Any]) -> dict[str, Any]:
    """Return a profile of an earlier version with intervals of its standard errors instead of these."""
    report = value.get("fit")
    if not isinstance(report, dict) or not isinstance(report.get("standardErrors"), dict):
        return value
    kept = {key: item for key, item in report.items() if key not in {"standardErrors", "conditionNumber"}}
    law, errors = value["perfParms"], report["standardErrors"]
    ends = {
        key: (max(law.get(key, 0.0) - Z * error, 0.0), law.get(key, 0.0) + Z * error)
        for key, error in errors.items()
        if error
    }
    note = f"the profile is of an earlier version: intervals are {Z} standard errors; fit the reports again"
    return {**value, "fit": {**kept, "intervals": ends, "warnings": [note, *report.get("warnings", ())]}}
