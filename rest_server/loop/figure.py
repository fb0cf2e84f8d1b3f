"""Picture of recorded cycles: rates and replicas of a server over time."""

from collections.abc import Mapping, Sequence
from typing import Any

from optimizer.studies.figures.document import CurvePanel, Figure, ReferenceLine, Series
from optimizer.units import SECONDS_PER_MINUTE


def loop_figure(
    records: Sequence[Mapping[str, Any]],
    server: str,
    title: str,
    events: Mapping[str, float] | None = None,
) -> Figure:
    """Return the cycles of one server.

    Args:
        records: records of cycles.
        server: the server.
        title: title of the picture.
        events: times of events by name [s since the first record].
    """
    begin_s = records[0]["inputs"]["now_s"]
    times_min = [(record["inputs"]["now_s"] - begin_s) / SECONDS_PER_MINUTE for record in records]
    lines = tuple(
        ReferenceLine(name=name, value=at_s / SECONDS_PER_MINUTE, axis="x")
        for name, at_s in (events or {}).items()
    )
    rates = {"planned": "planned_rps", "arrivals, estimated": "offered_rps", "completions": "completions_rps"}
    loads = [record["loads"].get(server, {}) for record in records]
    held = [server in record["holds"] for record in records]
    counts = [[item for item in record["workloads"] if item["server"] == server] for record in records]
    for_rate = [record["planned"].get(server, {}).get("for_rate") for record in records]
    return Figure(
        title=title,
        panels=(
            CurvePanel(
                title="Rates",
                x_label="time [min]",
                y_label="rate [requests/s]",
                series=tuple(
                    _series(
                        name,
                        times_min,
                        [None if hold else load.get(key) for load, hold in zip(loads, held, strict=True)],
                    )
                    for name, key in rates.items()
                ),
                guides=lines,
            ),
            CurvePanel(
                title="Replicas",
                x_label="time [min]",
                y_label="replicas",
                series=(
                    *(
                        _series(name, times_min, [sum(item[key] for item in mine) for mine in counts])
                        for name, key in {"desired": "replicas", "ready": "ready"}.items()
                    ),
                    _series("planned for arrivals", times_min, for_rate),
                ),
                guides=lines,
            ),
        ),
    )


def _series(name: str, x: Sequence[float], y: Sequence[float | None]) -> Series:
    return Series(name=name, x=tuple(x), y=tuple(y), style="line")
