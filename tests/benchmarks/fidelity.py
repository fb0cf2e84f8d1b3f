"""How near fitted token times are to recorded sweeps: the second table of docs/fidelity.md.

    python tests/benchmarks/fidelity.py --reference DIR [--held-out]

DIR holds `sweeps/llama-3.1-8b` and `sweeps/qwen2.5-14b`. Each sweep is fitted without the two highest rates
of each shape and without the runs at full throughput; the figures are those at these runs. Beside it stands
the law of the reference, α, β and γ fitted the same way, replayed and in its queue.

With ``--held-out`` it prints instead the errors of TTFT, ITL and end-to-end latency over runs held out of the
fit, median and 90th percentile, by two rules: the two highest rates of each shape, and each shape in turn.
End-to-end latency is TTFT plus ITL times the number of output tokens but one, measured and predicted.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from guidellm_html import as_json

from optimizer.errors import InferplanError
from optimizer.fitting.fit import fit
from optimizer.fitting.options import FitOptions, ServerSettings
from optimizer.fitting.parameters import REFERENCE_LAW
from optimizer.fitting.prediction import predict
from optimizer.fitting.profile import FittedProfile
from optimizer.fitting.readers.report import Benchmark
from optimizer.fitting.readers.table import parse_benchmark
from optimizer.fitting.runs import BenchmarkRun
from optimizer.kinds.replicas import Replica, analyze_replicas

SWEEPS = {"llama-3.1-8b": 447_936, "qwen2.5-14b": 226_992}
"""KV capacity of each [tokens]."""
MAX_SEQUENCES = 512
"""What the clients had in flight at most."""
HELD_OUT = 2


def recorded(path: Path) -> Benchmark:
    text = path.read_text(encoding="utf-8")
    return parse_benchmark(path.name, as_json(text) if path.suffix == ".html" else text)


class Row(NamedTuple):
    """Predicted and measured times of a run."""

    ttft_ms: float
    itl_ms: float
    measured: BenchmarkRun


def errors(rows: Sequence[Row]) -> str:
    """Return Σ|predicted − measured| / Σ measured and the median relative error, TTFT / ITL."""
    shown = []
    for name in ("ttft_ms", "itl_ms"):
        pairs = [(getattr(row, name), getattr(row.measured.measured, name)) for row in rows]
        found, true = np.array([pair for pair in pairs if np.isfinite(pair[0])]).T
        off = np.abs(found - true)
        shown.append((off.sum() / true.sum(), np.median(off / true)))
    (ttft, ttft_median), (itl, itl_median) = shown
    return f"{ttft:.3f} / {itl:.3f}, median {ttft_median:.3f} / {itl_median:.3f} ({len(rows)} runs)"


def held_out(profile: FittedProfile) -> list[BenchmarkRun]:
    return [point.run() for point in profile.points if not point.fitted]


def steady_rows(profile: FittedProfile, runs: Sequence[BenchmarkRun]) -> list[Row]:
    """Return what the closed form predicts at the achieved rates."""
    steady = [
        replace(run, duration_s=None, requests=None, rate_rps=run.measured.throughput_rps) for run in runs
    ]
    answers = predict(profile, steady)
    return [
        Row(answer.ttft_ms or np.nan, answer.itl_ms or np.nan, run)
        for answer, run in zip(answers, runs, strict=True)
    ]


def reference_rows(profile: FittedProfile, runs: Sequence[BenchmarkRun]) -> list[Row]:
    """Return what the reference's queue predicts at the achieved rates; beyond its stable rate nothing."""
    rows = []
    for run in runs:
        replica = Replica.model_validate(
            {
                "perfParms": {key: getattr(profile.iteration, name) for name, key in zip(
                    REFERENCE_LAW, ("alpha", "beta", "gamma"), strict=True)},
                "maxBatch": MAX_SEQUENCES, "inTokens": run.prompts.mean, "outTokens": run.answers.mean,
            }
        )  # fmt: skip
        rate = run.measured.throughput_rps
        assert rate is not None
        try:
            found = analyze_replicas([replica], [rate])[0]
            rows.append(Row(found.ttft_ms, found.itl_ms, run))
        except InferplanError:
            rows.append(Row(np.nan, np.nan, run))
    return rows


def throughput(profile: FittedProfile) -> str:
    pairs = [
        (point.predicted_throughput_rps or np.nan) / point.throughput_rps - 1
        for point in profile.points
        if not point.fitted and point.run().is_full and point.throughput_rps
    ]
    return f"{np.median(np.abs(pairs)):.1%} off in the median, {np.median(pairs):+.1%} with its sign"


