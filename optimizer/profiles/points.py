"""Estimates each row of a CSV file, for comparison with measurements.

A row describes an iteration (`kind` decode or prefill, `b`, `tok`, `ctx`), a closed loop (`c`, `isl`, `osl`)
or a memory size (neither). All have model, accelerator, tp and weight format. Other columns are ignored.
"""

import csv
import io
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from optimizer.errors import SpecError
from optimizer.profiles.deployment import Deployment
from optimizer.profiles.efficiency import Efficiency
from optimizer.profiles.engines import read_engine
from optimizer.profiles.estimate import find_accelerator, find_model
from optimizer.profiles.intervals import (
    Estimated,
    first_weeks_note,
    tokens_in_memory,
    uncertainty_of_times,
)
from optimizer.profiles.iterations import Iterations
from optimizer.profiles.layers import ModelFacts
from optimizer.profiles.memory import GIB, Memory

_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "model": ("model",),
    "accelerator": ("accelerator", "acc", "gpu"),
    "tp": ("tp", "tensor_parallel"),
    "weights": ("weights", "w", "format"),
    "engine": ("engine",),
    "kind": ("kind",),
    "batch": ("b", "batch"),
    "tokens": ("tok", "tokens"),
    "context": ("ctx", "context"),
    "concurrency": ("c", "concurrency"),
    "in_tokens": ("isl", "in_tokens"),
    "out_tokens": ("osl", "out_tokens"),
    "parallel": ("dp",),
    "static": ("static",),
    "memory_utilization": ("memory_utilisation", "memory_utilization"),
    "max_num_tokens": ("max_batched_tokens", "max_num_batched_tokens", "max_num_tokens"),
    "max_requests": ("max_seqs", "max_num_seqs", "max_requests"),
    "memory_gib": ("memory_gib",),
    "cache": ("cache", "kv_cache"),
    "measured": ("measured", "ms", "kv_tokens", "tpot"),
}
"""Accepted column headings of each value; case is ignored."""
EAGER_ENGINES = frozenset({"legacy", "eager"})
"""Values of the engine column for engines that launch each kernel from the host."""
_WHOLE = {"tp", "max_num_tokens", "max_requests"}
_SETTINGS = _WHOLE | {"in_tokens", "out_tokens", "memory_utilization", "memory_gib"}
"""Columns that are settings of the deployment; those in `_WHOLE` are integers."""


class PointEstimate(NamedTuple):
    """The estimate of one row."""

    number: int
    """Row number in the file, from 1."""
    given: Mapping[str, str]
    """Values of the row, by the keys of `_COLUMNS`."""
    kind: str
    """Kind of row: decode, prefill, loop or kv."""
    estimated: Estimated | None
    """Estimate of the row [ms], or [tokens] for `kv`; None if the row cannot be estimated."""
    error: str
    """Error message if the row cannot be estimated, else empty."""
    note: str = ""
    """Condition under which the interval does not hold; empty if there is none."""

    @property
    def measured(self) -> float | None:
        """Measured value of the row; None if it has none."""
        try:
            return float(self.given["measured"])
        except (KeyError, ValueError):
            return None

    def document(self) -> dict[str, Any]:
        """Convert the row's estimate to plain values."""
        names = ("model", "accelerator", "tp", "weights")
        values: dict[str, Any] = {
            "row": self.number,
            **{key: self.given[key] for key in names if key in self.given},
        }
        if values.get("tp", "").isdigit():
            values["tp"] = int(values["tp"])
        values["kind"] = self.kind
        if self.estimated is None:
            return values | {"error": self.error}
        what, digits = ("kvTokens", 0) if self.kind == "kv" else ("ms", 6)
        document = {what: self.estimated.value, "low": self.estimated.low, "high": self.estimated.high}
        values |= {key: round(value, digits) if digits else int(value) for key, value in document.items()}
        values |= {"note": self.note} if self.note else {}
        return values if self.measured is None else values | {"measured": self.measured}


