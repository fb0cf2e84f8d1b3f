"""Candidates for routes whose router is off: the large server gets the requests of all kinds.

With a router, the large server is sized for the most demanding mix that the router can send to it. Without
one, its mean request can be shorter, so its maximum rate can be higher.
"""

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from optimizer.arrays import frozen
from optimizer.candidates.arrays import SystemArrays
from optimizer.candidates.table import Candidates, CandidateTable
from optimizer.features.routes.streams import undivided_servers
from optimizer.spec.system import System


def offered(system: System, arrays: SystemArrays, size: Callable[[System], Candidates]) -> CandidateTable:
    """Return candidates of large servers that serve all requests of their routes.

    Args:
        system: the system.
        arrays: the same system as arrays.
        size: function that returns the candidates of a system.
    """
    alone = undivided_servers(system.servers, system.routes.values())
    table = size(replace(system, servers=MappingProxyType(alone), routes=MappingProxyType({}))).table
    index = np.array([arrays.server_names.index(name) for name in alone], np.int64)
    return replace(table, server=frozen(index[table.server]))
