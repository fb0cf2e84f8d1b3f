"""How near batch servers are to simulations of others: the tables of docs/fidelity.md.

    python tests/benchmarks/batch_servers.py --reference DIR [--table NAME]
    python tests/benchmarks/batch_servers.py --fleet 200x10 [--seed N] [--arrival-cv CV]

The second times the sizing and the plan of a fleet drawn at random, as docs/performance.md has it.
DIR holds `workloads_batch.json`, `workloads_batch_cv.json`, `workloads_tandem.json`, `workloads_node.json`,
`workloads_static.json` and `workloads_sharing.json`. Errors are relative, predicted over
simulated less 1; of shares they are differences.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from optimizer import load_system, solve
from optimizer.candidates.finder import find_candidates
from optimizer.queueing.bulk.simulated import is_simulated, saturation_rate, simulate_steady_state
from optimizer.queueing.bulk.steady import server_steady_state
from optimizer.queueing.bulk.time_sharing import MAX_FILL, fills, shared_steady_states
from optimizer.simulation.batches import TRIGGERS, BatchServer
from optimizer.simulation.limits import UNLIMITED
from optimizer.simulation.tandem import Station, Tandem
from optimizer.timing.law import RequestShapes
from optimizer.timing.static import StaticLaw

PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}
LIMIT_S = 300.0
"""Time limit of a plan [s]; sizing by simulation counts towards it."""
STEPS = 100.0
"""Mean answer of the static batches [tokens after the first]."""
GPU = 2
"""Which of a node's stages is the batch server."""


def server_of(given: dict[str, Any]) -> BatchServer:
    return BatchServer(
        given["size"],
        given["window"],
        given["base"],
        given["slope"],
        UNLIMITED if given.get("room") is None else given["room"],
        given.get("in_system", False),
        TRIGGERS.index(given.get("trigger", "oldest")),
    )


def latencies(found: Any) -> dict[str, float]:
    return {"mean": found.mean_ms} | {name: found.quantile_ms(share) for name, share in PERCENTILES.items()}


def errors_of(found: dict[str, float], simulated: dict[str, Any]) -> dict[str, float]:
    return {name: value / simulated[name]["value"] - 1 for name, value in found.items() if name in simulated}


def batch(point: dict[str, Any]) -> dict[str, float]:
    server, rate, cv = server_of(point["server"]), point["rateRps"] / 1000, point["server"]["cv"]
    line = Tandem(server)
    found = (
        simulate_steady_state(line, rate, cv) if is_simulated(line, cv) else server_steady_state(server, rate)
    )
    errors = errors_of(latencies(found), point["simulated"])
    return errors | {"rejected": found.rejected - point["simulated"]["blocked"]["value"]}


def tandem(point: dict[str, Any]) -> dict[str, float]:
    stations = [Station(place == "before", *stage) for place in ("before", "after") for stage in point[place]]
    line = Tandem(server_of(point["server"]), tuple(stations))
    found = simulate_steady_state(line, point["rateRps"] / 1000, 1.0)
    return errors_of(latencies(found), point["simulated"])


def node(point: dict[str, Any]) -> dict[str, float]:
    before = [Station(True, ms, point["cv"], workers) for ms, workers in point["stages"][:GPU]]  # noqa: FBT003
    after = [Station(False, ms, point["cv"], workers) for ms, workers in point["stages"][GPU + 1 :]]  # noqa: FBT003
    server = BatchServer(1, 0.0, point["stages"][GPU][0], 0.0)
    found = saturation_rate(Tandem(server, (*before, *after), point["jobs"]))
    return {"throughput": 1000 * found / point["throughputRps"] - 1}


def static(point: dict[str, Any]) -> dict[str, float]:
    """Return the errors of the throughput of continuous over static batches; lengths by their mean and CV."""
    kind, *rest = point["lengths"].split()
    if kind not in {"fixed", "lognormal"}:
        return {}
    cv, size, prompt = float(rest[-1]) if rest else 0.0, float(point["batch"]), float(point["prompt"])
    parms = [point[name] for name in ("alpha", "beta", "gamma", "delta")]
    alpha, beta, gamma, delta = parms
    continuous = size * (gamma * (prompt > 0) + delta * prompt) + (alpha + beta * size) * STEPS
    shapes = RequestShapes(np.array([prompt]), np.array([STEPS + 1]), np.array([cv]))
    errors = {}
    for padded, name in enumerate(("simulatedStatic", "simulatedPadded")):
        law = StaticLaw.of_rows(np.array([[value] for value in (*parms, float(padded))]), shapes)
        errors[name] = float(law.service_time_ms(np.array([size]))[0]) / continuous / point[name] - 1
    return errors


def sharing(point: dict[str, Any]) -> dict[str, float]:
    """Return the errors of one server of a card that several share; none where there is no steady state."""
    servers = [server_of(given) for given in point["models"]]
    rates = np.array([given["rateRps"] for given in point["models"]]) / 1000
    if fills(servers, rates).max() > MAX_FILL:
        assert not point["stable"]
        return {}
    state, simulated = (
        shared_steady_states(servers, rates)[point["of"]],
        point["latency"][point["of"]],
    )
    return {
        "mean": state.mean_ms / simulated["mean"][0] - 1,
        "p99": state.quantile_ms(0.99) / simulated["p99"][0] - 1,
    }


TABLES: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, float]]]] = {
    "batch": ("workloads_batch.json", batch),
    "cv": ("workloads_batch_cv.json", batch),
    "tandem": ("workloads_tandem.json", tandem),
    "node": ("workloads_node.json", node),
    "static": ("workloads_static.json", static),
    "sharing": ("workloads_sharing.json", sharing),
}


