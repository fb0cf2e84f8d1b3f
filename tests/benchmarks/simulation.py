"""Measure the simulator: ``python tests/benchmarks/simulation.py [--reference DIR | --unseen N]``.

Without `--reference` its speed on one core, and that of plans. With it, what docs/fidelity.md states of the
engine: its figures against those of other simulators, `simulated/grid.json` (400 cases by a simulator of
the same rules, with other random numbers) and `simulated/vidur.json` (Vidur, given fits of its iteration
times; its own runs have 800 to 1,600 requests that count). With `--unseen` the closed form against
the engine in new cases. Errors are absolute relative ones.
"""

import argparse
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from optimizer import load_system, solve
from optimizer.compat.rows import ReplicaRow
from optimizer.generate import generate_system
from optimizer.kinds.replicas import analyze_replicas
from optimizer.parallel import as_done
from optimizer.simulation.engine import advance
from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.lengths import LengthDistributionKind, Lengths
from optimizer.simulation.limits import Limits
from optimizer.simulation.machine.state import initial_state
from optimizer.simulation.replicas import Effort, TokenReplica, run_replica
from optimizer.simulation.summary import Summary, summarise
from optimizer.simulation.workload import OpenLoad
from optimizer.studies.simulation.plans import simulate_plan
from optimizer.timing import PerfParms

SPECS = Path(__file__).resolve().parents[2] / "specs"
GRID_LAWS = {
    "8b": IterationCoefficients(6.8, 0.0254, 3.4e-5),
    "8b-knee": IterationCoefficients(6.8, 0.0225, 4.2e-5, 0.02, 1e-6, 0.4, 4.5),
    "70b": IterationCoefficients(55.0, 0.30, 1e-4),
}
"""As the grid's description gives them."""
VIDUR_LAWS = {
    ("Meta-Llama-3-8B", "sarathi"): IterationCoefficients(10.21, 0.0556, per_sequence_ms=0.0992 - 0.0556),
    ("Meta-Llama-3-8B", "vllm"): IterationCoefficients(
        10.52, 0.0759, per_sequence_ms=0.0844 - 0.0759, prompt_base_ms=-1.20 - 10.52
    ),
    ("Llama-2-70b-hf", "sarathi"): IterationCoefficients(52.10, 0.2919, per_sequence_ms=0.3202 - 0.2919),
    ("Llama-2-70b-hf", "vllm"): IterationCoefficients(
        56.86, 0.3275, per_sequence_ms=0.2183 - 0.3275, prompt_base_ms=32.80 - 56.86
    ),
}
"""From `iteration_fits_ms` of the table, per decode and per prompt token."""
VIDUR_LIMITS = {"sarathi": Limits(128, 512), "vllm": Limits(128, 4096, prefill_first=True)}
CONVERSATION_CV = (0.96, 0.77)
"""Prompts and answers of the Azure conversation trace, of which the table gives the means."""


def speed() -> None:
    """Time the engine alone, on one core: requests are drawn before."""
    law = IterationCoefficients(6.83, 0.0224, 4.36e-5, 0.0189, 1.04e-6, 0.0, 4.3)
    limits = Limits(256, 8192)
    for answer, rate_rps in ((128, 12.0), (256, 10.0), (512, 5.0), (1000, 3.0)):
        lengths = (
            Lengths(LengthDistributionKind.UNIFORM, 256, 0.5),
            Lengths(LengthDistributionKind.UNIFORM, answer, 0.5, least=1),
        )
        requests = OpenLoad(rate_rps, *lengths).draw(200_000, np.random.SeedSequence(1))
        times = []
        for _ in range(4):  # the first may compile
            machine = initial_state(requests, limits)
            begin = time.process_time()
            advance(machine, law, limits)
            times.append(time.process_time() - begin)
        print(f"{answer:5} answer tokens at {rate_rps:4} requests/s: {0.2 / min(times):.2f} M requests/s")


def plans() -> None:
    """Time the simulation of plans, 20,000 requests a pool."""
    for name, system in (
        ("specs/large", load_system(SPECS / "large")),
        ("1,000 servers", generate_system(1000, 10, 10, 1)),
    ):
        plan = solve(system, unlimited=True)
        begin = time.perf_counter()
        found = simulate_plan(system, plan, Effort())
        print(f"{name}: {len(found.pools)} pools in {time.perf_counter() - begin:.1f} s")


