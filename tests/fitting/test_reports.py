"""Twins of public reports with faults (tests/data/benchmarks): what is fitted, and what is said.

Each case has the law that made it, predictions with tolerances, and words. Sources of the faults: vllm#51742,
inference-perf PR#565 and PR#566, guidellm#216, guidellm#444, sglang#10746.
"""

import json
import re
import warnings
from functools import cache
from pathlib import Path

import pytest
from slow_cases import mostly_slow

from optimizer.errors import FitError
from optimizer.fitting.judgement import IDEAL
from optimizer.fitting.options import FitOptions, MeasuredSetup, Stated
from optimizer.fitting.prediction import predict
from optimizer.fitting.priors import iterations_of
from optimizer.fitting.profile import FittedProfile
from optimizer.fitting.readers.table import parse_benchmark
from optimizer.jobs.fitting import fit_reports

DATA = Path(__file__).parents[1] / "data" / "benchmarks"
TWINS = sorted(path.parent.name for path in DATA.glob("*/expected.json"))


@cache
def fitted(folder: str, pattern: str, replicas: int | None = None, cards: int | None = None) -> FittedProfile:
    """Fit files of a case, with every numerical warning an error."""
    paths = sorted(map(str, (DATA / folder).glob(pattern)))
    assert paths
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        options = FitOptions(stated=Stated(replicas), key=MeasuredSetup("m", "H100", cards))
        return fit_reports(paths, options)


def said(profile: FittedProfile) -> str:
    return " ".join(profile.fit.warnings)


@pytest.mark.slow
@pytest.mark.parametrize("case", mostly_slow(TWINS, 1))
def test_twins_of_faulty_reports_are_fitted_rightly_and_told(case: str) -> None:
    expected = json.loads((DATA / case / "expected.json").read_text())
    profile = fitted(case, "[!e]*")
    wanted = expected["accept"][0]
    for words in wanted["says"]:
        assert re.search(words, said(profile), re.IGNORECASE), words
    for point in wanted["points"]:
        header, row = ",".join(point["row"]), ",".join(map(str, point["row"].values()))
        (found,) = predict(profile, parse_benchmark("p.csv", f"{header}\n{row}\n").runs)
        for key, value in point["expect"].items():
            assert getattr(found, key) == pytest.approx(value, rel=point["tolerance"]), (key, point["row"])


@pytest.mark.slow
def test_time_per_token_is_not_that_of_chunks() -> None:
    """2.38 ms a token arrive as 8.23 ms a chunk of 3.46 tokens (vllm#51742)."""
    profile = fitted("02-spec-decode-itl", "spec.json")
    assert profile.iteration.base_ms == pytest.approx(2.35, rel=0.03)
    assert "3.5 tokens arrive per chunk (speculative decoding)" in said(profile)
    other = fitted("02-spec-decode-itl", "spec_tpot.json")
    assert other.iteration == profile.iteration
    assert "per chunk" not in said(other)
    runs = parse_benchmark("one.csv", (DATA / "02-spec-decode-itl" / "one.csv").read_text()).runs
    (found,) = predict(profile, runs)
    assert found.itl_ms == pytest.approx(2.38, rel=0.03)
    assert found.throughput_rps == pytest.approx(1.24, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["aiperf-*.json", "vllm.json"])
def test_failed_requests_are_told(pattern: str) -> None:
    profile = fitted("07-failed-requests", pattern)
    assert "84 of 284 requests failed" in said(profile)
    assert "in flight is taken from rate times latency" in said(profile)
    assert ("the run was cancelled" in said(profile)) == pattern.startswith("aiperf")


@pytest.mark.slow
def test_one_broken_run_does_not_spoil_a_report() -> None:
    profile = fitted("09-guidellm-negative", "negative.json")
    assert "benchmarks[4] is left out: its median TTFT is -1,750,000,000,000 ms" in said(profile)
    assert "add a run with one request at a time" not in said(profile), "one of its runs is such a run"
    assert profile.iteration == fitted("09-guidellm-negative", "good.json").iteration


@pytest.mark.slow
def test_replicas_are_divided_by_or_asked_for(tmp_path: Path) -> None:
    told = fitted("10-replicas-behind-gateway", "results.json")
    assert "4 replicas (decode_replicas): rates and users are divided by 4" in said(told)
    assert max(point.rate_rps or 0.0 for point in told.points) == 7.5
    assert told.acc_count == 1
    text = (
        (DATA / "10-replicas-behind-gateway" / "results.json").read_text().replace("decode_replicas", "note")
    )
    (tmp_path / "r.json").write_text(text)
    path = str(tmp_path / "r.json")
    with pytest.raises(FitError, match=r"names 4xL40S: give --replicas 4 for four|--replicas 4 .* --cards 4"):
        fit_reports([path], FitOptions())
    asked = fit_reports([path], FitOptions(stated=Stated(4), key=MeasuredSetup("m", "H100")))
    assert asked.iteration == told.iteration
    assert fit_reports([path], FitOptions(key=MeasuredSetup(cards=4))).acc_count == 4


@pytest.mark.slow
def test_halved_times_per_token_are_mended() -> None:
    """A BOS in each chunk halves ITL and TPOT (inference-perf PR#565, PR#566)."""
    profile = fitted("11-inference-perf-itl", "stage_*.json")
    assert profile.iteration.base_ms == pytest.approx(7.0, rel=0.05)
    assert "is 0.50 of what request latency and TTFT say, 7 ms" in said(profile)
    assert "stage_3_lifecycle_metrics.json" in said(profile)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["n1.csv", "n2.csv", "two-rates.csv"])
def test_light_runs_end_in_words(name: str) -> None:
    profile = fitted("01-fit-crash", name)
    assert {"beta", "gamma"} - {*profile.fit.fitted_terms}
    assert "requests hardly overlap" in said(profile)
    assert "add a run with many users" in said(profile)


@pytest.mark.slow
def test_times_below_those_of_the_card_are_told_first(tmp_path: Path) -> None:
    """One H100 reads the 15 GB of Llama 3.1 8B in 4.48 ms, and computes a token in 0.0141 ms (data sheet)."""
    key = MeasuredSetup(accelerator="H100")
    ideal = iterations_of("meta-llama/Llama-3.1-8B", key, 1, IDEAL)
    assert ideal is not None
    assert ideal.weights_ms == pytest.approx(15.0 / 3350 * 1000, rel=0.01)
    assert ideal.token_ms == pytest.approx(2 * 7.0e9 / 989e12 * 1000, rel=0.01)
    assert iterations_of("org/other", key, 1) is None
    paths = []
    for path in sorted((DATA / "11-inference-perf-itl").glob("stage_*.json")):
        stage = json.loads(path.read_text())
        del stage["successes"]["latency"]["request_latency"]
        paths.append(str(tmp_path / path.name))
        Path(paths[-1]).write_text(json.dumps(stage))
    profile = fit_reports(paths, FitOptions(key=MeasuredSetup("llama-3.1-8b", "H100")))
    found = re.match(r"α (.*) ms is below the 4\.48 ms", profile.fit.warnings[0])
    assert found is not None
    assert float(found[1]) == pytest.approx(7.0 / 2, rel=0.05)
    assert "is below the 4.48 ms that one H100 needs to read 15 GB of weights" in profile.fit.warnings[0]
    known = fitted("11-inference-perf-itl", "stage_*.json")
    assert not any("is below the" in warning for warning in known.fit.warnings)
