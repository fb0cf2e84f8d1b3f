"""inferplan: plans the accelerator, replicas and batch limit of every server in an LLM inference fleet.

>>> from optimizer import load_system, solve
>>> plan = solve(load_system("specs/small"), unlimited=True)
>>> plan.total_cost_cents_per_h
35924.5
"""

from typing import TYPE_CHECKING

from optimizer.lazy import names_of_modules

if TYPE_CHECKING:
    from optimizer.candidates import Candidates, CandidateTable, Rejection, SizingMemo, find_candidates
    from optimizer.errors import (
        AnalysisError,
        FitError,
        IncompletePlanError,
        InferplanError,
        MissingExtraError,
        SolverError,
        SpecError,
    )
    from optimizer.fitting.profile import FittedProfile
    from optimizer.kinds.replicas import (
        LatencyTargets,
        Replica,
        ReplicaPerformance,
        ReplicaSizing,
        analyze_replicas,
        size_replicas,
    )
    from optimizer.library import estimate, fit, horizon, repair, simulate, sweep, to_text
    from optimizer.pipeline import Timings, solve
    from optimizer.plan import Plan, Pool, Unserved, load_plan, verify
    from optimizer.profiles.estimate import ProfileEstimate
    from optimizer.render.pages import render_report
    from optimizer.render.plots import draw
    from optimizer.schema import SystemSpec
    from optimizer.spec.system import System, load_system
    from optimizer.studies.comparison.compare import compare
    from optimizer.studies.comparison.comparison_document import Comparison
    from optimizer.studies.explanation.explain import explain
    from optimizer.studies.explanation.explanation_document import Explanation
    from optimizer.studies.figures.figure_document import Figure
    from optimizer.studies.figures.making import make_figure
    from optimizer.studies.horizon.horizon_document import Horizon
    from optimizer.studies.load_changes import scale_loads, vary_loads
    from optimizer.studies.report import Report, make_report
    from optimizer.studies.simulation.simulation_document import RepairedPlan, Simulation
    from optimizer.studies.sweep.sweep_document import Sweep

__version__ = "1.0.0"

__all__ = [
    "AnalysisError",
    "CandidateTable",
    "Candidates",
    "Comparison",
    "Explanation",
    "Figure",
    "FitError",
    "FittedProfile",
    "Horizon",
    "IncompletePlanError",
    "InferplanError",
    "LatencyTargets",
    "MissingExtraError",
    "Plan",
    "Pool",
    "ProfileEstimate",
    "Rejection",
    "RepairedPlan",
    "Replica",
    "ReplicaPerformance",
    "ReplicaSizing",
    "Report",
    "Simulation",
    "SizingMemo",
    "SolverError",
    "SpecError",
    "Sweep",
    "System",
    "SystemSpec",
    "Timings",
    "Unserved",
    "analyze_replicas",
    "compare",
    "draw",
    "estimate",
    "explain",
    "find_candidates",
    "fit",
    "horizon",
    "load_plan",
    "load_system",
    "make_figure",
    "make_report",
    "render_report",
    "repair",
    "scale_loads",
    "simulate",
    "size_replicas",
    "solve",
    "sweep",
    "to_text",
    "vary_loads",
    "verify",
]

__getattr__, __dir__ = names_of_modules(
    __name__,
    {
        "optimizer.candidates": (
            "Candidates",
            "CandidateTable",
            "Rejection",
            "SizingMemo",
            "find_candidates",
        ),
        "optimizer.errors": (
            "AnalysisError",
            "FitError",
            "IncompletePlanError",
            "InferplanError",
            "MissingExtraError",
            "SolverError",
            "SpecError",
        ),
        "optimizer.fitting.profile": ("FittedProfile",),
        "optimizer.kinds.replicas": (
            "LatencyTargets",
            "Replica",
            "ReplicaPerformance",
            "ReplicaSizing",
            "analyze_replicas",
            "size_replicas",
        ),
        "optimizer.library": ("estimate", "fit", "horizon", "repair", "simulate", "sweep", "to_text"),
        "optimizer.pipeline": ("Timings", "solve"),
        "optimizer.plan": ("Plan", "Pool", "Unserved", "load_plan", "verify"),
        "optimizer.profiles.estimate": ("ProfileEstimate",),
        "optimizer.render.pages": ("render_report",),
        "optimizer.render.plots": ("draw",),
        "optimizer.schema": ("SystemSpec",),
        "optimizer.spec.system": ("System", "load_system"),
        "optimizer.studies.comparison.compare": ("compare",),
        "optimizer.studies.comparison.comparison_document": ("Comparison",),
        "optimizer.studies.explanation.explain": ("explain",),
        "optimizer.studies.explanation.explanation_document": ("Explanation",),
        "optimizer.studies.figures.figure_document": ("Figure",),
        "optimizer.studies.figures.making": ("make_figure",),
        "optimizer.studies.horizon.horizon_document": ("Horizon",),
        "optimizer.studies.load_changes": ("scale_loads", "vary_loads"),
        "optimizer.studies.report": ("Report", "make_report"),
        "optimizer.studies.simulation.simulation_document": ("RepairedPlan", "Simulation"),
        "optimizer.studies.sweep.sweep_document": ("Sweep",),
    },
)
