"""Measure what docs/performance.md states: ``python tests/benchmarks/run.py [NAME ...]``.

Every input is cold and distinct: no run sees a system that an earlier one saw. Each benchmark runs in a
process of its own, so that its peak memory is its own. Figures are medians; on a noisy machine compare
ratios measured in one run, not single times.
"""

import argparse
import dataclasses
import multiprocessing
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from optimizer import Explanation, System, Timings, explain, find_candidates, load_system, solve
from optimizer.generate import generate_document, generate_system
from optimizer.milp.highs import HighsSession
from optimizer.milp.model import MilpModel, RunResult, Session
from optimizer.solvers.compact import solve_milp
from optimizer.solvers.objectives import VALUE
from optimizer.solvers.problem import build_problem
from optimizer.spec.writing import write_document

REFERENCE_LARGE_MS = 138.0
"""Candidates of specs/large by the reference in compiled Go on a 2-core machine (work order of the core)."""
SPECS = Path(__file__).resolve().parents[2] / "specs"


EXPLAINED = (
    (30, 12, 1.6, 20.0, (1, 4, 11, 12, 13, 14, 61, 81, 91)),
    (40, 10, 1.8, 20.0, (1, 21, 22, 23, 24, 62, 82, 93)),
    (40, 10, 2.0, 20.0, (94,)),
    (30, 10, 2.0, 20.0, (84,)),
    (30, 12, 2.0, 20.0, (97,)),
    (32, 12, 1.8, 20.0, (92,)),
    (35, 11, 1.7, 20.0, (83,)),
    (36, 14, 1.5, 20.0, (95,)),
    (38, 8, 2.2, 20.0, (96,)),
    (100, 20, 2.0, 38.0, (1,)),
)
"""Servers, accelerators, tightness, limit [s] and seeds of the fleets that are explained."""
SCARCE = (
    (1.0, (41, 51)),
    (1.1, (52,)),
    (1.2, (42, 31)),
    (1.3, (53,)),
    (1.4, (43, 33, 31, 44, 54)),
    (1.6, (34,)),
    (1.7, (45,)),
    (2.0, (36,)),
    (2.1, (46,)),
)
"""Tightness and seeds of the scarce fleets of 1,000 servers."""
EXACT = 1e-4
"""Relative gap of one value up to which it is exact; an effect is a difference of two."""


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _with_other_loads(system: System, rng: np.random.Generator) -> System:
    servers = {}
    for name, server in system.servers.items():
        load = server.current.load
        rate = load.arrival_rate_rpm * float(rng.uniform(0.8, 1.2))
        current = server.current.model_copy(
            update={"load": load.model_copy(update={"arrival_rate_rpm": rate})}
        )
        servers[name] = server.model_copy(update={"current": current})
    return dataclasses.replace(system, servers=servers)


def candidates() -> list[str]:
    """Time the candidates of specs/large, 567 pairs, on 100 different loads."""
    system, rng = load_system(SPECS / "large"), np.random.default_rng(1)
    find_candidates(system)  # imports and first-use costs are the start-up benchmark's
    times = []
    for variant in [_with_other_loads(system, rng) for _ in range(100)]:
        begin = time.perf_counter()
        find_candidates(variant)
        times.append((time.perf_counter() - begin) * 1000)
    low, middle, high = np.percentile(times, [10, 50, 90])
    return [
        f"candidates of specs/large: median {middle:.1f} ms (10 % {low:.1f}, 90 % {high:.1f})",
        f"the reference's {REFERENCE_LARGE_MS:.0f} ms is {REFERENCE_LARGE_MS / middle:.1f} times that",
    ]


class _TimedSession(HighsSession):
    """A session that adds up the time in HiGHS's own runs."""

    total_s = 0.0

    def minimise(
        self,
        objective: np.ndarray,
        start: np.ndarray | None,
        gap: float,
        time_limit_s: float,
        *,
        presolve: bool = True,
    ) -> RunResult:
        result = super().minimise(objective, start, gap, time_limit_s, presolve=presolve)
        type(self).total_s += result.run_s
        return result


