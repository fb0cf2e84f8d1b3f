"""Leave out one part of the solver at a time: ``python tests/benchmarks/ablation.py [--limit S] [PART ...]``.

With ``--seeds``, the fleets are mixed ones of 1,000 x 50 with these seeds and two tightnesses, and the part
``single`` plans one pool a server. Every run is a process of its own whose time limit counts processor time,
so that other work on the machine does not decide. HiGHS looks at the wall clock; its limits are scaled by how
busy the machine is.
"""

import argparse
import multiprocessing
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from optimizer import find_candidates
from optimizer.generate import generate_system
from optimizer.milp import highs
from optimizer.milp.highs import HighsSession
from optimizer.milp.model import Session
from optimizer.solvers import compact, deadline, exact, lexicographic
from optimizer.solvers.branch_and_price import cuts, search
from optimizer.solvers.branch_and_price.search import LevelSearch
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.problem import Problem, build_problem
from optimizer.solvers.solution import Solution

FLEETS = (
    (30, 12, 91, 1.6),
    (36, 14, 95, 1.5),
    (40, 10, 23, 1.8),
    (40, 10, 62, 1.8),
    (1000, 50, 33, 1.4),
    (1000, 50, 42, 1.4),
    (1000, 50, 36, 2.0),
)
"""Servers, accelerators, seed and tightness of mixed fleets."""
TIGHT = (2.1, 1.6)
"""Tightness of the fleets of given seeds."""


def _nothing_fixed(weight: np.ndarray, _total: float) -> tuple[np.ndarray, np.ndarray]:
    nobody = np.zeros(len(weight), np.bool_)
    return nobody, nobody


def _equal_ranks(level: LevelSearch) -> np.ndarray:
    return np.zeros(len(level.pool.columns), np.int64)


def _all_columns(_level: LevelSearch, columns: np.ndarray) -> np.ndarray:
    return columns


def _core_once(level: LevelSearch, due: Deadline, *, only_complete: bool = False) -> None:
    level.solve_core(due, *search.FIRST_CORE)
    level.branch(due)
    level.solve_window(due, only_complete=only_complete)


def _nothing(*_arguments: Any, **_options: Any) -> None:
    return None


def _not_lean(session: HighsSession, model: Any, *, lean: bool = False) -> None:  # noqa: ARG001
    Session.__init__(session, model)
    session._lean = False


PARTS: dict[str, Callable[[], None]] = {
    "nothing": lambda: None,
    "single": lambda: None,
    "cuts": lambda: setattr(cuts, "ROUNDS", 0),
    "branching": lambda: setattr(LevelSearch, "branch", _nothing),
    "several open nodes": lambda: setattr(search, "MAX_NODES", 0),
    "heuristic": lambda: setattr(LevelSearch, "solve_core", _nothing),
    "heuristic after branching": lambda: setattr(LevelSearch, "run", _core_once),
    "larger heuristic after branching": lambda: setattr(search, "SECOND_CORE", search.FIRST_CORE),
    "smallest share of units first": lambda: setattr(LevelSearch, "_thrift_ranks", _equal_ranks),
    "dominance in the window": lambda: setattr(LevelSearch, "nondominated_columns", _all_columns),
    "subset sums": lambda: setattr(lexicographic, "fixed_by_subset_sum", _nothing_fixed),
    "compact model second": lambda: setattr(exact, "COMPACT_TO_SERVERS", 0),
    "HiGHS for proofs": lambda: setattr(HighsSession, "__init__", _not_lean),
    "column generation": lambda: setattr(exact, "_by_either", _compact_alone),
}
"""What leaves a part out, in a process of its own."""


def _compact_alone(problem: Problem, due: Deadline, _related: object) -> Solution:
    return compact.solve_milp(problem, partial(HighsSession, lean=True), due)


def _count_processor_time() -> None:
    """Let limits count processor time, and give HiGHS as much wall time as that takes at present."""
    clock: Any = SimpleNamespace(perf_counter=time.process_time)
    for module in (deadline, highs):
        setattr(module, "time", clock)  # noqa: B010  the modules do not export it
    begin, set_options = (time.perf_counter(), time.process_time()), highs._set

    def scaled(solver: Any, **options: Any) -> None:
        if "time_limit" in options:
            wall, core = time.perf_counter() - begin[0], time.process_time() - begin[1]
            ran = solver.getRunTime() if options["time_limit"] >= solver.getRunTime() else 0.0
            options["time_limit"] = ran + (options["time_limit"] - ran) * max(wall / max(core, 0.1), 1.0)
        set_options(solver, **options)

    setattr(highs, "_set", scaled)  # noqa: B010


def _measured(problem: Problem, part: str, limit_s: float, results: Any) -> None:
    _count_processor_time()
    PARTS[part]()
    begin = time.process_time()
    solution = exact._by_either(problem, Deadline.after(limit_s), None)
    rates = ", ".join(
        f"{level.value:,.1f} ({level.gap or 0:.1e})"
        for level in solution.levels
        if level.name.endswith("rate") and level.value
    )
    value = solution.level("value")
    results.put(
        f"{time.process_time() - begin:.1f} s, {solution.status}; unserved rates {rates or 0}; "
        f"value {value.value:,.2f} ({value.gap or 0:.1e})"
    )


def main() -> None:
    """Measure the parts named, or all, each on every fleet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--limit", type=float, default=8.0, help="processor time of a plan [s]")
    parser.add_argument("--seeds", type=int, nargs="*", default=[], help="1,000 x 50 of these seeds")
    arguments = parser.parse_args()
    context = multiprocessing.get_context("fork")
    chosen = [(1000, 50, seed, tightness) for tightness in TIGHT for seed in arguments.seeds]
    for servers, accelerators, seed, tightness in chosen or FLEETS:
        system = generate_system(servers, accelerators, min(accelerators, 14), seed, tightness)
        for part in arguments.parts or PARTS:
            mixed = system.with_options(heterogeneous=part != "single")
            problem = build_problem(find_candidates(mixed))
            results = context.Queue()
            context.Process(target=_measured, args=(problem, part, arguments.limit, results)).start()
            name = f"{servers} x {accelerators}, seed {seed}, tightness {tightness:g}"
            print(f"{name}, without {part}: {results.get()}", flush=True)


if __name__ == "__main__":
    main()