def measure(name: str, benchmarks: Sequence[Benchmark], kv_tokens: int) -> None:
    options = FitOptions(hold_out=HELD_OUT, settings=ServerSettings(kv_tokens, MAX_SEQUENCES))
    began = time.perf_counter()
    profile = fit(benchmarks, options)
    seconds = time.perf_counter() - began
    high = [run for run in held_out(profile) if not run.is_full]
    replayed = [
        Row(point.predicted_ttft_ms or np.nan, point.predicted_itl_ms or np.nan, point.run())
        for point in profile.points
        if not point.run().is_full
    ]
    rated = [row for row in replayed if row.measured.rate_rps is not None]
    most = {run.shape: max(other.rate_rps or 0 for other in high if other.shape == run.shape) for run in high}
    low = [row for row in rated if (row.measured.rate_rps or 0) < 0.93 * most[row.measured.shape]]
    print(f"\n{name}: fitted in {seconds:.0f} s, {profile.provenance.runs} runs, {profile.fit.fitted_terms}")
    print("  highest rates, replayed    ", errors([row for row in rated if row.measured in high]))
    print("  below 93 % load, replayed  ", errors(low))
    print("  highest rates, closed form ", errors(steady_rows(profile, high)))
    print("  below 93 %, closed form    ", errors(steady_rows(profile, [row.measured for row in low])))
    print("  throughput run, replayed   ", throughput(profile))
    for shape, left_out in profile.fit.left_out.items():
        print(f"  without {shape:<10} TTFT {left_out.ttft:.3f}, ITL {left_out.itl:.3f}")
    simple = fit(benchmarks, replace(options, terms=REFERENCE_LAW, leave_out=False))
    print("  the reference's law, replayed, highest rates:", errors([
        Row(point.predicted_ttft_ms or np.nan, point.predicted_itl_ms or np.nan, point.run())
        for point in simple.points if not point.fitted and not point.run().is_full
    ]))  # fmt: skip
    print("  the reference's law and queue, highest rates:", errors(reference_rows(simple, high)))
    print("  the reference's law, throughput run:", throughput(simple))


def relative_errors(profile: FittedProfile, runs: Sequence[BenchmarkRun]) -> list[tuple[float, ...]]:
    """Return |predicted / measured - 1| of TTFT, ITL and end-to-end latency of each run, replayed."""
    found = []
    for run, answer in zip(runs, predict(profile, list(runs)), strict=True):
        predicted, tokens = (answer.ttft_ms or np.nan, answer.itl_ms or np.nan), run.answers.mean - 1
        measured = run.measured.ttft_ms or np.nan, run.measured.itl_ms or np.nan
        times = [(ttft, itl, ttft + tokens * itl) for ttft, itl in (predicted, measured)]
        found.append(tuple(abs(mine / true - 1) for mine, true in zip(*times, strict=True)))
    return found


def in_the_form_of_others(name: str, benchmarks: Sequence[Benchmark], kv_tokens: int) -> None:
    """Print the median and 90th percentile of the errors of held-out runs, by rule."""
    options = FitOptions(
        hold_out=HELD_OUT, settings=ServerSettings(kv_tokens, MAX_SEQUENCES), leave_out=False
    )
    profile = fit(benchmarks, options)
    rated = [point.run() for point in profile.points if point.rate_rps is not None]
    high = [run for run in held_out(profile) if run.rate_rps is not None and not run.is_full]
    show(f"{name}, two highest rates", relative_errors(profile, high))
    found = []
    for shape in sorted({run.shape for run in rated}):
        rest = [
            each._replace(runs=tuple(run for run in each.runs if run.shape != shape)) for each in benchmarks
        ]
        other = fit([each for each in rest if each.runs], replace(options, hold_out=0))
        mine = [run for run in rated if run.shape == shape and not run.is_full]
        found += relative_errors(other, mine)
    show(f"{name}, each shape in turn", found)


def show(title: str, errors_of_runs: Sequence[Sequence[float]]) -> None:
    """Print the median and 90th percentile of each error."""
    rows = np.array(errors_of_runs)
    shown = [f"{np.nanmedian(column):.1%} / {np.nanquantile(column, 0.9):.1%}" for column in rows.T]
    print(f"{title}: TTFT {shown[0]}, ITL {shown[1]}, end to end {shown[2]} ({len(rows)} runs)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--reference", type=Path, required=True, metavar="DIR")
    parser.add_argument("--held-out", action="store_true", help="print the errors of held-out runs by rule")
    given = parser.parse_args()
    folder = given.reference / "sweeps"
    for name, kv_tokens in SWEEPS.items():
        benchmarks = [recorded(path) for path in sorted((folder / name).iterdir())]
        (in_the_form_of_others if given.held_out else measure)(name, benchmarks, kv_tokens)


if __name__ == "__main__":
    main()
