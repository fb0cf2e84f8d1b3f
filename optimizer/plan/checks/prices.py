"""Costs of a plan, recomputed: price tiers, commitments, rented services, and reserves."""

import math

from optimizer.spec.schema import Accelerator, External, Load, Server
from optimizer.spec.system import System
from optimizer.spec.versions import Version
from optimizer.units import MINUTES_PER_HOUR

MILLION = 1e6


def cost_with_tiers(item: Accelerator, used: int) -> float:
    """Return the cost of `used` accelerators [cents/h], by their price tiers, the cheapest first.

    Committed units are always paid for, so using them costs nothing more.
    """
    paid, left = [tier.units * tier.cost_cents_per_h for tier in item.tiers if tier.committed], used
    units = sorted((0.0 if tier.committed else tier.cost_cents_per_h, tier.units) for tier in item.tiers)
    for price, most in units:
        paid.append(price * min(most, left))
        left -= min(most, left)
    return math.fsum([*paid, left * item.cost_cents_per_h])


def rent(external: External, load: Load, load_rpm: float) -> float:
    """Return the cost of the tokens of an hour at a service's prices [cents/h]."""
    requests = load_rpm * MINUTES_PER_HOUR
    sent = requests * load.in_tokens / MILLION * external.in_per_million
    return sent + requests * load.out_tokens / MILLION * external.out_per_million


def rent_of_a_million(external: External, load: Load, load_rpm: float) -> float:
    """Return the cost of a service per million tokens [cents]; 0 without tokens."""
    tokens = load_rpm * MINUTES_PER_HOUR * (load.in_tokens + load.out_tokens)
    return rent(external, load, load_rpm) / (tokens / MILLION) if tokens else 0.0


def headroom_of(system: System, server: Server) -> float:
    """Return the headroom share of a server: its own, or else that of its class, or else that of the options.

    Offline work has only its own headroom.
    """
    if server.deadline is not None:
        return server.headroom_share or 0.0
    own = server.headroom_share
    if own is None:
        own = system.service_classes[server.service_class].headroom_share
    share = system.options.headroom_share if own is None else own
    if isinstance(server, Version) and server.roll_back and server.weight:
        return (1 + share) / server.weight - 1  # it must be able to take the load of all versions
    return share


def enough_probability(count: int, needed: int, there: float) -> float:
    """Return the probability that at least `needed` of `count` replicas are available, by summation."""
    if there >= 1:
        return float(count >= needed)
    log_there, log_gone = math.log(there), math.log1p(-there)
    chances = (
        math.exp(
            math.lgamma(count + 1) - math.lgamma(j + 1) - math.lgamma(count - j + 1)
            + j * log_there + (count - j) * log_gone
        )
        for j in range(needed, count + 1)
    )  # fmt: skip
    return math.fsum(chances)
