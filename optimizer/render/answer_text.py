"""Sentences that begin every surface: the cost of a plan as an interval, and the load that is not served."""

from collections.abc import Iterator

from optimizer.plan import Plan
from optimizer.quantities import counted, quantity
from optimizer.render.money import Money
from optimizer.studies.estimates import EstimatePrice
from optimizer.studies.shortage import Shortage, WayOut
from optimizer.text import some_names

TYPICAL = "typical"
"""Word for plans at the middle of estimated token times (`middle`)."""
IF_TYPICAL = "if token times are in the middle of their estimates"


def cost_interval_text(plan: Plan, price: EstimatePrice | None) -> str:
    """Return the cost of a plan: ``129.20 USD/h, 72.80 if token times are in the middle of their estimates``.

    Args:
        plan: the plan.
        price: its cautious and typical cost; None if it has no estimated token times, or if its typical cost
            was not requested.
    """
    money = Money.of(plan)
    text = money.text(plan.total_cost_cents_per_h)
    if price is None:
        return text
    if price.middle is None:
        return f"{text} ({TYPICAL}: not computed in time)"
    typical = price.middle.total_cost_cents_per_h
    if price.same_service:
        return f"{text}, {money.amount(typical)} {IF_TYPICAL}"
    served = f"{price.middle.served_in_full:,} of {counted(price.servers, 'server')}"
    return f"{text}; {IF_TYPICAL}, {served} are served in full, for {money.text(typical)}"


def measure_first_text(plan: Plan, price: EstimatePrice | None) -> str:
    """Return what to measure first, with the saving at typical token times; empty if nothing saves."""
    if price is None or not price.measure_first:
        return ""
    first = price.measure_first[0]
    saving = Money.of(plan).text(first.saving_cents_per_h)
    return f"Measure first: {first.server} (saves {saving} at {TYPICAL} token times)"


def not_served_text(shortage: Shortage) -> str:
    """Return the load that is not served: ``Not served: 40.9 of 248.8 requests/s (5 servers)``."""
    servers = counted(shortage.servers, "server")
    if not shortage.unserved_rps:
        return f"Not served in full: {servers} of {shortage.of_servers:,}, without load"
    requests = f"{_rate(shortage.unserved_rps)} of {_rate(shortage.load_rps)} requests/s"
    return f"Not served: {requests} ({servers})"


def way_out_text(way: WayOut, money: Money) -> str:
    """Return the cards that would serve everything: ``Serve all for 263.20 USD/h: +16 H100 +28 H200``."""
    cards = " ".join(f"+{count:,} {name}" for name, count in way.added.items()) or "other options"
    if way.beyond:
        return f"No number of cards serves {some_names(way.beyond)} in full"
    return f"Serve all for {money.text(way.cost_cents_per_h)}: {cards}"


def shortage_text(shortage: Shortage, money: Money) -> str:
    """Return the load that is not served, and the cards that would serve it, in two sentences."""
    return " ".join(f"{sentence}." for sentence in _sentences(shortage, money))


def _sentences(shortage: Shortage, money: Money) -> Iterator[str]:
    yield not_served_text(shortage)
    if shortage.way_out is not None:
        yield way_out_text(shortage.way_out, money)


def _rate(rps: float) -> str:
    return f"{rps:,.1f}" if rps >= 1 else quantity(rps, 2)
