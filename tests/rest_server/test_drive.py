"""The load client against an emulated fleet: what it sends, measures and writes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Run
from emulated import FLEET, Emulator, emulated

from optimizer.fitting.readers.table import read_benchmark

LOADED = FLEET.replace("arrivalRate: 0.1/s", "arrivalRate: 4/s")


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("driven") / "fleet.yaml"
    path.write_text(LOADED)
    return path


@pytest.fixture(scope="module")
def fleet(document: Path) -> Iterator[Emulator]:
    with emulated(document) as found:
        yield found


def test_drive_measures_what_it_sends(fleet: Emulator, document: Path, tmp_path: Path, run: Run) -> None:
    answer = run("drive", document, fleet.url, "--requests", "30", "--report", tmp_path, "--json")
    assert answer.status == 0, answer.err
    rows = {(row["server"], row["metric"]): row for row in answer.json}
    assert list(rows) == [
        ("eyes", "latency"), ("eyes", "rejected"),
        ("talk", "TTFT"), ("talk", "ITL"), ("talk", "end-to-end"), ("talk", "rejected"),
    ]  # fmt: skip
    # 10 ms an iteration, less the delay of first tokens on a busy machine; 200 ms a batch.
    assert rows["talk", "ITL"]["measured"] > 8
    assert rows["eyes", "latency"]["measured"] > 200
    for row in rows.values():
        assert row["simulated"] == pytest.approx(row["predicted"], rel=0.5, abs=1)
    (path,) = tmp_path.iterdir()
    report = json.loads(path.read_text())
    assert (report["num_prompts"], len(report["output_lens"])) == (30, report["completed"])
    assert report["mean_itl_ms"] == pytest.approx(rows["talk", "ITL"]["measured"], rel=0.1)
    (measured,) = read_benchmark(path).runs
    assert measured.rate_rps == pytest.approx(4)


def test_drive_names_what_is_wrong(fleet: Emulator, document: Path, tmp_path: Path, run: Run) -> None:
    assert "must look like" in run("drive", document, "localhost").err
    assert "no fleet answers" in run("drive", document, "http://127.0.0.1:9").err
    other = tmp_path / "other.yaml"
    other.write_text(LOADED.replace("talk", "chatter").replace("eyes", "ears"))
    refused = run("drive", other, fleet.url)
    assert (refused.status, "none of the document's servers" in refused.err) == (2, True)


@pytest.mark.slow
def test_measured_latencies_are_near_the_simulated(fleet: Emulator, document: Path, run: Run) -> None:
    rows = run("drive", document, fleet.url, "--requests", "1000", "--json").json
    means = {(row["server"], row["metric"]): row for row in rows if row["unit"] == "ms"}
    itl, latency = means["talk", "ITL"], means["eyes", "latency"]
    assert itl["measured"] == pytest.approx(itl["simulated"], rel=0.05)
    assert latency["measured"] == pytest.approx(latency["simulated"], rel=0.1)