def grid(folder: Path, requests: int) -> None:
    """Compare with the grid."""
    cases = json.loads((folder / "simulated/grid.json").read_text())
    errors: dict[str, list[float]] = {}
    inside = 0
    for case, found in zip(cases, as_done(partial(_grid_case, requests=requests), cases), strict=True):
        for metric in ("ttft", "itl", "e2e"):
            mine = getattr(found, metric)
            for figure, estimate in (("mean", mine.mean), ("p95", mine.percentiles[95])):
                error = estimate.value / case[metric][figure] - 1
                errors.setdefault(f"{metric} {figure}", []).append(error)
        inside += abs(found.ttft.mean.value - case["ttft"]["mean"]) <= 2 * found.ttft.mean.half_width
    print(
        f"grid: {len(cases)} cases, {requests:,} requests each; mean TTFT within twice the interval: {inside}"
    )
    _show(errors)


def _grid_case(case: dict[str, Any], requests: int) -> Summary:
    kind = LengthDistributionKind(case["kind"])
    variation = {
        LengthDistributionKind.FIXED: 0.0,
        LengthDistributionKind.UNIFORM: 0.5,
        LengthDistributionKind.LOGNORMAL: 1.0,
    }[kind]
    load = OpenLoad(
        1000 * case["lam"],
        Lengths(kind, case["I"], variation),
        Lengths(kind, case["O"], variation, least=1),
        case["cv"],
    )
    limits = Limits(case["N"], case["M"], prefill_first=case["mode"] == 1)
    return summarise(
        run_replica(load, TokenReplica(GRID_LAWS[case["law"]], limits), Effort(requests=requests))
    )


def vidur(folder: Path, requests: int) -> None:
    """Compare with Vidur's rows in which nothing was restarted."""
    rows = json.loads((folder / "simulated/vidur.json").read_text())["rows"]
    rows = [row for row in rows if row["restarts"] == 0]
    errors: dict[str, list[float]] = {}
    for row in rows:
        found = _vidur_row(row, requests)
        for figure in ("mean", "p95"):
            for name, mine, key in (
                ("TTFT", found.ttft, "ttft_ms"),
                ("ITL", found.itl, "tbt_request_mean_ms"),
            ):
                value = mine.mean.value if figure == "mean" else mine.percentiles[95].value
                errors.setdefault(f"{name} {figure}", []).append(value / row[key][figure] - 1)
    print(f"vidur: {len(rows)} rows without restarts, {requests:,} requests each")
    _show(errors)


def _vidur_row(row: dict[str, Any], requests: int) -> Summary:
    cvs = (0.0, 0.0) if row["lengths"] == "fixed" else CONVERSATION_CV
    prompts, answers = Lengths.with_cv(row["mean_in"], cvs[0]), Lengths.with_cv(row["mean_out"], cvs[1], 1)
    law = VIDUR_LAWS[row["model"].rpartition("/")[2], row["sched"]]
    load = OpenLoad(row["qps"], prompts, answers, row["cv"])
    return summarise(
        run_replica(load, TokenReplica(law, VIDUR_LIMITS[row["sched"]]), Effort(requests=requests))
    )


def closed(folder: Path) -> None:
    """Compare the queue model `continuous` with both tables."""
    cases = json.loads((folder / "simulated/grid.json").read_text())
    rows = [_closed_grid_row(case) for case in cases]
    figures = [
        {
            f"{m} {f}": case[m]["mean" if f == "mean" else f]
            for m in ("ttft", "itl", "e2e")
            for f in ("mean", "p95")
        }
        for case in cases
    ]
    print(f"closed form, grid: {len(cases)} cases")
    _show(_closed_errors(rows, figures))
    recorded = json.loads((folder / "simulated/vidur.json").read_text())["rows"]
    recorded = [row for row in recorded if row["restarts"] == 0]
    figures = [
        {
            f"{name} {figure}": row[key][figure]
            for name, key in (("ttft", "ttft_ms"), ("itl", "tbt_request_mean_ms"))
            for figure in ("mean", "p95")
        }
        for row in recorded
    ]
    print(f"closed form, vidur: {len(recorded)} rows without restarts")
    _show(_closed_errors([_closed_vidur_row(row) for row in recorded], figures))


