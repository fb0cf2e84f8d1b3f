"""Answers of Prometheus to the loop's queries, made from the samples of replicas with holes."""

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Json = dict[str, Any]
Sample = tuple[float, float]
Series = dict[tuple[str, str], list[Sample]]
"""Samples of every metric of every replica, by replica and metric."""
COUNTED = "vllm:time_to_first_token_seconds_count"
WAITING = "vllm:num_requests_waiting"


def answering(
    series: Series, server: str = "talk", label: str = "server"
) -> Callable[[str, Mapping[str, str]], str]:
    """Return a function that answers range selectors as Prometheus does: with the samples of the range."""

    def ask(_url: str, form: Mapping[str, str]) -> str:
        query, now_s = form["query"], float(form["time"])
        if "increase(" in query:
            return json.dumps({"status": "success", "data": {"resultType": "vector", "result": []}})
        range_s = float(query.rsplit("[", 1)[1].removesuffix("ms]")) / 1000
        rows: list[Json] = []
        for (replica, metric), samples in series.items():
            if metric not in query:
                continue
            inside = [[at_s, str(value)] for at_s, value in samples if now_s - range_s < at_s <= now_s]
            if inside:
                labels = {"__name__": metric, "instance": replica, label: server, "engine": "0"}
                rows.append({"metric": labels, "values": inside})
        return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": rows}})

    return ask


def sampled(
    arrivals_s: Mapping[str, Sequence[float]], begin_s: float, end_s: float, interval_s: float
) -> Series:
    """Return regular samples of replicas that serve each request at once; scrapes of replicas are offset."""
    found: Series = {}
    for number, (replica, times) in enumerate(arrivals_s.items()):
        at_s = begin_s + interval_s * (number + 1) / (len(arrivals_s) + 1)
        while at_s <= end_s:
            count = bisect_right(times, at_s)
            found.setdefault((replica, COUNTED), []).append((at_s, float(count)))
            found.setdefault((replica, WAITING), []).append((at_s, 0.0))
            at_s += interval_s
    return found


def without(series: Series, lost: Callable[[str, float], bool]) -> Series:
    """Return the samples without those of lost scrapes, by replica and time."""
    return {
        (replica, metric): [sample for sample in samples if not lost(replica, sample[0])]
        for (replica, metric), samples in series.items()
    }