def milp() -> list[str]:
    """Compare the wall time of the exact choice with the time in HiGHS's own runs."""
    systems = {
        "specs/small": load_system(SPECS / "small"),
        "specs/large": load_system(SPECS / "large"),
        "specs/large, mixed": load_system(SPECS / "large").with_options(heterogeneous=True),
        "generated 100 x 20": generate_system(100, 20, 6, 1),
        "generated 1,000 x 50": generate_system(1000, 50, 14, 1),
    }
    lines = []

    def session(model: MilpModel) -> Session:
        return _TimedSession(model)

    for name, system in systems.items():
        problem = build_problem(find_candidates(system))
        _TimedSession.total_s = 0.0
        begin = time.perf_counter()
        solution = solve_milp(problem, session)
        wall = time.perf_counter() - begin
        limit = 2 * _TimedSession.total_s + 0.05
        lines.append(
            f"{name}: wall {wall * 1000:.0f} ms, HiGHS runs {_TimedSession.total_s * 1000:.0f} ms, "
            f"limit 2 x runs + 50 = {limit * 1000:.0f} ms, {solution.status}"
        )
    return lines


def scale() -> list[str]:
    """Time candidates from 5,000 to 500,000 pairs."""
    lines = []
    for servers in (100, 1000, 10_000):
        system = generate_system(servers, 50, 14, servers)
        begin = time.perf_counter()
        found = find_candidates(system)
        each = (time.perf_counter() - begin) / (servers * 50) * 1e6
        lines.append(
            f"{servers * 50:,} pairs ({len(found.table):,} candidates, median batch "
            f"{np.median(found.table.max_batch):.0f}): {each:.1f} us a pair, peak {_peak_mib():.0f} MiB"
        )
    return lines


def _end_to_end(servers: int, seed: int, tightness: float, name: str) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "system.json"
        write_document(generate_document(servers, 50, 14, seed, tightness), path)
        timings = Timings()
        begin = time.perf_counter()
        with timings.stage("read"):
            system = load_system(path)
        plan = solve(system, timings=timings)
        text = plan.to_json()
        total = time.perf_counter() - begin
    stages = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in timings.stages_s.items())
    gaps = [level.gap or 0.0 for level in plan.levels]
    line = (
        f"{name}: {total:.1f} s end to end ({stages}), {plan.status}, largest gap {max(gaps):.2g}, "
        f"value gap {plan.gap:.2g}, {len(plan.unserved)} unserved, {len(text) / 2**20:.1f} MiB of JSON, "
        f"peak {_peak_mib():.0f} MiB"
    )
    return [line]


def fleet_1000() -> list[str]:
    """Plan 1,000 servers x 50 accelerators from a file, everything fits."""
    return _end_to_end(1000, 1, 1.0, "1,000 x 50")


def fleet_10000() -> list[str]:
    """Plan 10,000 servers x 50 accelerators from a file, everything fits."""
    return _end_to_end(10_000, 1, 1.0, "10,000 x 50")


def scarce_1000() -> list[str]:
    """Plan 1,000 servers x 50 accelerators with half of the units."""
    lines = []
    for seed in (1, 2, 3):
        lines += _end_to_end(1000, seed, 2.0, f"1,000 x 50, half of the units, seed {seed}")
    return lines


def unlimited() -> list[str]:
    """Plan 2,000 servers x 20 accelerators without limits, mixed, under a limit of 1 s."""
    system = generate_system(2000, 20, 6, 1).with_options(unlimited=True, heterogeneous=True)
    timings = Timings()
    begin = time.perf_counter()
    plan = solve(system, time_limit_s=1.0, timings=timings)
    wall_s = time.perf_counter() - begin
    stages = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in timings.stages_s.items())
    return [f"unlimited mixed, 2,000 x 20: {wall_s:.2f} s ({stages}), {plan.status}"]


