"""What a target can be about: a metric of what users see, and the statistic of it that counts."""

from typing import Literal, NamedTuple

from optimizer.quantities import quantity

LatencyName = Literal["itl", "ttft", "e2e"]
MetricName = Literal["itl", "ttft", "e2e", "missed", "loss"]


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
    "e2e": Metric("end-to-end latency", "ms", "response_ms"),
    "missed": Metric("share of requests beyond a target", "%", "missed", 100.0),
    "loss": Metric("loss", "%", "loss", 100.0),
}
"""All metrics; of two targets that are missed by the same factor the first is named."""
LATENCIES: tuple[LatencyName, ...] = ("itl", "ttft", "e2e")
"""The metrics that are latencies, in ms."""


def label_of(metric: str) -> str:
    """Return a metric as people write it; one that no target can be about by its own name."""
    return next((known.label for name, known in METRICS.items() if name == metric), metric)


class TargetMeasure(NamedTuple):
    """What a target is about: a metric, and the statistic of it that must keep to the limit."""

    metric: MetricName
    percentile: float | None = None
    """None: the mean."""

    @property
    def label(self) -> str:
        """As people write it: TTFT, p95 TTFT."""
        label = METRICS[self.metric].label
        return label if self.percentile is None else f"{self.statistic} {label}"

    @property
    def statistic(self) -> str:
        """The statistic as people write it: mean, p95."""
        return "mean" if self.percentile is None else f"p{self.percentile:g}"

    def text(self, value: float, digits: int = 6) -> str:
        """Return a value of the measure to so many digits, with its unit."""
        metric = METRICS[self.metric]
        return f"{quantity(value * metric.scale, digits)} {metric.unit}"


LOSS = TargetMeasure("loss")
"""The share of requests that find the queue full."""
MISSED = TargetMeasure("missed")
"""The share of requests that miss at least one of their targets."""
MEANS: tuple[TargetMeasure, ...] = (TargetMeasure("itl"), TargetMeasure("ttft"), LOSS)
"""What targets usually are about: those of a fleet are kept over these, and over what else is asked for."""