def estimate_points(
    text: str, source: str = "", efficiency: Efficiency | None = None, engine: str | None = None
) -> list[PointEstimate]:
    """Estimate every row of a CSV text with headings; rows that cannot be estimated have an error message.

    Args:
        text: the CSV text.
        source: name of the file, for messages.
        efficiency: constants of the estimator; None selects the current version.
        engine: serving engine of the rows that state none.

    Raises:
        SpecError: the headings lack the model or the accelerator.
    """
    table = csv.DictReader(io.StringIO(text))
    headings = {str(name).strip().lower(): name for name in table.fieldnames or ()}
    places = {
        key: next(headings[name] for name in names if name in headings)
        for key, names in _COLUMNS.items()
        if any(name in headings for name in names)
    }
    for needed in ("model", "accelerator"):
        if needed not in places:
            raise SpecError(
                f"{source}: a column {needed!r} is required; the headings are {', '.join(headings)}"
            )
    constants, model = efficiency or Efficiency(), cache(find_model)
    estimates = []
    for number, raw in enumerate(table, 1):
        given = {key: value for key, place in places.items() if (value := (raw[place] or "").strip())}
        given = {"engine": engine, **given} if engine else given
        kind, estimated, error, note = _kind(given), None, "", ""
        try:
            iterations = _iterations(given, constants, model)
            estimated = _estimated(given, kind, iterations)
            note = first_weeks_note(iterations) if kind != "kv" else ""
        except SpecError as problem:
            error = str(problem)
        estimates.append(PointEstimate(number, given, kind, estimated, error, note))
    return estimates


def _kind(given: Mapping[str, str]) -> str:
    kind = given.get("kind", "").lower()
    if kind:
        return "prefill" if kind == "prompt" else kind
    return "decode" if "batch" in given else "loop" if "concurrency" in given else "kv"


def _estimated(given: Mapping[str, str], kind: str, iterations: Iterations) -> Estimated:
    """Estimate a row.

    Raises:
        SpecError: a value is missing or invalid, or the weights alone exceed the memory.
    """
    memory, model = Memory(iterations), iterations.model
    device = iterations.deployment.memory_gib or iterations.accelerator.device_memory_gib
    if memory.weight_bytes > device * GIB:
        size = f"{memory.weight_bytes / GIB:.1f} GiB"
        raise SpecError(f"{model.name} does not fit: its weights alone take {size} per device")
    if kind == "kv":
        if memory.free_bytes[1] <= 0:
            raise SpecError(f"{model.name} leaves no memory for a cache")
        return tokens_in_memory(memory)
    if kind == "decode":
        time = iterations.decode_ms(_number(given, "batch"), _number(given, "context"))
    elif kind == "prefill":
        prompts, tokens = _number(given, "batch", 1.0), _number(given, "tokens")
        time = iterations.prompt_ms(prompts, tokens, _number(given, "context", tokens / prompts / 2))
    elif kind == "loop":
        time = _loop_ms(given, iterations, memory)
    else:
        raise SpecError(f"kind: must be decode, prefill, loop or kv, not {kind!r}")
    return uncertainty_of_times(iterations).around(time)


def _iterations(
    given: Mapping[str, str], constants: Efficiency, model_of: Callable[[str], ModelFacts]
) -> Iterations:
    numbers: dict[str, Any] = {name: _number(given, name) for name in _SETTINGS if name in given}
    for name in numbers.keys() & _WHOLE:
        if numbers[name] != int(numbers[name]):
            raise SpecError(f"{name}: must be an integer, not {numbers[name]:g}")
        numbers[name] = int(numbers[name])
    engine = given.get("engine", "").lower()
    if engine in EAGER_ENGINES:
        numbers |= {"eager": True, "engine": "vllm:0.3"}
    elif engine:
        with suppress(SpecError):  # other tools, such as kernels alone
            numbers["engine"] = str(read_engine(engine))
    deployment = Deployment(weights=given.get("weights"), cache=given.get("cache"), **numbers)
    model, accelerator = model_of(given.get("model", "")), find_accelerator(given.get("accelerator", ""))
    return Iterations(model, accelerator, deployment, constants)


def _loop_ms(given: Mapping[str, str], iterations: Iterations, memory: Memory) -> float:
    if _number(given, "parallel", 1.0) > 1:
        raise SpecError("dp: data parallelism inside one replica is not estimated")
    fitting = max(memory.requests(memory.free_bytes[1]), 1)
    requests = min(_number(given, "concurrency"), float(fitting))
    in_tokens, out_tokens = _number(given, "in_tokens"), _number(given, "out_tokens")
    if _number(given, "static", 0.0):
        return iterations.decode_ms(requests, in_tokens + out_tokens / 2)
    return iterations.loop_ms(requests)


def _number(given: Mapping[str, str], name: str, default: float | None = None) -> float:
    text = given.get(name)
    if text is None:
        if default is None:
            raise SpecError(f"{_COLUMNS[name][0]}: missing; this kind of row requires it")
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1e12:
        raise SpecError(f"{_COLUMNS[name][0]}: must be a number of at least 0, not {text!r}")
    return value
