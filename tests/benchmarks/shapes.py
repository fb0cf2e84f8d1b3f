"""Errors of the queue model `continuous` on mixes of request shapes, and the time of sizing with shapes.

Usage: python tests/benchmarks/shapes.py [--seed 1] [--count 40] [--requests 40000]
       python tests/benchmarks/shapes.py --sizing
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from optimizer import System, find_candidates, load_system
from optimizer.arrays import FloatArray
from optimizer.errors import AnalysisError
from optimizer.kinds.replicas import Replica, queues_of
from optimizer.kinds.simulated import ReplicaSimulation, simulate_replica
from optimizer.schema.messages import validated
from optimizer.simulation.replicas import Effort
from optimizer.timing import PerfParms

LAWS = (
    (6.83, 0.0224, 4.36e-5, 0.0189, 1.04e-6, 4.3),
    (11.23, 0.0423, 6.06e-5, 0.0157, 1.09e-6, 11.5),
    (18.8, 0.0723, 2.9e-5, 0.02, 1e-6, 12.0),
    (7.331, 0.020968, 4.603e-5, 0.0, 0.0, 0.0),
)
"""Coefficients of an 8B, a 14B and a 70B model, and of an estimate, in the order of `TERMS`."""
TERMS = (
    "base_ms",
    "compute_per_token_ms",
    "kv_read_per_token_ms",
    "per_sequence_ms",
    "prompt_attention_ms",
    "weight_read_ms",
)
"""Names of the coefficients."""
SPECS = Path(__file__).resolve().parents[2] / "specs"
ROUNDS = 6
"""Number of times that each system is sized; the shortest time counts."""
FIGURES = ("ttft", "p95_ttft", "itl", "p95_itl")


def random_mix(rng: np.random.Generator) -> tuple[Replica, float, str]:
    """Return a replica with 2 to 5 shapes, its load as a share of the largest rate, and the kind of mix."""
    kind, capacity = str(rng.choice(["any", "any", "long", "rare"])), float(rng.choice([450e3, 450e3, 120e3]))
    shapes: list[dict[str, Any]] = []
    weights = rng.dirichlet(np.ones(int(rng.integers(2, 6)))) + 0.05
    for i in range(len(weights)):
        long = i == 0 and kind != "any"
        low, high = (15_000, 60_000) if long else (50, 8000)
        prompt = float(np.exp(rng.uniform(np.log(low), np.log(high))))
        capacity = max(capacity, 450e3 if prompt > 12_000 else 0.0)
        answer = max(round(float(np.exp(rng.uniform(np.log(10), np.log(1000))))), 2)
        spread = rng.choice([0, 0.2]) if prompt > 12_000 else rng.choice([0, 0, 0.5, 1.0])
        lengths = {"avgInTokens": round(prompt), "avgOutTokens": answer}
        cvs = {"inTokensCV": float(spread), "outTokensCV": float(rng.choice([0, 0.5, 1]))}
        shapes.append({"name": str(i), **lengths, **cvs})
    if kind != "any":
        share = rng.uniform(0.05, 0.3) if kind == "long" else rng.uniform(0.005, 0.05)
        weights[0] = weights[1:].sum() * share / (1 - share)
    for shape, weight in zip(shapes, weights / weights.sum(), strict=True):
        shape["share"] = float(weight)
    law = PerfParms(**dict(zip(TERMS, LAWS[int(rng.integers(len(LAWS)))], strict=True)))
    fields = {
        "perfParms": law.model_dump(by_alias=True), "shapes": shapes,
        "maxBatch": int(rng.choice([256, 256, 64])), "maxQueue": 10**9,
        "maxNumTokens": int(rng.choice([8192, 8192, 2048])), "kvCapacity": int(capacity),
        "arrivalCV": float(rng.choice([1, 1, 1, 2, 0.5])),
    }  # fmt: skip
    return validated(Replica, fields), float(rng.uniform(0.3, 0.8)), kind


def errors_of(replica: Replica, load: float, effort: Effort) -> FloatArray | None:
    """Return the relative errors of the figures; None if the replica has no steady state."""
    ((_, queues),) = queues_of([replica])
    rate = load * float(queues.stable_rate_rps[0])
    found: Any = queues.analyze(np.array([rate]))
    latencies = found.latencies
    closed = [
        latencies.ttft_ms[0], latencies.quantile("ttft", 0.95)[0],
        latencies.itl_ms[0], latencies.quantile("itl", 0.95)[0],
    ]  # fmt: skip
    simulated = simulate_replica(replica, rate, effort)
    if not isinstance(simulated, ReplicaSimulation):
        return None
    return np.array(
        [value / getattr(simulated, f"{name}_ms") - 1 for name, value in zip(FIGURES, closed, strict=True)]
    )


def show(name: str, errors: Sequence[FloatArray]) -> None:
    """Print median and 80th percentile of the absolute errors, and the median error."""
    if errors:
        table = np.array(errors)
        cells = []
        for figure, column in zip(FIGURES, table.T, strict=True):
            size = np.abs(column)
            middle, wide = np.median(size), np.quantile(size, 0.8)
            cells.append(f"{figure} {middle:.1%} / {wide:.1%} ({np.median(column):+.1%})")
        print(f"{name:10s} {len(errors):4d}  {'; '.join(cells)}")


def sized_system(percentile: int | None, lengths: Sequence[tuple[float, int, int]] = ()) -> System:
    """Return `specs/large` with the law and the queue model of continuous batching, and other loads."""
    source = json.loads(
        load_system(SPECS / "large").to_spec().model_dump_json(by_alias=True, exclude_unset=True)
    )
    for model in source["models"]:
        decode, prefill = model.pop("decodeParms"), model.pop("prefillParms")
        model.pop("atTokens", None)
        law = {"alpha": decode["alpha"], "beta": prefill["delta"], "gamma": 1e-5}
        model |= {
            "perfParms": law, "queueModel": "continuous", "maxBatchSize": 64, "maxNumTokens": 2048,
            "kvCapacity": 400_000,
        }  # fmt: skip
    for target in (target for item in source["serviceClasses"] for target in item["modelTargets"]):
        target.update({} if percentile is None else {"percentile": percentile})
    for load in (server["currentAlloc"]["load"] for server in source["servers"] if lengths):
        del load["avgInTokens"], load["avgOutTokens"]
        load["shapes"] = [
            {"name": f"{prompt}", "share": share, "avgInTokens": prompt, "avgOutTokens": answer}
            for share, prompt, answer in lengths
        ]
    return load_system(source)


def show_sizing() -> None:
    """Print the CPU time of sizing with percentiles and shapes, compared with means of one shape."""
    four = [(0.4, 100, 1000), (0.3, 300, 500), (0.2, 600, 300), (0.1, 1500, 200)]
    systems = {
        "means": sized_system(None),
        "95th percentiles": sized_system(95),
        "the same, four shapes": sized_system(95, four),
        "the same, one beyond the token budget": sized_system(95, [*four[:3], (0.1, 12_000, 300)]),
    }
    times: dict[str, list[float]] = {name: [] for name in systems}
    for name in [*systems] * ROUNDS:
        begin = time.process_time()
        find_candidates(systems[name])
        times[name].append(time.process_time() - begin)
    for name, found in times.items():
        print(f"{name:38s} {min(found) / min(times['means']):5.2f} x")


def main() -> None:
    """Compare random mixes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--requests", type=int, default=40_000)
    parser.add_argument("--sizing", action="store_true")
    arguments = parser.parse_args()
    if arguments.sizing:
        show_sizing()
        return
    rng = np.random.default_rng(arguments.seed)
    found: list[tuple[float, str, FloatArray]] = []
    while len(found) < arguments.count:
        replica, load, kind = random_mix(rng)
        try:
            errors = errors_of(replica, load, Effort(arguments.requests, 2, len(found) + 1))
        except AnalysisError:
            continue
        if errors is not None:
            found.append((replica.arrival_cv, kind, errors))
    groups: dict[str, Callable[[float, str], bool]] = {
        "all": lambda *_: True,
        "Poisson": lambda cv, _: cv == 1,
        "bursts": lambda cv, _: cv > 1,
        "even": lambda cv, _: cv < 1,
        "long": lambda _, kind: kind != "any",
    }
    for name, chosen in groups.items():
        show(name, [errors for cv, kind, errors in found if chosen(cv, kind)])


if __name__ == "__main__":
    main()
