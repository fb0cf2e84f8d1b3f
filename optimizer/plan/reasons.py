"""Why a server is not served in full, in words: facts become the reason and the detail of the plan."""

from dataclasses import dataclass

from optimizer.candidates import Rejection
from optimizer.quantities import be, counted


@dataclass(frozen=True, slots=True)
class Shortage:
    """What a server would take of an accelerator, and what there is of it."""

    accelerator: str
    type: str
    num_replicas: int
    units: int
    """Units that the replicas take."""
    left: int
    """Units that the plan leaves."""
    limit: int
    """Units that exist."""
    is_listed: bool
    """Whether the system says how many exist."""
    for_least: bool
    """Whether it is not the load but the server's least number of replicas that asks for them."""
    excluded: bool = False
    """Whether the server was not to be served: it runs, and cannot be brought there without stopping."""


LEAST = " (its minNumReplicas)"
STOPPED_UNLIMITED = "solver_stopped", "there are enough cards, but the solver stopped before it used them"
NO_ACCELERATOR = "no_candidate", "there is no accelerator in the system"


def shortage_reason(found: Shortage) -> tuple[str, str]:
    """Return reason and detail where replicas on some accelerator would serve a server, but do not run."""
    verb = "takes" if found.num_replicas == 1 else "take"
    text = (
        f"{counted(found.num_replicas, 'replica')} on {found.accelerator}{LEAST * found.for_least} {verb} "
        f"{counted(found.units, 'card')} of {found.type}; "
    )
    if found.units <= found.left and found.excluded:
        left = f"{found.left:,} {be(found.left)} left"
        return "blocked", f"{text}{left}, but it cannot be moved there without stopping"
    if found.units <= found.left:
        left = f"{found.left:,} {be(found.left)} left"
        return (
            "solver_stopped",
            f"{text}{left}, but the solver stopped before it used {'it' if found.left == 1 else 'them'}",
        )
    if not found.is_listed:
        return "capacity", text + f"{found.type} is not listed in count, so there are none"
    return "capacity", text + f"{found.left:,} of {found.limit:,} {be(found.left)} left"


def rejection_reason(nearest: Rejection, labels: set[str], accelerators: int) -> tuple[str, str]:
    """Return reason and detail where no accelerator would serve a server.

    Args:
        nearest: the rejection that is nearest to being none.
        labels: the reasons of all, but for those that are not allowed where others are.
        accelerators: how many were rejected.
    """
    reason = nearest.reason if len(labels) == 1 else "no_candidate"
    if nearest.value is None and len(labels) == 1:
        return reason, nearest.detail
    others = f" (the nearest of {accelerators} accelerators)" if accelerators > 1 else ""
    return reason, f"{nearest.accelerator}: {nearest.detail}{others}"
