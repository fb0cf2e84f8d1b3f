"""The compiled engine: kept, found again by the next process, and announced when it is made."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN = """
from optimizer.simulation.engine import announcing_compilation, simulate
from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.limits import Limits
from optimizer.simulation.requests import Requests
import numpy as np
ones = np.ones(3, np.int64)
with announcing_compilation(lambda: print("compiling")):
    run = simulate(Requests(ones, ones, np.arange(3.0)), IterationCoefficients(1.0), Limits(1, 1))
print(run.ttft_ms.tolist())
"""


def output(folder: Path, cache: Path) -> str:
    """Run the engine of a copy of the package, with its compiled code under a folder of its own."""
    environment = os.environ | {"PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(cache)}
    found = subprocess.run(
        [sys.executable, "-c", RUN], capture_output=True, text=True, check=True, env=environment, cwd=folder
    )
    return found.stdout


@pytest.mark.slow
def test_cache_is_invalidated_by_any_source_change(tmp_path: Path) -> None:
    folder, cache = tmp_path / "package", tmp_path / "cache"
    shutil.copytree(ROOT / "optimizer", folder / "optimizer", ignore=shutil.ignore_patterns("__pycache__"))
    times = "[1.0, 1.0, 1.0]\n"
    assert output(folder, cache) == "compiling\n" + times
    assert output(folder, cache) == times
    law = folder / "optimizer/simulation/machine/times.py"
    changed = law.read_text(encoding="utf-8").replace("times.base_ms + (", "0.5 * times.base_ms + (")
    law.write_text(changed, encoding="utf-8")
    assert output(folder, cache) == "compiling\n[0.5, 0.5, 0.5]\n"
