"""Selects and formats the reasons why servers are not fully served."""

from collections.abc import Sequence
from dataclasses import dataclass

from optimizer.candidates import Rejection
from optimizer.limits.limit import Limit, Stock
from optimizer.limits.table import LIMITS
from optimizer.quantities import be, counted


@dataclass(frozen=True, slots=True)
class Need:
    """Amount of a limited item that replicas of a server on an accelerator need, and the available amount."""

    accelerator: str
    num_replicas: int
    limit: Limit
    item: str
    needed: float
    left: float
    """Remaining amount of the item."""
    amount: float
    """Total available amount of the item."""

    @property
    def missing(self) -> float:
        """Missing amount of the item; 0 or less if there is enough."""
        return self.needed - self.left


def nearest_need(options: Sequence[Sequence[Need]]) -> Need:
    """Return the need that leaves a server unserved: that of the first limit that all options exceed.

    If an option (candidate) is within all limits, return its first need.

    Args:
        options: needs of each candidate of the server, in the order of the limits.
    """
    # Limits in their order: candidates that exceed one cannot be rescued by a later one.
    left = list(options)
    for limit in LIMITS:
        of_limit = [[need for need in option if need.limit is limit] for option in left]
        worst = [max(needs, key=_order, default=None) for needs in of_limit]
        # Candidates that exceed this limit; if all do, it is the reason.
        short = [need for need in worst if need is not None and need.missing > 0]
        if len(short) == len(left):
            return min(short, key=_order)
        left = [option for option, need in zip(left, worst, strict=True) if need is None or need.missing <= 0]
    return min((option[0] for option in left if option), key=_order)


def _order(need: Need) -> tuple[float, float]:
    return need.missing, need.needed


MINIMUM = " (its minNumReplicas)"
STOPPED_UNLIMITED = "solver_stopped", "there are enough cards, but the solver stopped before it used them"
NO_SHARED_CARD = "capacity", "no card is left for it, neither a shared one nor one of its own"
"""Reason code and detail for a server that has only candidates on shared cards."""
NO_ACCELERATOR = "no_candidate", "there is no accelerator in the system"


def shortage_reason(need: Need, stock: Stock, *, for_least: bool, excluded: bool = False) -> tuple[str, str]:
    """Return reason code and detail for a server that has candidates.

    Args:
        need: need of the candidate that lacks least.
        stock: facts of the system for limits.
        for_least: whether the replicas are needed for the server's minimum instead of its load.
        excluded: whether the server was excluded because it runs and cannot be moved without stopping.
    """
    limit = need.limit.in_currency(stock.currency)
    verb = "takes" if need.num_replicas == 1 else "take"
    text = (
        f"{counted(need.num_replicas, 'replica')} on {need.accelerator}{MINIMUM * for_least} {verb} "
        f"{limit.amount_text(need.item, need.needed)}; "
    )
    left = f"{limit.number(need.left)} {be(need.left)} left"
    if need.missing <= 0 and excluded:
        return "blocked", f"{text}{left}, but it cannot be moved there without stopping"
    if need.missing <= 0:
        them = "it" if need.left == 1 else "them"
        return "solver_stopped", f"{text}{left}, but the solver stopped before it used {them}"
    why = limit.why_none(need.item, stock)
    amount = limit.number(need.amount)
    of_all = f"{limit.number(need.left)} of {amount} {be(need.left)} left"
    if limit.follows:
        of_all += f", {limit.number(need.missing)} {be(round(need.missing))} missing"
    return "capacity", text + (why or of_all)


def rejection_reason(nearest: Rejection, labels: set[str], accelerators: int) -> tuple[str, str]:
    """Return reason code and detail for a server without candidates.

    Args:
        nearest: the rejection with the smallest factor.
        labels: codes of all rejections; without `not_allowed` if there are others.
        accelerators: number of rejected accelerators.
    """
    reason = nearest.reason if len(labels) == 1 else "no_candidate"
    if nearest.value is None and len(labels) == 1:
        return reason, nearest.detail
    others = f" (the nearest of {accelerators} accelerators)" if accelerators > 1 else ""
    return reason, f"{nearest.accelerator}: {nearest.detail}{others}"
