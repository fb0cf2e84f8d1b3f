"""Measure the time of each planning stage on generated systems: ``python tests/benchmarks/stages.py --help``.

Each size is measured in a process of its own, without caches.
"""

import argparse
import multiprocessing
import resource
import statistics
import sys
from dataclasses import dataclass

from optimizer.candidates import find_candidates
from optimizer.generate import generate_system
from optimizer.pipeline import Timings, solve
from optimizer.schema.files import parse_part
from optimizer.spec.system import join_parts

MAX_TYPES = 14


@dataclass(frozen=True, slots=True)
class Measurement:
    """Planning times and results for several systems of one size."""

    servers: int
    accelerators: int
    columns: int
    stages_ms: dict[str, float]
    """Median time of each stage [ms]."""
    gap: float
    """Largest relative gap of the transition cost over the systems."""
    service_gap: float
    """Largest relative gap of an unserved rate over the systems."""
    proved: int
    """Number of plans that were proved within the gap of the options."""
    complete: int
    """Number of plans that serve every server in full."""
    repeats: int
    peak_memory_mib: float


@dataclass(frozen=True, slots=True)
class FleetSize:
    """Size and options of the generated systems."""

    servers: int
    accelerators: int
    tightness: float = 1.0
    """Scarcity of cards: 1 if cards are about as many as needed, 2 if they are half of that."""
    mixed: bool = False
    """Whether a server can run on several accelerators."""


def measure(fleet: FleetSize, repeats: int) -> Measurement:
    """Measure the planning times of generated systems of one size in a new process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measured, (fleet, repeats))


def _measured(fleet: FleetSize, repeats: int) -> Measurement:
    runs: list[dict[str, float]] = []
    columns, gaps, service_gaps, complete, proved = [], [], [0.0], 0, 0
    for seed in range(repeats):
        types = min(fleet.accelerators, MAX_TYPES)
        made = generate_system(fleet.servers, fleet.accelerators, types, seed, fleet.tightness)
        made = made.with_options(heterogeneous=fleet.mixed)
        text = made.to_spec().model_dump_json(by_alias=True)
        timings = Timings()
        with timings.stage("read"):
            system = join_parts([parse_part(text)])
        plan = solve(system, timings=timings)
        runs.append(timings.stages_s)
        columns.append(len(find_candidates(system).table))
        gaps.append(plan.gap or 0.0)
        service_gaps += [level.gap or 0.0 for level in plan.levels if level.name.endswith("unserved rate")]
        complete += plan.complete
        proved += plan.status == "optimal"
    scale = 1.0 if sys.platform == "darwin" else 1024.0
    return Measurement(
        servers=fleet.servers,
        accelerators=fleet.accelerators,
        columns=round(statistics.median(columns)),
        stages_ms={name: statistics.median(run[name] for run in runs) * 1000 for name in runs[0]},
        gap=max(gaps),
        service_gap=max(service_gaps),
        proved=proved,
        complete=complete,
        repeats=repeats,
        peak_memory_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 2**20,
    )


def _size(text: str) -> tuple[int, int]:
    servers, _, accelerators = text.partition("x")
    return int(servers), int(accelerators)


def main() -> None:
    """Print the median time of each stage, and the gaps, for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=_size, action="append", help="servers x accelerators, such as 100x20")
    parser.add_argument("--repeats", type=int, default=3, help="systems of each size")
    parser.add_argument("--tightness", type=float, default=1.0, help="1: cards as needed, 2: half of that")
    parser.add_argument("--mixed", action="store_true", help="let a server run on several accelerators")
    given = parser.parse_args()
    for servers, accelerators in given.size or [(15, 6), (30, 20), (100, 20)]:
        fleet = FleetSize(servers, accelerators, given.tightness, given.mixed)
        found = measure(fleet, given.repeats)
        stages = ", ".join(f"{name} {time:,.1f}" for name, time in found.stages_ms.items())
        print(f"{found.servers} x {found.accelerators}, {found.columns:,} columns: {stages} [ms]")
        text = f"{found.complete} of {found.repeats} complete, {found.proved} proved"
        gaps = f"largest gap {found.gap:.2%}, of service {found.service_gap:.2%}"
        print(f"  {gaps}, {text}, {found.peak_memory_mib:,.0f} MiB")


if __name__ == "__main__":
    main()
