"""Waiting times under priorities: ``python tests/benchmarks/priorities.py FILE ...``.

Each file is laid out as ``tests/data/priority_waits.json``. Points are answered by the rows of `analyze
--batch`; classes whose simulated value is zero are left out.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from optimizer.compat.class_rows import LinearClassRow

NAMES = {"meanWait": "avgWaitTime", "p95Wait": "p95WaitTime"}


def row_of(point: dict[str, Any]) -> LinearClassRow:
    """Return a point as a row: two output tokens and no prompt take S(n) = alpha + beta·n."""
    classes = [{"RPS": rate, "priority": i} for i, rate in enumerate(point["ratesRps"], start=1)]
    law = {"alpha": point["serviceBase"], "beta": point["serviceSlope"]}
    return LinearClassRow.model_validate(
        {"maxBatchSize": point["batch"], "avgInputTokens": 0, "avgOutputTokens": 2, "decodeParms": law}
        | {"classes": classes, "workCV": point["workCV2"] ** 0.5}
    )


def main() -> None:
    """Print the errors by figure and law of work."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    errors: dict[tuple[str, str], list[float]] = {}
    for path in parser.parse_args().files:
        for point in json.loads(path.read_text("utf-8"))["points"]:
            answer = row_of(point).analyze().model_dump(by_alias=True)
            for mine, simulated in zip(answer["classes"], point["classes"], strict=True):
                for name, key in NAMES.items():
                    if simulated[name][0]:
                        error = abs(mine[key] / simulated[name][0] - 1)
                        general = [] if point["work"] == "exponential" else ["other"]
                        for work in (point["work"], *general, "all"):
                            errors.setdefault((name, work), []).append(error)
    for (name, work), found in sorted(errors.items()):
        within = np.mean(np.array(found) <= 0.1)
        figures = f"median {np.median(found):.1%}, 90 % {np.quantile(found, 0.9):.1%}, max {max(found):.1%}"
        print(f"{name:9} {work:14} {len(found):4} classes: {figures}, within a tenth {within:.0%}")


if __name__ == "__main__":
    main()
