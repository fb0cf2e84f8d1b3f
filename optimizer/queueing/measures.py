"""What a target can be about: a metric of what users see, and the statistic of it that counts."""

from typing import Literal, NamedTuple

MetricName = Literal["itl", "ttft"]


class Metric(NamedTuple):
    """A figure that can have a target."""

    label: str
    """As people write it."""
    unit: str
    figure: str
    """The field of `Performance` that holds its mean."""


METRICS: dict[MetricName, Metric] = {
    "itl": Metric("ITL", "ms", "itl_ms"),
    "ttft": Metric("TTFT", "ms", "ttft_ms"),
}
"""All metrics; of two targets that are missed by the same factor the first is named."""


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
        unit = METRICS[self.metric].unit
        return f"{value:{digits}} {unit}" if unit else f"{value:{digits}}"


MEANS: tuple[Measure, ...] = tuple(Measure(metric) for metric in METRICS)
