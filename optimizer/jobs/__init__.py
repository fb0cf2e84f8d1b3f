"""One function per user job: the command line and the service parse, call one of these, and render.

The rules of a job stand here once. What contradicts itself in a request is a `RequestError` in terms of the
fields of this module; the command line says it in terms of its flags, the service in terms of its documents.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optimizer.candidates import find_candidates
    from optimizer.jobs.comparing import CompareOptions, CompareRequest, compare_plans
    from optimizer.jobs.documents import check_documents, check_text, start_document, verify_plan
    from optimizer.jobs.estimating import estimate_replica
    from optimizer.jobs.figures import FigureRequest, show_figure
    from optimizer.jobs.fitting import add_profile, fit_reports, predict_points, show_fit
    from optimizer.jobs.replaying import ReplayRequest, replay_loads
    from optimizer.jobs.requests import LoadScenario, PlanOptions, RequestError
    from optimizer.jobs.simulating import RepairRequest, SimulateRequest, repair_plan, simulate_plan
    from optimizer.jobs.sweeping import SweepRequest, sweep_system
    from optimizer.kinds.replicas import analyze_replicas, size_replicas
    from optimizer.kinds.simulated import simulate_replica
    from optimizer.pipeline import Timings, solve
    from optimizer.simulation.replicas import Effort
    from optimizer.studies.explanation.explain import explain
    from optimizer.studies.overload import find_overload
    from optimizer.studies.reports.report import make_report

__all__ = [
    "CompareOptions",
    "CompareRequest",
    "Effort",
    "FigureRequest",
    "LoadScenario",
    "PlanOptions",
    "RepairRequest",
    "ReplayRequest",
    "RequestError",
    "SimulateRequest",
    "SweepRequest",
    "Timings",
    "add_profile",
    "analyze_replicas",
    "check_documents",
    "check_text",
    "compare_plans",
    "estimate_replica",
    "explain",
    "find_candidates",
    "find_overload",
    "fit_reports",
    "make_report",
    "predict_points",
    "repair_plan",
    "replay_loads",
    "show_figure",
    "show_fit",
    "simulate_plan",
    "simulate_replica",
    "size_replicas",
    "solve",
    "start_document",
    "sweep_system",
    "verify_plan",
]

_HOMES = {
    "optimizer.candidates": ("find_candidates",),
    "optimizer.jobs.comparing": ("CompareOptions", "CompareRequest", "compare_plans"),
    "optimizer.jobs.documents": ("check_documents", "check_text", "start_document", "verify_plan"),
    "optimizer.jobs.estimating": ("estimate_replica",),
    "optimizer.jobs.figures": ("FigureRequest", "show_figure"),
    "optimizer.jobs.fitting": ("add_profile", "fit_reports", "predict_points", "show_fit"),
    "optimizer.jobs.replaying": ("ReplayRequest", "replay_loads"),
    "optimizer.jobs.requests": ("LoadScenario", "RequestError", "PlanOptions"),
    "optimizer.jobs.simulating": ("RepairRequest", "SimulateRequest", "repair_plan", "simulate_plan"),
    "optimizer.jobs.sweeping": ("SweepRequest", "sweep_system"),
    "optimizer.pipeline": ("Timings", "solve"),
    "optimizer.kinds.replicas": ("analyze_replicas", "size_replicas"),
    "optimizer.simulation.replicas": ("Effort",),
    "optimizer.studies.explanation.explain": ("explain",),
    "optimizer.studies.overload": ("find_overload",),
    "optimizer.studies.reports.report": ("make_report",),
    "optimizer.kinds.simulated": ("simulate_replica",),
}


def __getattr__(name: str) -> Any:
    """Load a job on its first use: a command waits for its own alone."""
    import importlib

    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'optimizer.jobs' has no attribute {name!r}")
