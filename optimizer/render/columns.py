"""The columns of all tables: what each holds, how its values are written, which go first for want of room.

`rank` decides what a narrow terminal shows: columns of rank 0 always, of the others those of low rank before
those of high rank, as far as they fit. Units are data beside the name, so that headings and CSV have them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from optimizer.money import CENTS
from optimizer.quantities import percent, quantity, share_text, significant

NOTHING = "-"


class Column(NamedTuple):
    """A column of a table."""

    name: str
    unit: str = ""
    form: str | Callable[[Any], str] = ""
    """How numbers are written: a format, or a function."""
    rank: int = 0
    """0: always shown; the higher, the sooner the column is left out."""
    kind: Literal["number", "name", "words"] = "number"
    """Numbers are never broken; names are shortened in their middle; words are broken between them."""
    none: str = NOTHING
    """What stands where there is no value; empty: nothing, and without any value there is no such column."""
    sides: tuple[str, str] | None = None
    """Where values are pairs, such as before and after: the names of the two."""

    def written(self, value: Any) -> str:
        """Return a value as text."""
        if value is None:
            return self.none
        if isinstance(value, str):
            return value
        return self.form(value) if callable(self.form) else format(value, self.form)


def name(heading: str, rank: int = 0) -> Column:
    """Return a column of names."""
    return Column(heading, kind="name", rank=rank, none="")


def words(heading: str, rank: int = 0) -> Column:
    """Return a column of text."""
    return Column(heading, kind="words", rank=rank)


RPM = "req/min"

FOR_PROGRAMS = 10
"""The rank of columns that only say in words what a mark says; nobody misses them at a terminal."""
ESTIMATED = Column("estimated", kind="name", rank=FOR_PROGRAMS, none="")
"""Which end of the interval figures rest on, where token times are estimated."""

# --- plans ------------------------------------------------------------------------------------------------


def allocations(losses: Iterable[Column], figures: Iterable[Column]) -> tuple[Column, ...]:
    """Return the columns of the pools of a plan, with those of what is lost and of other figures."""
    return (
        name("server"),
        Column("prio", rank=6, none=""),
        name("accelerator"),
        Column("replicas", form=",d"),
        Column("cards", form=",d", none="0"),
        Column("batch", form="d", rank=5),
        Column("load", RPM, quantity, rank=4),
        *losses,
        Column("capacity", RPM, quantity, rank=8),
        *figures,
        words("targets", rank=1)._replace(none=""),
        Column("util", form=".0%", rank=9),
        Column("cost", CENTS, ",.2f"),
        ESTIMATED,
    )


CARDS = (
    name("type"),
    Column("used", form=",d"),
    Column("exist", form=",d", none="unlimited"),
    Column("left", form=",d"),
)
LIMITS = (
    name("limit"),
    name("of"),
    Column("used", form=quantity),
    Column("exist", form=quantity),
    Column("left", form=quantity),
)
UNSERVED = (
    name("server"),
    Column("prio", rank=2),
    Column("served", form=share_text),
    name("reason", rank=1),
    words("detail"),
)
OVERLOAD = (words("with"), words("served"), Column("cost", CENTS, ",.2f"))
OBJECTIVES = (
    name("objective"),
    Column("reached", form=",.2f"),
    Column("bound", form=",.2f"),
    Column("gap", form=percent),
)

# --- candidates, replicas, measurements -------------------------------------------------------------------


def candidates(figures: Iterable[Column]) -> tuple[Column, ...]:
    """Return the columns of candidates, with those of their figures."""
    return (
        name("server"),
        name("accelerator"),
        Column("replicas", form=",d"),
        Column("cards", form=",d"),
        name("type", rank=5),
        Column("batch", form="d", rank=3),
        Column("rate per replica", RPM, quantity, rank=4),
        *figures,
        Column("cost", CENTS, ",.2f"),
        ESTIMATED,
    )


REJECTED = (name("server"), name("accelerator"), name("reason", rank=1), words("detail"))
FIGURES = (words("figure"), Column("value"), words("unit"))
RATES = (words("by"), Column("rate", "req/s", significant(7)), Column("rate", RPM, significant(7)))


def bench_columns(stages: tuple[str, ...]) -> tuple[Column, ...]:
    """Return the columns of measurements with so many stages."""
    return (
        words("servers x accelerators"),
        Column("columns", form=",d", rank=3),
        *(Column(stage, "ms", ",.1f") for stage in stages),
        Column("largest gap", form=percent, rank=1),
        Column("of service", form=percent, rank=4),
        words("complete plans", rank=1),
        words("proved", rank=4),
        Column("peak memory", "MiB", ",.0f", rank=2),
    )


# --- simulations ------------------------------------------------------------------------------------------


def simulated_pools(figures: Iterable[tuple[Column, Sequence[str]]]) -> tuple[Column, ...]:
    """Return the columns of simulated pools: of each figure, and of its percentiles, lower first."""
    return (
        name("server"),
        name("accelerator"),
        Column("replicas", form=",d", rank=5),
        Column("rate of each", "req/s", significant(3), rank=6),
        *(column for i, figure in enumerate(figures) for column in _simulated(*figure, i)),
        Column("within targets", form=".1%"),
        Column("verdict", kind="words"),
    )


def _simulated(figure: Column, percentiles: Sequence[str], place: int) -> Iterator[Column]:
    """Yield the columns of a figure, as planned and as simulated; the plan of later ones goes first."""
    name, unit, form = figure.name, figure.unit, figure.form
    yield Column(f"{name} plan", unit, form, rank=1 + place)
    yield Column(f"{name} simulated", unit, form)
    for rank, percentile in enumerate(percentiles, 3):
        yield Column(f"{name} {percentile} plan", unit, form, rank=4 + rank, none="")
        yield Column(f"{name} {percentile}", unit, form, rank=rank)


SIMULATED_MISSES = (
    name("server"),
    name("accelerator", rank=1),
    words("target"),
    Column("limit", form=significant(6)),
    Column("simulated"),
    Column("over", form="+.1%", none=""),
    words("verdict"),
    words("why")._replace(none=""),
)

SIMULATED_FIGURES = (
    name("figure"),
    Column("predicted", "ms", significant(6)),
    Column("simulated", "ms", significant(6)),
    Column("half-width", "ms", significant(3)),
)

# --- starting ---------------------------------------------------------------------------------------------

USE_CASES = (
    name("name"),
    words("what", rank=1),
    Column("input", "tokens", ",.0f"),
    Column("output", "tokens", ",.0f"),
    Column("TTFT", "ms", ",.0f"),
    Column("ITL", "ms", ",.0f"),
)
OFFERS = (
    name("accelerator"),
    Column("cards", form=",d"),
    Column("price"),
    Column("price of a card", rank=1),
    name("place", rank=2),
)

# --- estimates --------------------------------------------------------------------------------------------

ESTIMATE = (
    words("figure"),
    Column("estimate", form=quantity),
    Column("low", form=quantity),
    Column("high", form=quantity, none=""),
    words("unit"),
)
ALPHA_BY_BATCH = (
    Column("batch", form=",d"),
    Column("α", "ms", quantity),
    Column("low", "ms", quantity),
    Column("high", "ms", quantity),
)
POINTS = (
    Column("row", form="d", rank=1),
    name("model"),
    name("accelerator"),
    Column("tp", form="d", rank=3),
    Column("kind", kind="name", rank=2),
    Column("estimate"),
    Column("low"),
    Column("high"),
    Column("measured", form=significant(6)),
)
ACCELERATORS = (
    name("name"),
    Column("memory", "GiB", "g"),
    Column("bandwidth", "GB/s", "g"),
    Column("16-bit", "TFLOPS", "g", rank=1),
    Column("fp8", "TFLOPS", "g", rank=2),
    Column("link", "GB/s", "g", rank=3),
    name("also", rank=4),
)
MODELS = (
    name("name"),
    Column("parameters", "10^9", ".2f"),
    Column("layers", form="d", rank=1),
    Column("experts", form="d", rank=2),
    name("published in", rank=3),
    name("also", rank=4),
)
ENTRY = (words("value"), words("is"))


# --- comparisons ------------------------------------------------------------------------------------------


def load_columns(sides: tuple[str, str]) -> tuple[Column, ...]:
    """Return the columns of loads of two sides."""
    return (
        name("server"),
        Column("rate", RPM, quantity, sides=sides),
        Column("difference", RPM, "+,.2f", rank=3),
        Column("input length", "tokens", quantity, sides=sides, rank=1),
        Column("output length", "tokens", quantity, sides=sides, rank=2),
    )


def class_columns(sides: tuple[str, str]) -> tuple[Column, ...]:
    """Return the columns of the cost by service class."""
    return (
        name("class"),
        Column("prio", rank=2, none=""),
        Column("servers", form="d", sides=sides, rank=1),
        *(Column(side, CENTS, ",.2f") for side in sides),
        Column("difference", CENTS, "+,.2f"),
        Column("relative", form="+.1%", none="", rank=1),
    )


def replica_columns(sides: tuple[str, str]) -> tuple[Column, ...]:
    """Return the columns of what each server runs on."""
    return (
        name("server"),
        *(name(side) for side in sides),
        words("change", rank=1),
        Column("difference", CENTS, "+,.2f"),
    )


def figure_columns(sides: tuple[str, str], figures: Iterable[Column]) -> tuple[Column, ...]:
    """Return the columns of the figures of each server."""
    return (
        name("server"),
        Column("carried", RPM, quantity, sides=sides, rank=4),
        Column("batch", sides=sides, rank=3),
        *figures,
    )


def card_columns(sides: tuple[str, str]) -> tuple[Column, ...]:
    """Return the columns of cards by accelerator type."""
    return (
        name("type"),
        Column("exist", form=",d", none="unlimited", sides=sides),
        *(Column(side, form=",d") for side in sides),
        Column("difference", form="+,d"),
    )


def type_cost_columns(sides: tuple[str, str]) -> tuple[Column, ...]:
    """Return the columns of costs by accelerator type."""
    return (
        name("type"),
        *(Column(side, CENTS, ",.2f") for side in sides),
        Column("difference", CENTS, "+,.2f"),
    )


def unserved_columns(sides: tuple[str, str]) -> tuple[Column, ...]:
    """Return the columns of what is not served in full on either side."""
    return (
        name("server"),
        Column("prio", rank=1),
        *(Column(f"served {side}", form=share_text) for side in sides),
        words("reason"),
    )


# --- explanations -----------------------------------------------------------------------------------------

OVERVIEW = (
    name("server"),
    name("runs on"),
    words("binding constraint", rank=2),
    Column("headroom", RPM, quantity, rank=3),
    Column("headroom share", form=".1%", rank=5),
    name("next-best alternative"),
    Column("would cost", CENTS),
)
WORTH = (
    name("type"),
    Column("used", form=",d", rank=1),
    Column("exist", form=",d", rank=1),
    Column("left", form=",d"),
    Column("one more", CENTS),
    Column("one fewer", CENTS),
    Column("shadow price", CENTS, ",.2f", rank=2),
)
WISHES = (
    name("option"),
    Column("without it", CENTS),
    Column("gets its reserve", RPM, quantity),
)
LIMITS_WORTH = (
    *LIMITS,
    Column("one more", CENTS),
    Column("one fewer", CENTS),
    Column("shadow price", CENTS, ",.2f", rank=2),
)
USED = (name("type"), Column("used", form=",d"))
TARGETS = (
    name("class"),
    name("model"),
    Column("target", kind="name"),
    Column("limit", "ms", significant(6)),
    Column("relaxed", "ms", significant(6), rank=1),
    Column("cost", CENTS),
)
OPTIONS = (
    name("accelerator"),
    Column("replicas", form=",d"),
    Column("cards", form=",d"),
    name("type", rank=3),
    Column("batch", form="d", rank=2),
    Column("own cost", CENTS, ",.2f", rank=1),
    words("binding constraint"),
    Column("plan cost", CENTS),
)
MISSES = (name("accelerator"), Column("misses by"), name("reason", rank=1), words("detail"))
FITTED_LAW = (
    name("parameter"),
    Column("value", form=quantity),
    Column("error", form=significant(2)),
    Column("relative", form=".0%", rank=1),
    Column("unit", kind="name", rank=2),
)
FIT_ERRORS = (
    name("runs of"),
    Column("runs", form="d", rank=2),
    Column("TTFT", form=".1%"),
    Column("ITL", form=".1%"),
    Column("median TTFT", form=".1%", rank=1),
    Column("median ITL", form=".1%", rank=1),
)
PREDICTIONS = (
    Column("row", form="d"),
    Column("kind", kind="name", rank=3),
    Column("TTFT", "ms", quantity),
    Column("p95 TTFT", "ms", quantity, rank=2),
    Column("ITL", "ms", quantity),
    Column("p95 ITL", "ms", quantity, rank=2),
    Column("throughput", "requests/s", quantity, rank=1),
    Column("TTFT off", form="+.1%", none=""),
    Column("ITL off", form="+.1%", none=""),
    Column("throughput off", form="+.1%", rank=1, none=""),
)
