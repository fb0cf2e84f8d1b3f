"""Which queue model is nearest: ``python tests/benchmarks/queue_models.py --reference DIR``.

DIR holds `simulated/grid.json` and `simulated/vidur.json`. Each case is predicted by the queue model
`reference`, which gets α, β and γ of the case's law and knows neither its further terms nor schedulers and
variability, by `continuous`, and by the simulator of the project. A case that a model calls an overload has
no figures and is counted beside. The sweeps of real servers are in fidelity.py.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from simulation import (
    _closed_grid_row,
    _closed_vidur_row,
    _grid_case,
    _vidur_row,
)

from optimizer.compat.rows import ReplicaRow
from optimizer.errors import InferplanError
from optimizer.parallel import as_done

THREE = ("alpha", "beta", "gamma")
SIZES = ("RPS", "avgInputTokens", "avgOutputTokens", "maxBatchSize", "maxNumTokens")
QUEUE_TO_BATCH = 10


class Case(NamedTuple):
    """A recorded case."""

    row: dict[str, Any]
    """As `continuous` takes it."""
    simulated: Callable[[], tuple[float, float]]
    """Mean TTFT and ITL of the project's simulator [ms]."""
    ttft_ms: float
    itl_ms: float
    is_the_reference_s: bool
    """Whether the reference knows all of it: three terms, chunks, Poisson arrivals."""


def closed(row: dict[str, Any]) -> tuple[float, float] | None:
    """Return mean TTFT and ITL of a queue model [ms]; none in an overload."""
    try:
        answer = ReplicaRow.model_validate(row).analyze().model_dump(by_alias=True)
    except InferplanError:
        return None
    if "message" in answer or answer["offeredRPS"] > answer["maxRPS"]:
        return None
    return answer["avgTTFT"], answer["avgITL"]


def of_the_reference(row: dict[str, Any]) -> dict[str, Any]:
    """Return what the reference knows of a row, with room for ten batches."""
    known = {name: row[name] for name in (*THREE, *SIZES) if name in row}
    return known | {"queueModel": "reference", "maxQueueSize": QUEUE_TO_BATCH * row["maxBatchSize"]}


def show(name: str, cases: Sequence[Case], found: Sequence[tuple[float, float] | None]) -> None:
    """Print median and 80th percentile of the errors of one model."""
    pairs = [(one, case) for one, case in zip(found, cases, strict=True) if one is not None]
    ttft = np.abs([one[0] / case.ttft_ms - 1 for one, case in pairs])
    itl = np.abs([one[1] / case.itl_ms - 1 for one, case in pairs])
    print(
        f"  {name:<11} TTFT {np.median(ttft):6.1%} / {np.quantile(ttft, 0.8):7.1%}   "
        f"ITL {np.median(itl):6.1%} / {np.quantile(itl, 0.8):6.1%}   overload {len(cases) - len(pairs)}"
    )


def compare(title: str, cases: Sequence[Case]) -> None:
    """Print the errors of all three, median / 80th percentile."""
    print(f"{title}: {len(cases)} cases")
    show("reference", cases, [closed(of_the_reference(case.row)) for case in cases])
    show("continuous", cases, [closed(case.row) for case in cases])
    show("simulator", cases, list(as_done(_simulated, cases)))


def _simulated(case: Case) -> tuple[float, float]:
    return case.simulated()


def _means(summary_of: Callable[..., Any], case: dict[str, Any], requests: int) -> tuple[float, float]:
    found = summary_of(case, requests=requests)
    return found.ttft.mean.value, found.itl.mean.value


def grid_cases(folder: Path, requests: int) -> list[Case]:
    """Return the cases of the grid."""
    return [
        Case(
            _closed_grid_row(case),
            partial(_means, _grid_case, case, requests),
            case["ttft"]["mean"],
            case["itl"]["mean"],
            case["law"] != "8b-knee" and case["mode"] == 0 and case["cv"] == 1,
        )
        for case in json.loads((folder / "simulated/grid.json").read_text())
    ]


def vidur_cases(folder: Path, requests: int) -> list[Case]:
    """Return Vidur's rows in which nothing was restarted."""
    rows = json.loads((folder / "simulated/vidur.json").read_text())["rows"]
    return [
        Case(
            _closed_vidur_row(row),
            partial(_means, _vidur_row, row, requests),
            row["ttft_ms"]["mean"],
            row["tbt_request_mean_ms"]["mean"],
            is_the_reference_s=False,
        )
        for row in rows
        if row["restarts"] == 0
    ]


def main() -> None:
    """Compare on all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--reference", type=Path, required=True, metavar="DIR")
    parser.add_argument("--requests", type=int, default=50_000, help="requests of each simulated case")
    arguments = parser.parse_args()
    grid = grid_cases(arguments.reference, arguments.requests)
    compare("grid, all that the reference assumes", [case for case in grid if case.is_the_reference_s])
    compare("grid, the others", [case for case in grid if not case.is_the_reference_s])
    compare("vidur", vidur_cases(arguments.reference, arguments.requests))


if __name__ == "__main__":
    main()
