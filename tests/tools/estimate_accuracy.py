"""How well estimates agree with measurements: the figures of docs/estimate.md.

Run as a program: ``python tests/tools/estimate_accuracy.py FOLDER [--leave-out]``, FOLDER with steps.csv,
loops.csv and kv.csv. Errors are relative; (model, accelerator) pairs count equally, however many rows they
have.
"""

import argparse
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from optimizer.profiles.catalogue import load_catalogue
from optimizer.profiles.efficiency import Efficiency
from optimizer.profiles.points import PointEstimate, estimate_points

ROOFLINE = Efficiency(
    step_ms=0, layer_ms=0, eager_layer_ms=0, sequence_ms=0, weight_bandwidth=1, cache_bandwidth=1,
    expert_bandwidth=1, bf16=1, fp8=1, fp4=1, experts=1, attention=1, all_reduce_ms=0, all_reduce_pcie_ms=0,
    link=1, link_pcie=1, generations={},
)  # fmt: skip
"""The naive estimate: every peak rate of the data sheet is reached, software costs nothing."""

FITTED = (
    "step_ms", "layer_ms", "eager_layer_ms", "sequence_ms", "weight_bandwidth", "cache_bandwidth",
    "expert_bandwidth", "bf16", "fp8", "fp4", "experts", "attention", "all_reduce_ms", "all_reduce_pcie_ms",
    "link", "link_pcie",
)  # fmt: skip
DECODE_BINS = {"decode, 1": (0, 2), "decode, 8": (4, 12), "decode, 32": (16, 48), "decode, 128": (64, 192)}
PROMPT_BINS = {"prompt, 512": (256, 1024), "prompt, 2k": (1025, 3000), "prompt, 8k": (4096, 10_000)}
FAR_APART = 1.15


class Point(NamedTuple):
    """A measured time beside its estimate."""

    row: PointEstimate
    bin: str

    @property
    def pair(self) -> tuple[str, str]:
        return self.row.given["model"], self.row.given["accelerator"]

    @property
    def ratio(self) -> float:
        assert self.row.estimated is not None
        assert self.row.measured is not None
        return self.row.estimated.value / self.row.measured

    @property
    def covered(self) -> bool:
        estimated, measured = self.row.estimated, self.row.measured
        assert estimated is not None
        assert measured is not None
        return estimated.low <= measured <= estimated.high


def read_points(folder: Path, efficiency: Efficiency | None = None) -> list[Point]:
    """Return all points of single iterations and loops that can be estimated and belong to a bin."""
    points: list[Point] = []
    for file in ("steps.csv", "loops.csv"):
        rows = estimate_points((folder / file).read_text(encoding="utf-8"), file, efficiency)
        points += [Point(row, bin_of(row)) for row in rows if row.estimated is not None and bin_of(row)]
    return points


def bin_of(row: PointEstimate) -> str:
    """Return the bin of a row; a loop counts as decode where answers are as long as prompts."""
    names = ("batch", "tokens", "concurrency", "in_tokens", "out_tokens")
    number = {name: float(row.given[name]) for name in names if name in row.given}
    if row.kind == "prefill":
        bins, size = PROMPT_BINS, number["tokens"] / number["batch"]
    elif row.kind == "loop" and number["in_tokens"] > number["out_tokens"]:
        return "loop, prompts longer"
    else:
        bins, size = DECODE_BINS, number.get("batch", number.get("concurrency", 0.0))
    return next((name for name, (least, most) in bins.items() if least <= size <= most), "")


def weights(points: Sequence[Point]) -> npt.NDArray[np.float64]:
    """Return the weight of every point: all pairs count equally."""
    rows = Counter(point.pair for point in points)
    return np.array([1 / rows[point.pair] for point in points])


def quantile(values: Iterable[float], weight: npt.NDArray[np.float64], share: float) -> float:
    """Return the smallest value below or at which a share of the weight lies."""
    array = np.array(list(values))
    order = np.argsort(array)
    sums = np.cumsum(weight[order])
    return float(array[order][np.searchsorted(sums, share * sums[-1] * (1 - 1e-12))])


class Accuracy(NamedTuple):
    """Errors of a set of points [%] and the share of the weight inside the interval."""

    rows: int
    pairs: int
    median: float
    p90: float
    bias: float
    covered: float


def accuracy(points: Sequence[Point]) -> Accuracy:
    """Return the errors of points, pairs weighted equally."""
    weight = weights(points)
    errors = [100 * (point.ratio - 1) for point in points]
    sizes = [abs(error) for error in errors]
    covered = float(weight @ np.array([point.covered for point in points]) / weight.sum())
    return Accuracy(
        len(points),
        len({point.pair for point in points}),
        quantile(sizes, weight, 0.5),
        quantile(sizes, weight, 0.9),
        quantile(errors, weight, 0.5),
        covered,
    )


def select(points: Sequence[Point], *bins: str) -> list[Point]:
    return [point for point in points if point.bin in bins]


def decode(points: Sequence[Point]) -> list[Point]:
    return select(points, *DECODE_BINS)


def long_prompts(points: Sequence[Point]) -> list[Point]:
    return select(points, "prompt, 2k", "prompt, 8k")


