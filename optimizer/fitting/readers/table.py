"""Table of readers: a new format needs a file next to this one and an entry here."""

import os

from optimizer.errors import FitError
from optimizer.fitting.readers import (
    aiperf,
    guidellm_columns,
    guidellm_html,
    guidellm_json,
    guidellm_rows,
    inference_perf,
    points,
    vllm_bench,
)
from optimizer.fitting.readers.report import Benchmark, BenchmarkFile, Reader
from optimizer.spec.files import read_text

READERS: tuple[Reader, ...] = (
    guidellm_json.READER,
    guidellm_columns.READER,
    guidellm_rows.READER,
    guidellm_html.READER,
    vllm_bench.READER,
    inference_perf.READER,
    aiperf.READER,
    points.READER,
)
"""All formats, in the order in which they are tried."""


def read_benchmark(path: str | os.PathLike[str]) -> Benchmark:
    """Read a report of any known format.

    Raises:
        FitError: the file is empty, cut short, or of unknown format.
        SpecError: the file cannot be read.
    """
    return parse_benchmark(str(path), read_text(path))


def parse_benchmark(name: str, text: str) -> Benchmark:
    """Read a report from its text.

    Raises:
        FitError: the text is empty, cut short, or of unknown format.
    """
    report = BenchmarkFile(name, text)
    if not text.strip():
        raise FitError(f"{name}: the file is empty; run the benchmark again, or leave it out")
    reader = next((reader for reader in READERS if reader.recognises(report)), None)
    if reader is None:
        known = ", ".join(reader.name for reader in READERS)
        raise FitError(
            f"{name}: not a known benchmark report; known are {known} with the columns "
            f"{', '.join(points.REQUIRED)}"
        )
    return reader.read(report)
