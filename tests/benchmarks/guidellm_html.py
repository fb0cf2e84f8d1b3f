"""GuideLLM's HTML reports up to version 0.7 as JSON: of a recorded sweep there is nothing else.

The runs are unlabelled. A sweep is recognised by its order: one request at a time, full throughput, then
rates evenly spaced between them; the report has the achieved rates only.
"""

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from optimizer.errors import FitError
from optimizer.fitting.readers.guidellm_plans import STEADY, SWEEP_FIRST, sweep_rates
from optimizer.fitting.readers.paths import find, number_in

_KINDS = {"prompt": "prompts", "output": "generations"}


def as_json(text: str) -> str:
    """Return an HTML report as the JSON of the same run.

    Raises:
        FitError: the report does not state the load of its runs.
    """
    runs, details, info = (_assigned(text, name) for name in ("benchmarks", "workloadDetails", "runInfo"))
    rates = [float(run["requestsPerSecond"]) for run in runs]
    lengths = {f"{kind}_token_count": {"successful": _lengths(details, _KINDS[kind])} for kind in _KINDS}
    model = re.search(r"'model': '([^']+)'", str(find(details, "prompts/samples/*")))
    strategies = _strategies(str(find(details, "rateType")), rates)
    trees = []
    for run, rate, strategy in zip(runs, rates, strategies, strict=True):
        times = {"time_to_first_token_ms": run["ttft"], "inter_token_latency_ms": run["itl"]}
        tree = {
            "metrics": {name: {"successful": value} for name, value in times.items()} | lengths,
            "duration": run["ttft"]["count"] / rate,
            "config": {"strategy": strategy, "backend": {"model": model[1] if model else None}},
            "start_time": info["timestamp"],
        }
        trees.append(tree)
    return json.dumps({"metadata": {}, "benchmarks": trees})


def _assigned(text: str, name: str) -> Any:
    """Return the JSON that a script assigns to a window property."""
    found = re.search(rf"window\.{name}\s*=\s*", text)
    assert found is not None
    return json.JSONDecoder().raw_decode(text, found.end())[0]


def _lengths(details: Any, name: str) -> dict[str, Any]:
    found = find(details, f"{name}/tokenDistributions/statistics") or {}
    return {**found, "std_dev": math.sqrt(number_in(found.get("variance")) or 0.0)}


def _strategies(kind: str, rates: Sequence[float]) -> list[dict[str, Any]]:
    """Return the strategy of each run."""
    first = [{"type_": one} for one in SWEEP_FIRST]
    if kind == SWEEP_FIRST[0] and len(rates) > len(first):
        return [*first, *({"type_": "constant", "rate": rate} for rate in sweep_rates(rates))]
    if kind in STEADY or kind in SWEEP_FIRST:
        return [{"type_": kind, "rate": rate} for rate in rates]
    raise FitError(f"runs of kind {kind!r} do not state the limit of requests in flight")
