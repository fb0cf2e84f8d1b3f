"""Figure of recorded cycles: rates and replicas of a server over time."""

from collections.abc import Mapping, Sequence
from typing import Any

from optimizer.studies.figures.figure_document import CurvePanel, Figure, ReferenceLine, Series
from optimizer.units import SECONDS_PER_MINUTE


def loop_figure(
    records: Sequence[Mapping[str, Any]],
    server: str,
    title: str,
    events: Mapping[str, float] | None = None,
) -> Figure:
    """Return the figure of the cycles of one server.

    Args:
        records: records of cycles.
        title: title of the figure.
        events: times of events by name [s since the first record].
    """
    begin_s = records[0]["inputs"]["now_s"]
    times_min = [(record["inputs"]["now_s"] - begin_s) / SECONDS_PER_MINUTE for record in records]
    lines = tuple(
        ReferenceLine(name=name, value=at_s / SECONDS_PER_MINUTE, axis="x")
        for name, at_s in (events or {}).items()
    )

    def panel(title: str, y_label: str, curves: Mapping[str, Sequence[float | None]]) -> CurvePanel:
        series = tuple(
            Series(name=name, x=tuple(times_min), y=tuple(y), style="line") for name, y in curves.items()
        )
        return CurvePanel(title=title, x_label="time [min]", y_label=y_label, series=series, guides=lines)

    return Figure(
        title=title,
        panels=(
            panel("Rates", "rate [requests/s]", _rates(records, server)),
            panel("Replicas", "replicas", _replicas(records, server)),
        ),
    )


def _rates(records: Sequence[Mapping[str, Any]], server: str) -> dict[str, list[float | None]]:
    """Return the rates of a server over the cycles, by name [requests/s]; None while the server is held."""
    names = {"planned": "planned_rps", "arrivals, estimated": "offered_rps", "completions": "completions_rps"}
    loads = [{} if server in record["holds"] else record["loads"].get(server, {}) for record in records]
    return {name: [load.get(key) for load in loads] for name, key in names.items()}


def _replicas(records: Sequence[Mapping[str, Any]], server: str) -> dict[str, list[float | None]]:
    counts = [[item for item in record["workloads"] if item["server"] == server] for record in records]
    replicas: dict[str, list[float | None]] = {
        name: [sum(item[key] for item in mine) for mine in counts]
        for name, key in {"desired": "replicas", "ready": "ready"}.items()
    }
    for_rate = [record["planned"].get(server, {}).get("for_rate") for record in records]
    return {**replicas, "planned for arrivals": for_rate}
