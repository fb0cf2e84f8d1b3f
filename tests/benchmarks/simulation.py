"""Measure the simulator: ``python tests/benchmarks/simulation.py [--reference DIR | --unseen N]``.

Without `--reference` its speed on one core, and that of plans. With it, what docs/fidelity.md states of the
engine and of both queue models: their figures against those of other simulators, `simulated/grid.json` (400
cases by a simulator of the same rules, with other random numbers) and `simulated/vidur.json` (Vidur, given
fits of its iteration times; its own runs have 800 to 1,600 requests that count). With `--unseen` the closed
form against the engine in new cases. Errors are absolute relative ones; the sweeps of real servers are in
fidelity.py.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from optimizer import load_system, solve
from optimizer.compat.rows import ReplicaRow
from optimizer.errors import InferplanError
from optimizer.generate import generate_system
from optimizer.kinds.replicas import analyze_replicas
from optimizer.parallel import as_done
from optimizer.simulation.engine import advance
from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.lengths import LengthDistribution, Lengths
from optimizer.simulation.limits import Limits
from optimizer.simulation.machine.state import initial_state
from optimizer.simulation.replicas import Effort, TokenReplica, run_replica
from optimizer.simulation.summary import Summary, summarise
from optimizer.simulation.workload import OpenLoad
from optimizer.studies.simulation.plans import simulate_pools
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
KNOWN_TO_THE_REFERENCE = (
    *("alpha", "beta", "gamma", "RPS", "avgInputTokens", "avgOutputTokens", "maxBatchSize", "maxNumTokens"),
)
VARIATION = {
    LengthDistribution.FIXED: (0.0, 0.0),
    LengthDistribution.UNIFORM: (0.5, 0.5 / 3**0.5),
    LengthDistribution.LOGNORMAL: (1.0, 1.0),
}
"""What lengths of a kind are drawn with, and their coefficient of variation."""


def speed() -> None:
    """Time the engine alone, on one core: requests are drawn before."""
    law = IterationCoefficients(6.83, 0.0224, 4.36e-5, 0.0189, 1.04e-6, 0.0, 4.3)
    limits = Limits(256, 8192)
    for answer, rate_rps in ((128, 12.0), (256, 10.0), (512, 5.0), (1000, 3.0)):
        lengths = (
            Lengths(LengthDistribution.UNIFORM, 256, 0.5),
            Lengths(LengthDistribution.UNIFORM, answer, 0.5, least=1),
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
        found = simulate_pools(system, plan, Effort())
        print(f"{name}: {len(found.pools)} pools in {time.perf_counter() - begin:.1f} s")


class Case(NamedTuple):
    """A recorded case."""

    row: dict[str, Any]
    """As `continuous` takes it."""
    simulate: Callable[[], Summary]
    """A run of the project's simulator."""
    figures: dict[str, float]
    """Recorded latencies [ms], by metric and figure."""
    assumptions: str = ""
    """Of the grid: whether the queue model `reference` knows all of the case."""


def compare(title: str, cases: Sequence[Case], summaries: Sequence[Summary]) -> None:
    """Compare both queue models and the simulator with recorded cases.

    `reference` gets α, β and γ of a case's law and knows neither its further terms nor schedulers and
    variability; of it only the means of TTFT and ITL are compared. A case that a model calls an overload has
    no figures.
    """
    print(f"{title}: {len(cases)} cases")
    recorded = [case.figures for case in cases]
    means = [{name: each[name] for name in ("ttft mean", "itl mean")} for each in recorded]
    show("reference", [closed_figures(of_the_reference(case.row), means[0]) for case in cases], means)
    show("continuous", [closed_figures(case.row, case.figures) for case in cases], recorded)
    show("simulator", [figures_of(summary) for summary in summaries], recorded)
    inside = sum(
        abs(found.ttft.mean.value - case.figures["ttft mean"]) <= 2 * found.ttft.mean.half_width
        for case, found in zip(cases, summaries, strict=True)
    )
    print(f"  mean TTFT of the simulator within twice its interval: {inside}")


def _simulated(case: Case) -> Summary:
    return case.simulate()


