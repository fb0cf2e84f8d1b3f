"""The table of all studies: each is a module in this package and has an entry here."""

from typing import TYPE_CHECKING, Any

from optimizer.jobs.study import StudyEntry

if TYPE_CHECKING:
    from optimizer.jobs.explaining import ExplainOptions
    from optimizer.jobs.horizons import HorizonOptions
    from optimizer.jobs.sweeping import SweepOptions
    from optimizer.studies.explanation.explanation_document import Explanation
    from optimizer.studies.horizon.horizon_document import Horizon
    from optimizer.studies.sweep.sweep_document import Sweep


class Studies:
    """All studies of a system; the name of an entry is that of its routes and of the clients' methods.

    Clients inherit from this class, so the type of an entry is that of their method. If it is `Any`, the
    clients define the method themselves.
    """

    explain: "StudyEntry[ExplainOptions, Explanation]" = StudyEntry(
        "explaining",
        "explain why a plan is as it is, the value of cards and targets, and what would repair it",
    )
    simulate: Any = StudyEntry(
        "simulating",
        "simulate the pools of a plan request by request, and check them against their targets",
    )
    sweep: "StudyEntry[SweepOptions, Sweep]" = StudyEntry(
        "sweeping",
        "plan over ranges of loads, cards, prices and options, and find the cost of being safe",
    )
    horizon: "StudyEntry[HorizonOptions, Horizon]" = StudyEntry(
        "horizons",
        "plan loads by the hour: what to reserve for the whole time, and what to rent",
    )
    report: Any = StudyEntry("reporting", "write a report of a plan: HTML, Markdown, CSV")
    figure: Any = StudyEntry("figures", "draw a plan, a queue, a cost curve, … as SVG, PNG or PDF", "plot")


LOCAL_STUDIES: dict[str, StudyEntry[Any, Any]] = {
    "replay": StudyEntry(
        "replaying",
        "replay past loads through planning and stabilisation, to see the effect of each rule",
        "replay",
    )
}
"""Studies that read files and are only commands, by name."""
STUDIES: dict[str, StudyEntry[Any, Any]] = {
    name: entry for name, entry in vars(Studies).items() if isinstance(entry, StudyEntry)
}
"""All studies by name, in the order in which help and OpenAPI list them."""
