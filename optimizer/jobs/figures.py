"""Show a figure of a system."""

from dataclasses import dataclass, field

from optimizer.jobs.requests import LoadChange, RequestError
from optimizer.spec.system import System
from optimizer.studies.figures.document import Figure
from optimizer.studies.figures.kinds import PLAN_KINDS, make_figure


@dataclass(frozen=True, slots=True)
class FigureRequest:
    """What to show: a kind of figure of a system, perhaps after a change of its load."""

    system: System
    kind: str
    server: str | None = None
    accelerator: str | None = None
    load: LoadChange = field(default_factory=LoadChange)
    backend: str = "highs"


def show_figure(request: FigureRequest) -> Figure:
    """Return a figure as data; after a change of the load with what was planned before it.

    Raises:
        SpecError: a kind, a server or an accelerator does not exist, or does not go with the kind.
        SolverError: a plan was needed, and the solver failed.
    """
    for name in ("server", "accelerator"):
        if getattr(request, name) is not None and request.kind in PLAN_KINDS:
            raise RequestError(name, f"{request.kind!r} shows all servers; remove it")
    after = request.load.applied_to(request.system)
    return make_figure(
        after,
        request.kind,
        server=request.server,
        accelerator=request.accelerator,
        before=None if after is request.system else request.system,
        backend=request.backend,
    )
