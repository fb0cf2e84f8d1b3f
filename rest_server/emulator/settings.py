"""Settings of an emulated fleet, and the limit of open files."""

import resource
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from optimizer.render.cluster_table import ClusterTable

Policy = Literal["least", "round-robin", "random", "sticky"]


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """Settings of an emulated fleet."""

    port: int
    """Port of the router; replicas that run from the start have the next ones. 0: any free ports."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    speed: float = 1.0
    """Model time per time of the machine."""
    share: float = 1.0
    """Share of the plan's replicas, at least one a placement."""
    seed: int = 1
    startup_s: Mapping[str, float] = field(default_factory=lambda: {"": 0.0})
    """Start-up times by model or accelerator, and of the others under "" [s of model time]."""
    policy: Policy = "least"
    """Choice of replicas by the router."""
    retries: int | None = None
    """Further replicas for a request that one rejects or fails; None: all."""
    cluster: ClusterTable = field(default_factory=ClusterTable)
    """Nodes of each accelerator; a replica on several of them is a LeaderWorkerSet."""
    keys: tuple[Path, ...] = ()
    """Files of API keys, of which requests need one; none: no keys."""
    rate_limit_rps: float | None = None
    """Largest rate of requests of a key, or without keys of a client's address [1/s of model time]."""

    def startup_of(self, model: str, accelerator: str) -> float:
        """Return the start-up time of a replica [s of model time]."""
        return self.startup_s.get(model, self.startup_s.get(accelerator, self.startup_s[""]))


def allow_files(count: int) -> None:
    """Let the process open as many files as the system allows; each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = max(soft, count + 65_536)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