def unseen(count: int, requests: int) -> None:
    """Compare the closed form with the simulator in cases that nobody has seen before, drawn at random."""
    for name, draw, seed in (("like the grid", _like_the_grid, 20261), ("reads weigh", _reads_weigh, 777)):
        rng = np.random.default_rng(seed)
        cases = [draw(rng) for _ in range(count)]
        stable = _stable_rates([_closed_unseen_row(case) for case in cases])
        for case, rate_rps in zip(cases, stable, strict=True):
            case["lam"] = case["load"] * rate_rps / 1000
        found = list(as_done(partial(_unseen_case, requests=requests), cases))
        kept = [i for i, summary in enumerate(found) if summary.overload is None]
        figures = []
        for i in kept:
            latencies = {"ttft": found[i].ttft, "itl": found[i].itl, "e2e": found[i].e2e}
            figures.append(
                {f"{m} mean": one.mean.value for m, one in latencies.items()}
                | {f"{m} p95": one.percentiles[95].value for m, one in latencies.items()}
            )
        print(f"closed form, unseen, {name}: {len(kept)} of {count} cases, {requests:,} requests each")
        _show(_closed_errors([_closed_unseen_row(cases[i]) for i in kept], figures))


def _like_the_grid(rng: np.random.Generator) -> dict[str, Any]:
    """Draw a case from what the grid was drawn from, as its counts say."""
    return {
        "law": GRID_LAWS[str(rng.choice(list(GRID_LAWS)))],
        "kind": LengthDistributionKind(str(rng.choice(["fixed", "uniform", "lognormal"]))),
        "I": int(rng.choice([64, 256, 512, 1024, 2048, 4096])),
        "O": int(rng.choice([32, 64, 128, 256, 1024])),
        "mode": int(rng.random() < 0.37),
        "M": int(rng.choice([512, 2048, 8192])),
        "N": int(rng.choice([32, 64, 256])),
        "cv": float(rng.choice([0, 1, 2, 3], p=[0.19, 0.41, 0.22, 0.18])),
        "load": float(rng.uniform(0.2, 0.95)),
    }


def _reads_weigh(rng: np.random.Generator) -> dict[str, Any]:
    """Draw a case with lognormal lengths whose iterations depend on what is in the cache."""
    base = rng.uniform(4, 30)
    answer = int(rng.choice([64, 128, 256, 512, 1024]))
    compute, read = base * 10 ** rng.uniform(-3, -1.8), base * 10 ** rng.uniform(-2.5, -1) / answer
    return {
        "law": IterationCoefficients(base, compute, read),
        "kind": LengthDistributionKind.LOGNORMAL,
        "I": int(rng.choice([128, 256, 512, 1024, 2048, 4096])),
        "O": answer,
        "mode": 0,
        "M": 8192,
        "N": int(rng.choice([16, 32, 64, 128, 256])),
        "cv": float(rng.choice([1, 1, 2])),
        "load": float(rng.uniform(0.2, 0.9)),
    }


VARIATION = {
    LengthDistributionKind.FIXED: (0.0, 0.0),
    LengthDistributionKind.UNIFORM: (0.5, 0.5 / 3**0.5),
    LengthDistributionKind.LOGNORMAL: (1.0, 1.0),
}
"""What lengths of a kind are drawn with, and their coefficient of variation."""


def _unseen_case(case: dict[str, Any], requests: int) -> Summary:
    spread, _ = VARIATION[case["kind"]]
    lengths = Lengths(case["kind"], case["I"], spread), Lengths(case["kind"], case["O"], spread, least=1)
    limits = Limits(case["N"], case["M"], prefill_first=case["mode"] == 1)
    load = OpenLoad(1000 * case["lam"], *lengths, case["cv"])
    return summarise(run_replica(load, TokenReplica(case["law"], limits), Effort(requests=requests, seed=99)))


