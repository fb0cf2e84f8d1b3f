"""What a target can be about: a metric of what users see, and the statistic of it that counts."""

from typing import Literal, NamedTuple

LatencyName = Literal["itl", "ttft"]
MetricName = Literal["itl", "ttft", "loss"]


class Metric(NamedTuple):
    """A figure that can have a target."""

    label: str
    """As people write it."""
    unit: str
    figure: str
    """The field of `Performance` that holds its mean."""
    scale: float = 1.0
    """Factor from the field to the unit."""


METRICS: dict[MetricName, Metric] = {
    "itl": Metric("ITL", "ms", "itl_ms"),
    "ttft": Metric("TTFT", "ms", "ttft_ms"),
    "loss": Metric("loss", "%", "loss", 100.0),
}
"""All metrics; of two targets that are missed by the same factor the first is named."""
LATENCIES: tuple[LatencyName, ...] = ("itl", "ttft")
"""The metrics that are latencies, in ms."""


class Measure(NamedTuple):
    """What a target is about: a metric, and the statistic of it that must keep to the limit."""

    metric: MetricName
    percentile: float | None = None
    """None: the mean."""

    @property
    def label(self) -> str:
        """As people write it: TTFT, p95 TTFT."""
        label = METRICS[self.metric].label
        return label if self.percentile is None else f"p{self.percentile:g} {label}"

    def text(self, value: float, digits: str = "g") -> str:
        """Return a value of the measure with its unit."""
        metric = METRICS[self.metric]
        return f"{value * metric.scale:{digits}} {metric.unit}"


MEANS: tuple[Measure, ...] = tuple(Measure(metric) for metric in METRICS)
"""The means of all metrics."""
LOSS = Measure("loss")
"""The share of requests that find the queue full."""
