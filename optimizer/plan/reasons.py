"""Why a server is not served in full, in words: facts become the reason and the detail of the plan."""

from collections.abc import Sequence
from dataclasses import dataclass

from optimizer.candidates import Rejection
from optimizer.limits.limit import Limit, Stock
from optimizer.limits.table import LIMITS
from optimizer.quantities import be, counted


@dataclass(frozen=True, slots=True)
class Need:
    """What replicas of a server on an accelerator would use of something limited, and what there is of it."""

    accelerator: str
    num_replicas: int
    limit: Limit
    item: str
    needed: float
    left: float
    """What the plan leaves."""
    amount: float
    """How much there is."""

    @property
    def missing(self) -> float:
        """How much more there would have to be left; 0 or less if there is enough."""
        return self.needed - self.left


def nearest_need(options: Sequence[Sequence[Need]]) -> Need:
    """Return what keeps a server from being served: of the first limit that none of its options keeps to.

    If some option keeps to all of them, it is the first of its needs.

    Args:
        options: for each candidate of the server what it needs, in the order of the limits.
    """
    left = list(options)
    for limit in LIMITS:
        mine = [[need for need in option if need.limit is limit] for option in left]
        worst = [max(needs, key=_order, default=None) for needs in mine]
        short = [need for need in worst if need is not None and need.missing > 0]
        if len(short) == len(left):
            return min(short, key=_order)
        left = [option for option, need in zip(left, worst, strict=True) if need is None or need.missing <= 0]
    return min((option[0] for option in left if option), key=_order)


def _order(need: Need) -> tuple[float, float]:
    return need.missing, need.needed


LEAST = " (its minNumReplicas)"
STOPPED_UNLIMITED = "solver_stopped", "there are enough cards, but the solver stopped before it used them"
NO_ACCELERATOR = "no_candidate", "there is no accelerator in the system"


def shortage_reason(found: Need, stock: Stock, *, for_least: bool, excluded: bool = False) -> tuple[str, str]:
    """Return reason and detail where replicas on some accelerator would serve a server, but do not run.

    Args:
        found: what they need.
        stock: what the system says of its limits.
        for_least: whether it is not the load but the server's least number of replicas that asks for them.
        excluded: whether the server was not to be served: it runs, and cannot be brought there without
            stopping.
    """
    verb = "takes" if found.num_replicas == 1 else "take"
    text = (
        f"{counted(found.num_replicas, 'replica')} on {found.accelerator}{LEAST * for_least} {verb} "
        f"{found.limit.amount_text(found.item, found.needed)}; "
    )
    left = f"{found.limit.number(found.left)} {be(found.left)} left"
    if found.missing <= 0 and excluded:
        return "blocked", f"{text}{left}, but it cannot be moved there without stopping"
    if found.missing <= 0:
        them = "it" if found.left == 1 else "them"
        return "solver_stopped", f"{text}{left}, but the solver stopped before it used {them}"
    why = found.limit.why_none(found.item, stock)
    amount = found.limit.number(found.amount)
    of_all = f"{found.limit.number(found.left)} of {amount} {be(found.left)} left"
    return "capacity", text + (why or of_all)


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