def order_of_accelerators(points: Sequence[Point]) -> tuple[int, int]:
    """Return how many comparisons of two accelerators, all else equal, come out right, and of how many."""
    same = defaultdict(list)
    lengths = ("batch", "tokens", "context", "concurrency", "in_tokens", "out_tokens")
    names = ("model", "tp", "weights", "engine", "kind", *lengths)
    for point in points:
        same[tuple(point.row.given.get(name) for name in names)].append(point)
    right = total = 0
    for group in same.values():
        for one, other in combinations(group, 2):
            if one.pair == other.pair:
                continue
            measured = (one.row.measured or 0) / (other.row.measured or 1)
            if max(measured, 1 / measured) <= FAR_APART:
                continue
            assert one.row.estimated is not None
            assert other.row.estimated is not None
            total += 1
            right += (one.row.estimated.value > other.row.estimated.value) == (measured > 1)
    return right, total


def memory_errors(folder: Path) -> list[tuple[PointEstimate, float]]:
    """Return the rows of kv.csv with their errors [%]."""
    rows = estimate_points((folder / "kv.csv").read_text(encoding="utf-8"), "kv.csv")
    return [
        (row, 100 * (row.estimated.value / row.measured - 1))
        for row in rows
        if row.estimated and row.measured
    ]


def is_dense(row: PointEstimate) -> bool:
    return load_catalogue().model(row.given["model"]).experts is None


# --- how much the constants depend on single models and accelerators --------------------------------------


def leave_out(folder: Path, key: Callable[[Point], str]) -> list[tuple[Point, float]]:
    """Return every point with its ratio if the constants are fitted to the points of all other keys.

    The fit is one Gauss-Newton step in the logarithms of the constants from the ones in use, on absolute
    errors of logarithms, with a spread of 0.3 allowed around the constants a priori.
    """
    base = Efficiency()
    points = [point for point in read_points(folder) if point.bin != "loop, prompts longer"]
    start = np.log([point.ratio for point in points])
    step = 0.05
    columns = []
    for name in FITTED:
        moved = replace(base, **{name: getattr(base, name) * (1 + step)})
        ratios = [point.ratio for point in read_points(folder, moved) if point.bin != "loop, prompts longer"]
        columns.append((np.log(ratios) - start) / math.log(1 + step))
    slopes, weight = np.stack(columns, axis=1), weights(points)
    found = np.zeros(len(points))
    for value in {key(point) for point in points}:
        out = np.array([key(point) == value for point in points])
        change = _fit(slopes[~out], start[~out], weight[~out])
        found[out] = np.exp(start[out] + slopes[out] @ change)
    return list(zip(points, found.tolist(), strict=True))


def _fit(
    slopes: npt.NDArray[np.float64], start: npt.NDArray[np.float64], weight: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the change of the logarithms by iteratively reweighted least squares."""
    change: npt.NDArray[np.float64] = np.zeros(slopes.shape[1])
    for _ in range(60):
        rest = np.abs(start + slopes @ change)
        scaled = slopes.T * (weight / np.maximum(rest, 0.05))
        prior = np.eye(len(change)) * 0.15 / 0.3**2
        change = np.asarray(np.linalg.solve(scaled @ slopes + prior, -scaled @ start), dtype=np.float64)
    return change


# --- the program -------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--leave-out", action="store_true", help="fit without each model and each accelerator"
    )
    arguments = parser.parse_args()
    points, naive = read_points(arguments.folder), read_points(arguments.folder, ROOFLINE)
    groups = {name: [name] for name in (*DECODE_BINS, *PROMPT_BINS, "loop, prompts longer")}
    groups |= {"decode, all": list(DECODE_BINS), "prompt, 2k and 8k": ["prompt, 2k", "prompt, 8k"]}
    print(f"{'':24}{'rows':>6}{'pairs':>6}   median / p90 / bias [%]   covered   naive median / p90")
    for name, bins in groups.items():
        mine, other = accuracy(select(points, *bins)), accuracy(select(naive, *bins))
        print(
            f"{name:24}{mine.rows:6}{mine.pairs:6}{mine.median:9.1f} / {mine.p90:4.1f} / {mine.bias:5.1f}"
            f"{mine.covered:13.0%}{other.median:14.1f} / {other.p90:4.1f}"
        )
    print(f"all iterations covered: {accuracy([*decode(points), *select(points, *PROMPT_BINS)]).covered:.0%}")
    print("order of accelerators: {} of {} right".format(*order_of_accelerators(points)))
    for row, error in memory_errors(arguments.folder):
        print(f"kv {row.given['model']:18}{row.given['accelerator']:8}tp {row.given['tp']} {error:+6.1f} %")
    if arguments.leave_out:
        for what, key in (("model", 0), ("accelerator", 1)):
            left = leave_out(arguments.folder, lambda point, key=key: point.pair[key])  # type: ignore[misc]
            for name in ("decode, all", "prompt, 2k and 8k"):
                part = [(point, ratio) for point, ratio in left if point.bin in groups[name]]
                weight, errors = weights([point for point, _ in part]), [abs(ratio - 1) for _, ratio in part]
                median, p90 = (100 * quantile(errors, weight, share) for share in (0.5, 0.9))
                print(f"each {what} left out, {name}: {median:.1f} / {p90:.1f}")


if __name__ == "__main__":
    main()
