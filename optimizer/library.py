"""Studies as functions for programs and notebooks, with options as keywords, and their results as text.

Options are the fields of the requests in `optimizer.jobs`, so they match the command line and the HTTP
routes.
"""

import io
import os
from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any

from optimizer.errors import SpecError
from optimizer.fitting.options import FitOptions, MeasuredSetup, ServerSettings, Stated
from optimizer.fitting.profile import FittedProfile
from optimizer.jobs.fitting import fit_reports
from optimizer.jobs.horizons import HorizonOptions, horizon_of
from optimizer.jobs.simulating import SimulateOptions, repair_plan, simulate_plan
from optimizer.jobs.sweeping import SweepOptions, sweep_system
from optimizer.plan import Plan
from optimizer.profiles.deployment import Deployment
from optimizer.profiles.estimate import ProfileEstimate, estimate_profile, find_model, find_slice
from optimizer.render.terminal import Output, show
from optimizer.schema.messages import did_you_mean, validated
from optimizer.spec.arguments import checks_documents, type_name
from optimizer.spec.system import System
from optimizer.studies.horizon.horizon_document import Horizon
from optimizer.studies.simulation.simulation_document import RepairedPlan, Simulation
from optimizer.studies.sweep.sweep_document import Sweep


@checks_documents
def sweep(system: System, *vary: str, **options: Any) -> Sweep:
    """Plan a system over ranges of parameters; report cost, service by priority and binding limits.

    Args:
        vary: parameters with their values, such as ``load=0.5..1.5`` or ``count:H100=16..32``.
        options: flags of `inferplan sweep` with underscores, such as ``samples=100, load_cv=0.3``.

    Raises:
        SpecError: a variation or an option is invalid.
        SolverError: the solver failed.
    """
    request = validated(SweepOptions, {"vary": vary, **options})
    return sweep_system(request.applied(system), request)


@checks_documents
def simulate(system: System, plan: Plan | None = None, **options: Any) -> Simulation:
    """Simulate the pools of a plan request by request, and compare them with its predictions and targets.

    Args:
        plan: a plan of this system; None solves the system first.
        options: flags of `inferplan simulate` with underscores, such as ``requests=50_000, seed=2``.

    Raises:
        SpecError: the plan is not for the system, or an option is invalid.
        SolverError: a plan was needed, and the solver failed.
    """
    request = validated(SimulateOptions, options)
    if request.repair:
        raise SpecError("repair: not an option here, because it returns another plan; call optimizer.repair")
    return simulate_plan(request.applied(system), request, plan)


@checks_documents
def repair(system: System, **options: Any) -> RepairedPlan:
    """Plan a system, simulate the plan, and plan again until all pools meet their targets.

    Args:
        options: as for `simulate`.

    Raises:
        SpecError: an option is invalid.
        SolverError: the solver failed.
    """
    request = validated(SimulateOptions, options)
    return repair_plan(request.applied(system), request)


@checks_documents
def horizon(system: System, **options: Any) -> Horizon:
    """Plan loads that vary by the hour: cards to reserve for the entire time, and cards to rent in each hour.

    Args:
        system: the system; committed price tiers of its accelerators are offers that the plan can accept.
        options: flags of `inferplan horizon` with underscores: ``factors``, ``loads`` or ``trace``, and
            those of the optimizer.

    Raises:
        SpecError: an option is invalid, or the loads are missing.
        SolverError: the solver failed.
    """
    request = validated(HorizonOptions, options)
    return horizon_of(request.applied(system), request)


def estimate(model: str, accelerator: str, **settings: Any) -> ProfileEstimate:
    """Estimate token times and memory of a model from its architecture and the accelerator's data sheet.

    Args:
        model: a model name in the built-in catalogue, or the path of a config.json.
        accelerator: a name in the catalogue, optionally with a number of cards for tensor parallelism:
            ``4xH100``.
        settings: flags of `inferplan estimate` with underscores, such as ``in_tokens=1024, out_tokens=256``.

    Raises:
        SpecError: a name or a setting is unknown, or the model does not fit.
    """
    _check_names("estimate", settings, Deployment)
    card, tp = find_slice(accelerator, settings.pop("tp", None))
    return estimate_profile(find_model(model), card, Deployment(**settings, tp=tp))


def fit(*paths: str, **options: Any) -> FittedProfile:
    """Fit a profile to benchmark reports of one model on one accelerator.

    Args:
        paths: files of the reports.
        options: flags of `inferplan fit` with underscores, such as ``accelerator="H100"``.

    Raises:
        FitError: a report has an unknown format or is incomplete, or there are too few measurements.
        SpecError: a file cannot be read, or an option is unknown.
    """
    _check_names("fit", options, FitOptions, MeasuredSetup, ServerSettings, Stated)
    for path in paths:
        if not isinstance(path, str | os.PathLike):
            raise SpecError(f"fit: {type_name(path)} is no path; give each report as its own argument")
    own = _fields(options, FitOptions)
    own.setdefault("key", MeasuredSetup(**_fields(options, MeasuredSetup)))
    own.setdefault("stated", Stated(**_fields(options, Stated)))
    own.setdefault("settings", ServerSettings(**_fields(options, ServerSettings)))
    return fit_reports(paths, FitOptions(**own))


def _fields(options: Mapping[str, Any], model: Any) -> dict[str, Any]:
    return {name: options[name] for name in options.keys() & names_of(model)}


def names_of(model: Any) -> set[str]:
    """Return the names of a dataclass's fields."""
    return {item.name for item in fields(model)}


def _check_names(function: str, given: Mapping[str, Any], *models: Any) -> None:
    known = set().union(*map(names_of, models))
    for name in given:
        if name not in known:
            raise SpecError(f"{function}: {name}: unknown option{did_you_mean(name, sorted(known))}")


def to_text(answer: object, width: int = 0) -> str:
    """Return a result as text, with the tables that its command prints.

    Args:
        answer: a plan, or the result of a study, an estimate or a fit.
        width: maximum characters per line; 0 uses the environment variable COLUMNS, or 80 without it.

    Raises:
        SpecError: the value is not such a result.
    """
    name = type(answer).__name__
    if isinstance(answer, Plan):
        sections = [answer.to_section()]
    elif name in _SECTIONS:
        home, function = _SECTIONS[name]
        sections = getattr(import_module(f"optimizer.render.{home}"), function)(answer)
    else:
        raise SpecError(f"to_text: a {name} has no tables; give a plan or the answer of a study")
    text = io.StringIO()
    show(sections, text, Output(width=width, hint="to_text shows all with a larger width"))
    return text.getvalue().strip("\n")


_SECTIONS = {
    "Comparison": ("comparison_sections", "comparison_sections"),
    "Explanation": ("explanation_sections", "explanation_sections"),
    "Simulation": ("simulation_sections", "simulation_sections"),
    "Sweep": ("sweep_sections", "sweep_sections"),
    "Horizon": ("horizon_sections", "horizon_sections"),
    "ProfileEstimate": ("estimate_sections", "estimate_sections"),
    "FittedProfile": ("fit_sections", "fit_sections"),
}
"""Module and function that build the tables of a result, by the name of its class."""
