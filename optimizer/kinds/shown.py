"""How figures of pools are shown: written once, for tables, pages, comparisons, simulations, pictures."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from optimizer.quantities import percent

TableName = Literal[
    "plan", "candidates", "notebook", "comparison", "simulation", "simulated", "latencies", "use", "bars"
]
"""What shows pools: tables of plans and of candidates, a plan in a notebook, a comparison, the table and the
section of a simulation, the sections of a report on latencies and on utilisation, the picture of servers."""

EVERYWHERE: tuple[TableName, ...] = (
    "plan", "candidates", "notebook", "comparison", "simulation", "simulated", "latencies",
)  # fmt: skip
"""What shows a latency that matters."""


class Shown(NamedTuple):
    """A figure of pools of one kind."""

    metric: str
    """Its name; that of `queueing.measures` where a target can be about it. Kinds share what has one name."""
    field: str
    """Of the row of a pool that holds it."""
    heading: str
    tables: tuple[TableName, ...]
    """What shows it; a comparison shows its mean over requests."""
    unit: str = ""
    form: str | Callable[[Any], str] = ""
    """How a value is written: a format, or a function."""
    rank: int = 0
    """0: always shown; the higher, the sooner its column is left out at a terminal."""
    rank_beside: int | None = None
    """The same beside another kind; none: no other."""
    is_text: bool = False
    least: float = 0.0
    """A table of a plan shows larger values only, and no column without any."""
    target: str | None = None
    """Field of a model's targets that bounds its mean, and that tables show beside it."""
    percentile_ranks: tuple[int, int] | None = None
    """Ranks, alone and beside another kind, of the columns of percentiles; none: these replace the mean."""
    part_of: str | None = None
    """The metric of which it is a part: pages show it between the value and the target of that."""
    long: str = ""
    """Its heading in pages, if that is longer."""
    spoken: str = ""
    """Its name in pictures before the heading, if that is longer."""
    alias: str = ""
    """Its name in CSV, where its field has that of another figure."""
    simulated: str = ""
    """Field of a simulation's summary, and of `Performance`, that holds it; none needed for latencies."""
    note: str = ""
    """What a page says of it."""

    @property
    def target_field(self) -> str:
        """The field of the row of a pool that holds its target."""
        return f"{self.metric}_target_ms"

    @property
    def title(self) -> str:
        """Its heading in pages."""
        return self.long or self.heading

    def with_unit(self, name: str) -> str:
        """Return a heading of it with the unit."""
        return f"{name} [{self.unit}]" if self.unit else name

    def text(self, value: Any) -> str:
        """Return a value as it is written."""
        return self.form(value) if callable(self.form) else format(value, self.form)


def share_text(share: float) -> str:
    """Return a share of requests in percent; small ones in full."""
    return "0" if share < 1e-6 else percent(share)


WAIT = Shown("wait", "wait_ms", "wait", ("comparison", "latencies", "bars"), "ms", ",.0f", rank=5)
LOSS = Shown("loss", "loss", "lost", ("plan", "latencies"), "", share_text, rank=4, least=1e-4)


class Words(NamedTuple):
    """What pages and messages say of a kind."""

    section: tuple[str, str]
    """Name and title of its section on latencies."""
    about: str = "at the load that each pool carries"
    """Of what, and when, the figures of that section are means."""
    utilisation: str = "the mean batch over the batch limit"
    """What its utilisation is."""
    utilisation_heading: str = "utilisation"
    """What that is called where no other kind is shown."""
    replica: str = ""
    """One of its servers, as opposed to others."""
