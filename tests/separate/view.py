"""Accelerator types of separate servers."""

from collections.abc import Mapping, Sequence

from optimizer.features.separate.fields import apart_from
from optimizer.features.separate.uses import SeparateUse
from optimizer.schema.pools import Pool
from optimizer.spec.system import System


def separate_uses(system: System, pools: Mapping[str, Sequence[Pool]]) -> tuple[SeparateUse, ...]:
    """Return every pair of separate servers with its accelerator types."""

    def types(name: str) -> tuple[str, ...]:
        return tuple(sorted({system.accelerators[pool.accelerator].type for pool in pools.get(name, ())}))

    return tuple(
        SeparateUse(server=name, apart_from=other, types=types(name), other_types=types(other))
        for name, server in system.servers.items()
        if (other := apart_from(server)) is not None
    )