def figures_of(found: Summary) -> dict[str, float]:
    """Return mean and 95th percentile of each latency [ms]."""
    latencies = {"ttft": found.ttft, "itl": found.itl, "e2e": found.e2e}
    means = {f"{metric} mean": one.mean.value for metric, one in latencies.items()}
    return means | {f"{metric} p95": one.percentiles[95].value for metric, one in latencies.items()}


def closed_figures(row: dict[str, Any], names: Iterable[str]) -> dict[str, float] | None:
    """Return figures of a queue model [ms]; none in an overload."""
    try:
        answer = ReplicaRow.model_validate(row).analyze().model_dump(by_alias=True)
    except InferplanError:
        return None
    if "message" in answer or answer["offeredRPS"] > answer["maxRPS"]:
        return None
    parts = {name: name.split() for name in names}
    return {
        name: answer[f"{'avg' if figure == 'mean' else figure}{metric.upper()}"]
        for name, (metric, figure) in parts.items()
    }


def of_the_reference(row: dict[str, Any]) -> dict[str, Any]:
    """Return what the reference knows of a row, with room for ten batches."""
    known = {name: row[name] for name in KNOWN_TO_THE_REFERENCE if name in row}
    return known | {"queueModel": "reference", "maxQueueSize": 10 * row["maxBatchSize"]}


def show(model: str, found: Sequence[dict[str, float] | None], recorded: Sequence[dict[str, float]]) -> None:
    """Print the errors of one model, figure by figure."""
    pairs = [(one, true) for one, true in zip(found, recorded, strict=True) if one is not None]
    print(f"  {model}, {len(recorded) - len(pairs)} overloads")
    for name in recorded[0]:
        error = np.array([one[name] / true[name] - 1 for one, true in pairs])
        size = np.abs(error)
        print(
            f"    {name:10} median {np.median(size):6.1%}   80 % {np.quantile(size, 0.8):6.1%}   "
            f"largest {size.max():6.1%}   bias {np.median(error):+.1%}"
        )


def grid_cases(folder: Path, requests: int) -> Iterator[Case]:
    """Yield the cases of the grid."""
    for case in json.loads((folder / "simulated/grid.json").read_text()):
        known = case["law"] != "8b-knee" and case["mode"] == 0 and case["cv"] == 1
        drawn = case | {"law": GRID_LAWS[case["law"]], "kind": LengthDistribution(case["kind"])}
        yield Case(
            _closed_row(
                drawn["law"],
                _limits_of(case),
                RPS=1000 * case["lam"],
                avgInputTokens=case["EI"],
                avgOutputTokens=case["EO"],
                arrivalCV=case["cv"],
                inTokensCV=max(case["EI2"] / case["EI"] ** 2 - 1, 0.0) ** 0.5,
                outTokensCV=max(case["EO2"] / case["EO"] ** 2 - 1, 0.0) ** 0.5,
            ),
            partial(_run_case, drawn, Effort(requests=requests)),
            {f"{m} {f}": case[m][f] for m in ("ttft", "itl", "e2e") for f in ("mean", "p95")},
            "all that the reference assumes" if known else "the others",
        )


def vidur_cases(folder: Path, requests: int) -> Iterator[Case]:
    """Yield Vidur's rows in which nothing was restarted."""
    for row in json.loads((folder / "simulated/vidur.json").read_text())["rows"]:
        if row["restarts"]:
            continue
        cvs = (0.0, 0.0) if row["lengths"] == "fixed" else CONVERSATION_CV
        law, limits = VIDUR_LAWS[row["model"].rpartition("/")[2], row["sched"]], VIDUR_LIMITS[row["sched"]]
        lengths = Lengths.with_cv(row["mean_in"], cvs[0]), Lengths.with_cv(row["mean_out"], cvs[1], 1)
        load = OpenLoad(row["qps"], *lengths, row["cv"])
        yield Case(
            _closed_row(
                law,
                limits,
                RPS=row["qps"],
                avgInputTokens=row["mean_in"],
                avgOutputTokens=row["mean_out"],
                arrivalCV=row["cv"],
                inTokensCV=cvs[0],
                outTokensCV=cvs[1],
            ),
            partial(_run, load, TokenReplica(law, limits), Effort(requests=requests)),
            {
                f"{name} {figure}": row[key][figure]
                for name, key in (("ttft", "ttft_ms"), ("itl", "tbt_request_mean_ms"))
                for figure in ("mean", "p95")
            },
        )


