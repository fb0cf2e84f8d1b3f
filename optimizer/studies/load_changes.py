"""Changes of a system's loads: all by one factor, or each at random from a seed."""

import numpy as np

from optimizer.schema import Load, Route
from optimizer.spec.arguments import checks_documents
from optimizer.spec.changes import SystemChange
from optimizer.spec.system import System, with_changed_load

RATE_FACTORS = (0.5, 1.5)
"""Range of the uniform random factors on arrival rates."""
TOKEN_FACTORS = (0.8, 1.2)
"""Range of the uniform random factors on the mean input and output lengths."""


@checks_documents
def scale_loads(system: System, factor: float) -> System:
    """Return a copy of a system whose arrival rates are all multiplied by a factor.

    Raises:
        SpecError: a resulting rate is out of range.
    """
    return SystemChange("load", value=factor).applied_to(system)


@checks_documents
def vary_loads(system: System, rng: np.random.Generator) -> System:
    """Return a copy of a system whose arrival rates and mean token lengths have independent random factors.

    The factors are independent: uniform on [0.5, 1.5) for the rate, on [0.8, 1.2) for the input and for the
    output length, drawn in this order, server by server in the order of their names. Outputs have at least
    one token. The versions of a server vary together. Then a factor for the rate of each route is drawn in
    the same way; its lengths do not change.

    Raises:
        SpecError: a resulting rate or length is out of range.
    """
    low, high = np.array([RATE_FACTORS, TOKEN_FACTORS, TOKEN_FACTORS]).T
    servers = system.wholes
    factors = rng.uniform(low, high, size=(len(servers), 3))
    changed = system.with_servers(
        {
            name: with_changed_load(server, _varied(server.current.load, *map(float, row)))
            for (name, server), row in zip(servers.items(), factors, strict=True)
        }
    )
    others = [owner for owner in system.owners if isinstance(owner, Route)]
    rates = rng.uniform(low[0], high[0], size=len(others)).tolist()
    return changed.with_owners(
        owner.model_copy(update={"arrival_rate_rpm": owner.arrival_rate_rpm * rate})
        for owner, rate in zip(others, rates, strict=True)
    )


def _varied(load: Load, rate: float, in_factor: float, out_factor: float) -> dict[str, float]:
    return {
        "arrival_rate_rpm": load.arrival_rate_rpm * rate,
        "in_tokens": load.in_tokens * in_factor,
        "out_tokens": max(load.out_tokens * out_factor, 1.0) if load.out_tokens else 0.0,
    }