def show_times(folder: Path) -> None:
    """Print how long one share beyond a time takes, the chain at the rate with it, by batch limit."""
    spent: dict[str, list[float]] = {}
    for point in json.loads((folder / "workloads_batch.json").read_text(encoding="utf-8"))["points"]:
        server, rate = server_of(point["server"]), point["rateRps"] / 1000
        tries = []
        for _ in range(5):
            begin = time.thread_time()
            server_steady_state(server, rate).late_share(point["simulated"]["p99"]["value"])
            tries.append(time.thread_time() - begin)
        kind = "1 to 16" if server.size <= 16 else "17 to 64" if server.size <= 64 else "100"
        spent.setdefault(kind, []).append(1000 * float(np.median(tries)))
    for kind, times in sorted(spent.items()):
        print(f"one share, batches of {kind}: median {np.median(times):.2f} ms, largest {max(times):.2f} ms")


def drawn(servers: int, accelerators: int, seed: int, arrival_cv: float = 1.0) -> dict[str, Any]:
    """Return a fleet of batch servers with all triggers, batches of 1 to 100, windows of 0 to 400 ms."""
    rng = np.random.default_rng(seed)
    laws = [(5, 5), (20, 1), (37.5, 2.5), (60, 0.5), (100, 0), (10, 2)]
    models = [
        (*laws[rng.integers(len(laws))], int(rng.choice([1, 2, 4, 5, 8, 12, 16, 24, 32, 48, 64, 100])))
        for _ in range(20)
    ]
    document: dict[str, Any] = {"models": [], "serviceClasses": [], "servers": []}
    document["optimizer"] = {"unlimited": True}
    document["accelerators"] = [
        {"name": f"A{i}", "type": f"A{i}", "cost": 10 + 5 * i} for i in range(accelerators)
    ]
    for m, (base, slope, size) in enumerate(models):
        for i, speed in enumerate(np.linspace(1, 0.3, accelerators)):
            law = {"base": base * speed * rng.uniform(0.9, 1.1), "slope": slope * speed}
            document["models"].append(
                {"name": f"m{m}", "acc": f"A{i}", "maxBatchSize": size, "batchParms": law}
            )
    for j in range(servers):
        m, trigger = int(rng.integers(len(models))), TRIGGERS[rng.integers(len(TRIGGERS))]
        base, slope, size = models[m]
        full = base + slope * size
        window = float(rng.choice([0, 2, 5, 10, 20, 50, 100, 200, 400]))
        if trigger == "clock":
            window = float(np.ceil(full * rng.uniform(1.15, 2)))
        last = (window + full) * rng.uniform(0.8, 3)
        target: dict[str, Any] = {"model": f"m{m}", "latency": [{"percentile": 99, "ms": last}]}
        if rng.random() < 0.5:
            target["latency"].append({"percentile": 50, "ms": last * rng.uniform(0.4, 0.8)})
        server: dict[str, Any] = {
            "name": f"s{j}",
            "class": f"c{j}",
            "model": f"m{m}",
            "batchTrigger": trigger,
        }
        server["batchTimeout"] = window
        if rng.random() < 0.5:
            target["maxRejected"] = float(rng.choice([0.001, 0.01, 0.05]))
            server["maxQueueSize"] = int(max(size + 2, size * rng.choice([1.5, 2, 4, 10])))
        load = {"arrivalRate": 60_000 * size / full * rng.uniform(0.3, 12), "arrivalCV": arrival_cv}
        document["servers"].append(server | {"currentAlloc": {"load": load}})
        document["serviceClasses"].append({"name": f"c{j}", "modelTargets": [target]})
    return document


def show_fleet(size: str, seed: int, arrival_cv: float) -> None:
    """Print how long sizing and the whole plan of a fleet take, compiled before."""
    solve(load_system(drawn(12, 1, seed + 1, arrival_cv)))
    servers, accelerators = (int(number) for number in size.split("x"))
    system = load_system(drawn(servers, accelerators, seed, arrival_cv))
    for name, work in (("sizing", find_candidates), ("plan", partial(solve, time_limit_s=LIMIT_S))):
        begin, used = time.perf_counter(), time.process_time()
        work(system)
        spent, core = time.perf_counter() - begin, time.process_time() - used
        print(f"{name} of {size}: {spent:.1f} s, {core:.1f} s of processor time")


def show(name: str, folder: Path) -> None:
    file, errors = TABLES[name]
    points = json.loads((folder / file).read_text(encoding="utf-8"))["points"]
    points = [
        point | ({"of": k} if "models" in point else {})
        for point in points
        for k in range(len(point.get("models", "-")))
    ]
    begin = time.perf_counter()
    found = [row for point in points if (row := errors(point))]
    spent = time.perf_counter() - begin
    print(f"{name}: {len(found)} points, {spent:.1f} s")
    for figure in found[0]:
        values = np.array([row[figure] for row in found if figure in row])
        off = np.abs(values)
        shown = (np.median(off), np.quantile(off, 0.9), off.max(), values.min(), values.max())
        print(f"  {figure:16}" + "".join(f"{value:10.3%}" for value in shown))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--table", choices=[*TABLES, "times"])
    parser.add_argument("--fleet", metavar="SERVERSxACCELERATORS")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--arrival-cv", type=float, default=1.0)
    arguments = parser.parse_args()
    if arguments.fleet:
        show_fleet(arguments.fleet, arguments.seed, arguments.arrival_cv)
    if arguments.reference is None:
        return 0
    if arguments.table == "times":
        show_times(arguments.reference)
        return 0
    print("absolute error: median, 90 %, largest; then the lowest and the highest error")
    for name in [arguments.table] if arguments.table else TABLES:
        show(name, arguments.reference)
    return 0


if __name__ == "__main__":
    sys.exit(main())
