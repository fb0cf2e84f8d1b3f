"""Measures that can have a target: a metric together with a statistic of it."""

import re
from typing import Literal, NamedTuple

from optimizer.quantities import quantity

LatencyName = Literal["itl", "ttft", "e2e"]
MetricName = Literal["itl", "ttft", "e2e", "missed", "loss"]


class Metric(NamedTuple):
    """A metric that can have a target, such as TTFT."""

    label: str
    """Display name of the metric."""
    unit: str
    figure: str
    """Field of `Performance` that contains the mean of the metric."""
    scale: float = 1.0
    """Factor from the field's unit to the displayed unit."""


METRICS: dict[MetricName, Metric] = {
    "itl": Metric("ITL", "ms", "itl_ms"),
    "ttft": Metric("TTFT", "ms", "ttft_ms"),
    "e2e": Metric("end-to-end latency", "ms", "response_ms"),
    "missed": Metric("share of requests beyond a target", "%", "missed", 100.0),
    "loss": Metric("loss", "%", "loss", 100.0),
}
"""All metrics by name; if two targets are missed by the same factor, the first metric is reported."""
LATENCIES: dict[LatencyName, str] = {"itl": "itl_ms", "ttft": "ttft_ms", "e2e": "e2e_ms"}
"""Metrics that are latencies, and the field that has each of them in targets and simulated requests [ms]."""


def label_of(metric: str) -> str:
    """Return the display name of a metric, or the name itself if it is unknown."""
    return next((known.label for name, known in METRICS.items() if name == metric), metric)


def metric_of(label: str) -> Metric | None:
    """Return the metric that a measure's display name, such as p95 TTFT, contains; None if it is unknown."""
    return next((known for known in METRICS.values() if known.label in label), None)


def is_about(measure: str, metric: str) -> bool:
    """Return whether a measure's display name is the mean or a percentile of a metric."""
    label = label_of(metric)
    return measure == label or measure.endswith(f" {label}") or f"{label} of " in measure


def statistic_of(label: str) -> str:
    """Return the statistic that a measure's display name contains, such as mean or p95."""
    match = re.match(r"p[0-9.]+(?= )", label)
    return "mean" if match is None else match[0]


class TargetMeasure(NamedTuple):
    """A measure that targets limit: a metric and a statistic of it."""

    metric: MetricName
    percentile: float | None = None
    """Percentile that is limited; None for the mean."""
    hit_rate: float = 0.0
    """Share of requests that a result cache answers, if the measure is computed over the misses but shown for
    all requests.
    """

    shape: str = ""
    """Name of the request shape whose requests count; empty for all requests."""

    @property
    def is_missed(self) -> bool:
        """Whether the measure is the share of requests that miss at least one of their targets."""
        return self.metric == "missed"

    @property
    def label(self) -> str:
        """Display name, for example "TTFT", "p95 TTFT" or "p95 of all requests' TTFT"."""
        label = METRICS[self.metric].label + (f" of {self.shape}" if self.shape else "")
        if self.percentile is None:
            return label
        return f"{self.statistic} of all requests' {label}" if self.hit_rate else f"{self.statistic} {label}"

    @property
    def statistic(self) -> str:
        """Display name of the statistic, such as "mean" or "p95"."""
        if self.percentile is None:
            return "mean"
        return f"p{100 - (100 - self.percentile) * (1 - self.hit_rate):.6g}"

    def text(self, value: float, digits: int = 6) -> str:
        """Format a value of the measure with its unit and the given number of significant digits."""
        metric = METRICS[self.metric]
        return f"{quantity(value * metric.scale, digits)} {metric.unit}"


LOSS = TargetMeasure("loss")
"""The measure: share of requests that are rejected because the queue is full."""
MISSED = TargetMeasure("missed")
"""The measure: share of requests that miss at least one of their targets."""
MEANS: tuple[TargetMeasure, ...] = (TargetMeasure("itl"), TargetMeasure("ttft"), LOSS)
"""Measures that are always computed; others are added if a target limits them."""
