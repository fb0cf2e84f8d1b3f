"""inferplan: which accelerator, how many replicas and what batch for every server of an inference fleet.

>>> from optimizer import load_system, solve
>>> plan = solve(load_system("specs/small"), unlimited=True)
>>> plan.total_cost_cents_per_h
35924.5
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optimizer.candidates import Candidates, CandidateTable, Rejection, find_candidates
    from optimizer.errors import AnalysisError, IncompletePlanError, InferplanError, SolverError, SpecError
    from optimizer.pipeline import Timings, solve
    from optimizer.plan import Plan, Pool, Unserved, verify
    from optimizer.replica import (
        LatencyTargets,
        Replica,
        ReplicaPerformance,
        ReplicaSizing,
        analyze_replicas,
        size_replicas,
    )
    from optimizer.spec.schema import SystemSpec
    from optimizer.spec.system import System, load_system
    from optimizer.study.explain import explain
    from optimizer.study.explanation import Explanation

__version__ = "0.1.0"

__all__ = [
    "AnalysisError",
    "CandidateTable",
    "Candidates",
    "Explanation",
    "IncompletePlanError",
    "InferplanError",
    "LatencyTargets",
    "Plan",
    "Pool",
    "Rejection",
    "Replica",
    "ReplicaPerformance",
    "ReplicaSizing",
    "SolverError",
    "SpecError",
    "System",
    "SystemSpec",
    "Timings",
    "Unserved",
    "analyze_replicas",
    "explain",
    "find_candidates",
    "load_system",
    "size_replicas",
    "solve",
    "verify",
]

_HOMES = {
    "optimizer.candidates": ("CandidateTable", "Candidates", "Rejection", "find_candidates"),
    "optimizer.errors": (
        "AnalysisError",
        "IncompletePlanError",
        "InferplanError",
        "SolverError",
        "SpecError",
    ),
    "optimizer.pipeline": ("Timings", "solve"),
    "optimizer.plan": ("Plan", "Pool", "Unserved", "verify"),
    "optimizer.replica": (
        "LatencyTargets",
        "Replica",
        "ReplicaPerformance",
        "ReplicaSizing",
        "analyze_replicas",
        "size_replicas",
    ),
    "optimizer.spec.schema": ("SystemSpec",),
    "optimizer.spec.system": ("System", "load_system"),
    "optimizer.study.explain": ("explain",),
    "optimizer.study.explanation": ("Explanation",),
}


def __getattr__(name: str) -> Any:
    """Load a public name on its first use, so that importing the package costs nothing."""
    import importlib

    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'optimizer' has no attribute {name!r}")
