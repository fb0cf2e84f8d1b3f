"""Electrical power of a plan, from the accelerators' power curves at the utilisation of the pools.

Equation numbers refer to ``docs/math.md``.
"""

from optimizer.plan import Pool
from optimizer.spec.schema import Power, Server
from optimizer.spec.system import System


def is_known(power: Power) -> bool:
    """Say whether a power curve is given: any of its powers is above zero."""
    return power.idle_w > 0 or power.full_w > 0 or power.mid_power_w > 0


def accelerator_power_w(power: Power, utilization: float) -> float:
    """Return the power of one accelerator at a utilisation of 0 … 1 [W] (eq. 56).

    Two straight pieces that meet at the inflection point. Without such a point inside the curve (no power
    given for it, or its utilisation is 0 or 1) there is one straight piece from idle to full.
    """
    middle = power.mid_utilization
    if power.mid_power_w == 0 or not 0 < middle < 1:
        return power.idle_w + (power.full_w - power.idle_w) * utilization
    if utilization <= middle:
        return power.idle_w + (power.mid_power_w - power.idle_w) * utilization / middle
    return power.mid_power_w + (power.full_w - power.mid_power_w) * (utilization - middle) / (1 - middle)


def pool_power_w(system: System, server: Server, pool: Pool) -> float | None:
    """Return the power of a pool at its utilisation [W], none where no power curve is given (eq. 57)."""
    power = system.accelerators[pool.accelerator].power
    if not is_known(power):
        return None
    slices = pool.num_replicas * system.profiles[server.model, pool.accelerator].acc_count
    return slices * accelerator_power_w(power, pool.utilization)
