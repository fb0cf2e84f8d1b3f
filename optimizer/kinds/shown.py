"""Presentation of pool metrics, shared by tables, pages, comparisons, simulations and charts."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from optimizer.quantities import percent

TableName = Literal[
    "plan", "candidates", "notebook", "comparison", "simulation", "simulated", "latencies", "use", "bars"
]
"""Tables and figures that show pools: plans and candidates, a plan in a notebook, a comparison, the table and
section of a simulation, the report sections on latencies and utilisation, and the chart of servers.
"""

EVERYWHERE: tuple[TableName, ...] = (
    "plan", "candidates", "notebook", "comparison", "simulation", "simulated", "latencies",
)  # fmt: skip
"""Tables that show the main latencies."""


class Shown(NamedTuple):
    """A metric of the pools of one kind."""

    metric: str
    """Name of the metric, from `queueing.measures` if it can have a target; several kinds can use the same
    name.
    """
    field: str
    """Field of a pool's row that contains the metric."""
    heading: str
    tables: tuple[TableName, ...]
    """Tables that show the metric; a comparison shows its mean over requests."""
    unit: str = ""
    form: str | Callable[[Any], str] = ""
    """Format of a value: a format specification or a function."""
    rank: int = 0
    """Priority of its column: 0 is always shown; the highest is hidden first in a narrow terminal."""
    rank_beside: int | None = None
    """Rank if another kind is also shown; None keeps the rank."""
    is_text: bool = False
    least: float = 0.0
    """Threshold: a plan's table shows only larger values, and omits the column if there are none."""
    target: str | None = None
    """Field of a model's targets that limits its mean; tables show it next to the value."""
    percentile_ranks: tuple[int, int] | None = None
    """Ranks of its percentile columns, alone and with another kind; None if percentiles replace the mean."""
    part_of: str | None = None
    """Metric of which it is a component; pages show it between that metric's value and target."""
    long: str = ""
    """Longer heading for pages."""
    spoken: str = ""
    """Longer name for charts, before the heading."""
    alias: str = ""
    """Name in CSV files if another metric already uses its field name."""
    simulated: str = ""
    """Field of `Summary` and `Performance` that contains it; not needed for latencies."""
    note: str = ""
    """Explanatory note on pages."""

    @property
    def target_field(self) -> str:
        """Return the field of a pool's row that contains its target."""
        return f"{self.metric}_target_ms"

    @property
    def title(self) -> str:
        """Return the heading for pages."""
        return self.long or self.heading

    def with_unit(self, name: str) -> str:
        """Return a heading with the unit."""
        return f"{name} [{self.unit}]" if self.unit else name

    def text(self, value: Any) -> str:
        """Return a formatted value."""
        return self.form(value) if callable(self.form) else format(value, self.form)


def request_share_text(share: float) -> str:
    """Return a fraction of requests in percent; fractions below 1e-6 as 0."""
    return "0" if share < 1e-6 else percent(share)


WAIT = Shown("wait", "wait_ms", "wait", ("comparison", "latencies", "bars"), "ms", ",.0f", rank=5)
LOSS = Shown("loss", "loss", "lost", ("plan", "latencies"), "", request_share_text, rank=4, least=1e-4)


class Words(NamedTuple):
    """Texts about a kind, for pages and messages."""

    section: tuple[str, str]
    """Name and title of its latency section."""
    about: str = "at the load that each pool carries"
    """Text after "Means" in that section's introduction."""
    utilisation: str = "the mean batch over the batch limit"
    """Definition of its utilisation."""
    utilisation_heading: str = "utilisation"
    """Heading of the utilisation if no other kind is shown."""
    replica: str = ""
    """Noun phrase for one of its servers."""