def _run(load: OpenLoad, replica: TokenReplica, effort: Effort) -> Summary:
    return summarise(run_replica(load, replica, effort))


def _run_case(case: dict[str, Any], effort: Effort) -> Summary:
    spread, _ = VARIATION[case["kind"]]
    lengths = Lengths(case["kind"], case["I"], spread), Lengths(case["kind"], case["O"], spread, least=1)
    load = OpenLoad(1000 * case["lam"], *lengths, case["cv"])
    return _run(load, TokenReplica(case["law"], _limits_of(case)), effort)


def _limits_of(case: dict[str, Any]) -> Limits:
    return Limits(case["N"], case["M"], prefill_first=case["mode"] == 1)


def unseen(count: int, requests: int) -> None:
    """Compare the closed form with the simulator in cases that nobody has seen before, drawn at random."""
    for name, draw, seed in (("like the grid", _like_the_grid, 20261), ("reads weigh", _reads_weigh, 777)):
        rng = np.random.default_rng(seed)
        cases = [draw(rng) for _ in range(count)]
        stable = _stable_rates([_closed_unseen_row(case) for case in cases])
        for case, rate_rps in zip(cases, stable, strict=True):
            case["lam"] = case["load"] * rate_rps / 1000
        effort = Effort(requests=requests, seed=99)
        found = list(as_done(partial(_run_case, effort=effort), cases))
        kept = [i for i, summary in enumerate(found) if summary.overload is None]
        print(f"unseen, {name}: {len(kept)} of {count} cases, {requests:,} requests each")
        figures = [figures_of(found[i]) for i in kept]
        rows = [_closed_unseen_row(cases[i]) for i in kept]
        closed = [closed_figures(row, known) for row, known in zip(rows, figures, strict=True)]
        show("continuous", closed, figures)


def _like_the_grid(rng: np.random.Generator) -> dict[str, Any]:
    """Draw a case from what the grid was drawn from, as its counts say."""
    return {
        "law": GRID_LAWS[str(rng.choice(list(GRID_LAWS)))],
        "kind": LengthDistribution(str(rng.choice(["fixed", "uniform", "lognormal"]))),
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
        "kind": LengthDistribution.LOGNORMAL,
        "I": int(rng.choice([128, 256, 512, 1024, 2048, 4096])),
        "O": answer,
        "mode": 0,
        "M": 8192,
        "N": int(rng.choice([16, 32, 64, 128, 256])),
        "cv": float(rng.choice([1, 1, 2])),
        "load": float(rng.uniform(0.2, 0.9)),
    }


def _closed_unseen_row(case: dict[str, Any]) -> dict[str, Any]:
    _, variation = VARIATION[case["kind"]]
    return _closed_row(
        case["law"],
        _limits_of(case),
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


def _closed_row(law: IterationCoefficients, limits: Limits, **others: object) -> dict[str, Any]:
    return {
        **{PerfParms.model_fields[name].alias or name: value for name, value in law._asdict().items()},
        "queueModel": "continuous",
        "scheduler": "prefill-first" if limits.prefill_first else "chunked",
        "maxBatchSize": limits.max_batch,
        "maxNumTokens": limits.max_num_tokens,
        **others,
    }


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
        for name, read in (("grid", grid_cases), ("Vidur", vidur_cases)):
            cases = list(read(arguments.reference, arguments.requests))
            found = list(as_done(_simulated, cases))
            compare(name, cases, found)
            for part in sorted({case.assumptions for case in cases} - {""}):
                mine = [i for i, case in enumerate(cases) if case.assumptions == part]
                compare(f"{name}, {part}", [cases[i] for i in mine], [found[i] for i in mine])


if __name__ == "__main__":
    main()
