"""Quantities that can have a target: a metric and its statistic."""

import re
from typing import Literal, NamedTuple

from optimizer.quantities import quantity

LatencyName = Literal["itl", "ttft", "e2e"]
MetricName = Literal["itl", "ttft", "e2e", "missed", "loss"]


class Metric(NamedTuple):
    """A metric that can have a target."""

    label: str
    """Display name."""
    unit: str
    figure: str
    """Field of `Performance` that contains the mean."""
    scale: float = 1.0
    """Factor from the field to the displayed unit."""


METRICS: dict[MetricName, Metric] = {
    "itl": Metric("ITL", "ms", "itl_ms"),
    "ttft": Metric("TTFT", "ms", "ttft_ms"),
    "e2e": Metric("end-to-end latency", "ms", "response_ms"),
    "missed": Metric("share of requests beyond a target", "%", "missed", 100.0),
    "loss": Metric("loss", "%", "loss", 100.0),
}
"""All metrics; if two targets are missed by the same factor, the first metric is reported."""
LATENCIES: tuple[LatencyName, ...] = ("itl", "ttft", "e2e")
"""Metrics that are latencies, in ms."""


def label_of(metric: str) -> str:
    """Return the display name of a metric, or the name itself if it is unknown."""
    return next((known.label for name, known in METRICS.items() if name == metric), metric)


def metric_of(label: str) -> Metric | None:
    """Return the metric of a measure's display name, such as p95 TTFT; None if it is unknown."""
    return next((known for known in METRICS.values() if known.label in label), None)


def is_about(measure: str, metric: str) -> bool:
    """Return whether a measure's display name is about a metric: its mean or a percentile."""
    label = label_of(metric)
    return measure == label or measure.endswith(f" {label}")


def statistic_of(label: str) -> str:
    """Return the statistic in a measure's display name: mean or p95."""
    found = re.match(r"p[0-9.]+(?= )", label)
    return "mean" if found is None else found[0]


class TargetMeasure(NamedTuple):
    """A metric and the statistic of it that is limited."""

    metric: MetricName
    percentile: float | None = None
    """Percentile; None for the mean."""
    hit_rate: float = 0.0
    """Share of all requests that a cache answers, if the percentile is that of the others, or the share of
    requests that miss a target is one of all requests."""

    @property
    def is_missed(self) -> bool:
        """Whether it is the share of requests that miss at least one of their targets."""
        return self.metric == "missed"

    @property
    def label(self) -> str:
        """Display name, for example TTFT, p95 TTFT or p95 of all requests' TTFT."""
        label = METRICS[self.metric].label
        if self.percentile is None:
            return label
        return f"{self.statistic} of all requests' {label}" if self.hit_rate else f"{self.statistic} {label}"

    @property
    def statistic(self) -> str:
        """Display name of the statistic: mean or p95."""
        if self.percentile is None:
            return "mean"
        return f"p{100 - (100 - self.percentile) * (1 - self.hit_rate):.6g}"

    def text(self, value: float, digits: int = 6) -> str:
        """Return a value of the measure with its unit, to the given number of significant digits."""
        metric = METRICS[self.metric]
        return f"{quantity(value * metric.scale, digits)} {metric.unit}"


LOSS = TargetMeasure("loss")
"""Share of requests rejected because the queue is full."""
MISSED = TargetMeasure("missed")
"""Share of requests that miss at least one of their targets."""
MEANS: tuple[TargetMeasure, ...] = (TargetMeasure("itl"), TargetMeasure("ttft"), LOSS)
"""Measures that every system has; others are added if a target names them."""
