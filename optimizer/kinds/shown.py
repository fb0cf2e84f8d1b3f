"""How metrics of pools are shown in tables, pages, comparisons, simulations and charts."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from optimizer.quantities import percent

TableName = Literal["plan", "candidates", "notebook", "comparison", "simulation", "simulated", "use"]
"""Names of tables and figures that show pools: plan, candidates, plan in a notebook, comparison, table and
report section of a simulation, and report section on utilisation.
"""

EVERYWHERE: tuple[TableName, ...] = (
    "plan", "candidates", "notebook", "comparison", "simulation", "simulated",
)  # fmt: skip
"""Tables that show the main latencies."""


class Shown(NamedTuple):
    """How a metric of the pools of one kind is shown."""

    metric: str
    """Name of the metric, from `queueing.measures` if it can have a target; several kinds can use the same
    name.
    """
    field: str
    """Field of the row about a pool that contains the metric."""
    heading: str
    tables: tuple[TableName, ...]
    """Tables that show the metric; a comparison shows its mean over requests."""
    unit: str = ""
    form: str | Callable[[Any], str] = ""
    """Format of a value: a format specification, or a function that returns text."""
    rank: int = 0
    """Rank for hiding: a narrow terminal hides columns of the highest rank first, and never those of rank 0.
    """
    rank_beside: int | None = None
    """Rank if pools of another kind are also shown; None keeps `rank`."""
    is_text: bool = False
    least: float = 0.0
    """Threshold: the table of a plan shows only larger values, and omits the column if there are none."""
    target: str | None = None
    """Field of the target on the metric's mean; tables show the target next to the value. None if there is
    none.
    """
    percentile_ranks: tuple[int, int] | None = None
    """Ranks of the columns of percentiles, alone and with another kind; None if percentiles replace the mean.
    """
    spoken: str = ""
    """Longer name for charts, placed before the heading."""
    alias: str = ""
    """Column name in CSV files if another metric already uses the field name."""
    simulated: str = ""
    """Field of `Summary` and `Performance` that contains the metric; empty for latencies."""
    note: str = ""
    """Explanatory note on pages; empty for none."""

    @property
    def target_field(self) -> str:
        """Field of the row about a pool that contains the target."""
        return f"{self.metric}_target_ms"

    def text(self, value: Any) -> str:
        """Format a value of the metric."""
        return self.form(value) if callable(self.form) else format(value, self.form)


def request_share_text(share: float) -> str:
    """Format a fraction of requests in percent; fractions below 1e-6 become 0."""
    return "0" if share < 1e-6 else percent(share)


WAIT = Shown("wait", "wait_ms", "wait", ("comparison",), "ms", ",.0f", rank=5)
LOSS = Shown("loss", "loss", "lost", ("plan",), "", request_share_text, rank=4, least=1e-4)


class Words(NamedTuple):
    """Texts about a kind of replica, for pages and messages."""

    utilisation: str = "the mean batch over the batch limit"
    """Definition of the kind's utilisation."""
    utilisation_heading: str = "utilisation"
    """Heading of the utilisation column if no other kind is shown."""
    replica: str = ""
    """Noun phrase for one server of the kind."""
