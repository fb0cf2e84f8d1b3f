"""Changes of a system's loads: all by one factor, or each at random from a seed."""

from typing import Any

import numpy as np

from optimizer.schema import Route, Server
from optimizer.spec.arguments import checks_documents
from optimizer.spec.changes import SystemChange
from optimizer.spec.loads import rate_rpm, stated_loads, with_rate
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
    one token. The versions of a server vary together, and so do the members of a
    shared queue, under its name. Then a factor for the rate of each route is drawn in
    the same way; its lengths do not change.

    Raises:
        SpecError: a resulting rate or length is out of range.
    """
    low, high = np.array([RATE_FACTORS, TOKEN_FACTORS, TOKEN_FACTORS]).T
    names = sorted({server.shared_queue or server.name for server in system.spec.servers})
    factors = dict(zip(names, rng.uniform(low, high, size=(len(names), 3)).tolist(), strict=True))
    rates = dict(
        zip(system.routes, rng.uniform(low[0], high[0], size=len(system.routes)).tolist(), strict=True)
    )
    return system.with_items(
        *(
            with_rate(owner, rate_rpm(owner) * rates[owner.name])
            if isinstance(owner, Route)
            else with_changed_load(owner, _varied(owner, *factors[owner.shared_queue or owner.name]))
            for owner in stated_loads(system)
        )
    )


def _varied(server: Server, rate: float, in_factor: float, out_factor: float) -> dict[str, Any]:
    load = server.current.load
    if load.shapes:
        shapes = tuple(shape.scaled(in_factor, out_factor) for shape in load.shapes)
        return {"arrival_rate_rpm": rate_rpm(server) * rate, "shapes": shapes}
    return {
        "arrival_rate_rpm": rate_rpm(server) * rate,
        "in_tokens": load.in_tokens * in_factor,
        "out_tokens": max(load.out_tokens * out_factor, 1.0) if load.out_tokens else 0.0,
    }
