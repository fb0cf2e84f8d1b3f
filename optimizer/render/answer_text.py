"""Sentences that begin every surface: the cost of a plan as an interval, and the load that is not served."""

from optimizer.plan import Plan
from optimizer.quantities import counted, counted_of, parts_text, requests_text
from optimizer.render.money import Money
from optimizer.studies.estimates import EstimatePrice
from optimizer.studies.shortage import Shortage, WayOut
from optimizer.text import some_names

TYPICAL = "typical"
"""Word for plans at the middle of estimated token times (`middle`)."""
IF_TYPICAL = f"if token times are {TYPICAL} (the middle of their estimates)"


def load_text(factor: float | None) -> str:
    """Return the factor on all loads, to follow a cost or a load; empty without one."""
    return "" if factor in {None, 1} else f" at {factor:g} times the stated load"


def cost_interval_text(plan: Plan, price: EstimatePrice | None, load_factor: float | None = None) -> str:
    """Return the cost of a plan: ``129.20 USD/h, 72.80 if token times are typical (the middle of their …)``.

    Args:
        plan: the plan.
        price: its cautious and typical cost; None if it has no estimated token times, or if its typical cost
            was not requested.
        load_factor: factor on all loads, which is stated; None without one.
    """
    money = Money.of(plan)
    text = f"{money.text(plan.total_cost_cents_per_h)}{load_text(load_factor)}"
    if price is None:
        return text
    if price.middle is None:
        return f"{text} ({TYPICAL}: not computed in time)"
    typical = price.middle.total_cost_cents_per_h
    if price.same_service:
        return f"{text}, {money.amount(typical)} {IF_TYPICAL}"
    served = counted_of(price.middle.served_in_full, price.servers, "server")
    return f"{text}; {money.text(typical)} {IF_TYPICAL}, with {served} served in full"


def measure_first_text(plan: Plan, price: EstimatePrice | None) -> str:
    """Return what to measure first, with the saving at typical token times; empty if nothing saves."""
    if price is None or not price.measure_first:
        return ""
    first = price.measure_first[0]
    saving = Money.of(plan).text(first.saving_cents_per_h)
    return f"Measure first: {first.server} (saves {saving} if its measured times are {TYPICAL})"


def not_served_text(shortage: Shortage, load_factor: float | None = None) -> str:
    """Return the load that is not served: ``Not served: 42.0 of 248.8 requests/s (5 servers)``."""
    servers = counted(shortage.servers, "server")
    if not shortage.unserved_rps:
        return f"Not served in full: {servers} of {shortage.of_servers:,}, without load"
    _, unserved, load = parts_text(shortage.load_rps - shortage.unserved_rps, shortage.load_rps)
    return f"Not served: {requests_text(unserved, load)} ({servers}){load_text(load_factor)}"


def way_out_text(way: WayOut, money: Money) -> str:
    """Return the cards that would serve everything: ``Serve all: +16 H100 +28 H200, 263.20 … in total``."""
    cards = " ".join(f"+{count:,} {name}" for name, count in way.added.items()) or "other options"
    if way.beyond:
        return f"No number of cards serves {some_names(way.beyond)} in full"
    return f"Serve all: {cards}, {money.text(way.cost_cents_per_h)} in total"


def shortage_text(shortage: Shortage, money: Money, load_factor: float | None = None) -> str:
    """Return the load that is not served, and the cards that would serve it, in two sentences."""
    way_out = "" if shortage.way_out is None else f" {way_out_text(shortage.way_out, money)}."
    return f"{not_served_text(shortage, load_factor)}.{way_out}"