def _closed_unseen_row(case: dict[str, Any]) -> dict[str, Any]:
    _, variation = VARIATION[case["kind"]]
    return _closed_row(
        case["law"],
        Limits(case["N"], case["M"], prefill_first=case["mode"] == 1),
        RPS=1000 * case.get("lam", 0.0),
        avgInputTokens=case["I"],
        avgOutputTokens=case["O"],
        arrivalCV=case["cv"],
        inTokensCV=variation,
        outTokensCV=variation,
    )


def _stable_rates(rows: list[dict[str, Any]]) -> list[float]:
    """Return the largest stable rate of each row [requests/s]."""
    replicas = [ReplicaRow.model_validate(row | {"RPS": 1e-3}).replica() for row in rows]
    return [found.stable_rate_rps for found in analyze_replicas(replicas, [1e-3] * len(replicas))]


def _closed_errors(rows: list[dict[str, Any]], figures: list[dict[str, float]]) -> dict[str, list[float]]:
    errors: dict[str, list[float]] = {}
    unsteady = 0
    for row, recorded in zip(rows, figures, strict=True):
        answer = ReplicaRow.model_validate(row).analyze().model_dump(by_alias=True)
        if "message" in answer:
            unsteady += 1
            continue
        for name, value in recorded.items():
            metric, figure = name.split()
            own = answer[f"{'avg' if figure == 'mean' else figure}{metric.upper()}"]
            errors.setdefault(name, []).append(own / value - 1)
    if unsteady:
        print(f"  {unsteady} called unsteady")
    return errors


def _closed_row(law: IterationCoefficients, limits: Limits, **others: object) -> dict[str, Any]:
    return {
        **{PerfParms.model_fields[name].alias or name: value for name, value in law._asdict().items()},
        "queueModel": "continuous",
        "scheduler": "prefill-first" if limits.prefill_first else "chunked",
        "maxBatchSize": limits.max_batch,
        "maxNumTokens": limits.max_num_tokens,
        **others,
    }


def _closed_grid_row(case: dict[str, Any]) -> dict[str, Any]:
    limits = Limits(case["N"], case["M"], prefill_first=case["mode"] == 1)
    return _closed_row(
        GRID_LAWS[case["law"]],
        limits,
        RPS=1000 * case["lam"],
        avgInputTokens=case["EI"],
        avgOutputTokens=case["EO"],
        arrivalCV=case["cv"],
        inTokensCV=max(case["EI2"] / case["EI"] ** 2 - 1, 0.0) ** 0.5,
        outTokensCV=max(case["EO2"] / case["EO"] ** 2 - 1, 0.0) ** 0.5,
    )


def _closed_vidur_row(row: dict[str, Any]) -> dict[str, Any]:
    cvs = (0.0, 0.0) if row["lengths"] == "fixed" else CONVERSATION_CV
    law = VIDUR_LAWS[row["model"].rpartition("/")[2], row["sched"]]
    return _closed_row(
        law,
        VIDUR_LIMITS[row["sched"]],
        RPS=row["qps"],
        avgInputTokens=row["mean_in"],
        avgOutputTokens=row["mean_out"],
        arrivalCV=row["cv"],
        inTokensCV=cvs[0],
        outTokensCV=cvs[1],
    )


def _show(errors: dict[str, list[float]]) -> None:
    for name, found in errors.items():
        size = np.abs(found)
        print(
            f"  {name:10} median {np.median(size):6.1%}   80 % {np.quantile(size, 0.8):6.1%}   "
            f"largest {size.max():6.1%}   bias {np.median(found):+.1%}"
        )


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reference", type=Path, metavar="DIR", help="folder that holds simulated/*.json")
    parser.add_argument("--unseen", type=int, metavar="N", help="compare in N new cases of each kind")
    parser.add_argument("--requests", type=int, default=50_000, metavar="N", help="requests of each case")
    arguments = parser.parse_args()
    if arguments.unseen is not None:
        unseen(arguments.unseen, arguments.requests)
    elif arguments.reference is None:
        speed()
        plans()
    else:
        closed(arguments.reference)
        vidur(arguments.reference, arguments.requests)
        grid(arguments.reference, arguments.requests)


if __name__ == "__main__":
    main()