def _widths_of(explanation: Explanation) -> list[float]:
    """Return the width of each answer's interval, relative to the plan's value; infinity for service."""
    effects = [item.next_best.effect for item in explanation.servers if item.next_best]
    effects += [item.one_more for item in explanation.types if item.one_more]
    effects += [item.one_fewer for item in explanation.types if item.one_fewer]
    effects += [item.effect for item in explanation.targets]
    value = max(abs(explanation.plan.objective), 1e-9)
    intervals = [one.interval for one in effects]
    return [
        0.0 if one is None else (one.high - one.low) / value if one.level == VALUE else np.inf
        for one in intervals
    ]


def explained() -> list[str]:
    """Explain scarce mixed fleets of 30 to 100 servers, and specs/large with half of its units."""
    lines = []
    for servers, accelerators, tightness, limit_s, seeds in EXPLAINED:
        for seed in seeds:
            source = generate_system(servers, accelerators, min(accelerators, 14), seed, tightness)
            name = f"{servers} x {accelerators}, seed {seed}, tightness {tightness:g}"
            lines.append(_explained(name, source, limit_s))
    large = load_system(SPECS / "large")
    halved = large.with_capacity({name: units // 2 for name, units in large.capacity.items()})
    lines.append(_explained("specs/large, half of the units", halved, 38.0))
    return lines


def _explained(name: str, source: System, limit_s: float) -> str:
    begin = time.perf_counter()
    found = explain(source, heterogeneous=True, time_limit_s=limit_s)
    wall_s = time.perf_counter() - begin
    widths = _widths_of(found)
    exact = sum(width <= 2 * EXACT for width in widths)
    return (
        f"{name}: {wall_s:.1f} s; of {len(widths)} questions {exact} exact to 1e-4, "
        f"{len(found.unanswered)} repairs and shadow prices unanswered; plan {found.plan.status}"
    )


def scarce_choice() -> list[str]:
    """Plan scarce fleets of 1,000 servers x 50 accelerators, mixed and single, under a limit of 30 s."""
    lines = []
    for tightness, seeds in SCARCE:
        for seed in seeds:
            source = generate_system(1000, 50, 14, seed, tightness)
            for mixed in (True, False):
                begin = time.perf_counter()
                plan = solve(source, heterogeneous=mixed, time_limit_s=30.0)
                wall_s = time.perf_counter() - begin
                rates = ", ".join(
                    f"{level.value:,.1f} ({level.gap or 0:.1e})"
                    for level in plan.levels
                    if level.name.endswith("unserved rate")
                )
                kind = "mixed" if mixed else "single"
                lines.append(
                    f"tightness {tightness:g}, seed {seed}, {kind}: {wall_s:.1f} s, {plan.status}; "
                    f"unserved rates (gaps) {rates}; value {plan.objective:,.2f} ({plan.gap or 0:.1e})"
                )
    return lines


def startup() -> list[str]:
    """Time whole processes: help, and the plan of specs/small."""
    lines = []
    for arguments in (["--help"], ["solve", str(SPECS / "small")]):
        times = []
        for _ in range(7):
            begin = time.perf_counter()
            command = [sys.executable, "-m", "optimizer", *arguments]
            subprocess.run(command, check=True, capture_output=True)
            times.append(time.perf_counter() - begin)
        lines.append(f"inferplan {arguments[0]}: median {statistics.median(times):.2f} s of 7 processes")
    return lines


BENCHMARKS: dict[str, Callable[[], list[str]]] = {
    function.__name__: function
    for function in (
        candidates,
        milp,
        scale,
        fleet_1000,
        fleet_10000,
        scarce_1000,
        unlimited,
        explained,
        scarce_choice,
        startup,
    )
}


def main() -> None:
    """Run the benchmarks named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    names = parser.parse_args().names or list(BENCHMARKS)
    for name in names:
        # Not a pool of `multiprocessing`: its processes may not start others, as explanations do.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            for line in pool.submit(BENCHMARKS[name]).result():
                print(f"{name}: {line}", flush=True)


if __name__ == "__main__":
    main()
