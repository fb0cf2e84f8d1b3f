"""Settings of an emulated fleet, and its limit on open files."""

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
    """Port of the router; replicas that run from the start have the next ports. 0: any free ports."""
    host: str = "127.0.0.1"
    """Host name or address to listen on."""
    speed: float = 1.0
    """Factor by which model time passes faster than real time."""
    share: float = 1.0
    """Fraction of the plan's replicas that run, at least one for each placement."""
    seed: int = 1
    startup_s: Mapping[str, float] = field(default_factory=lambda: {"": 0.0})
    """Start-up times by model or accelerator [s of model time]; the default has the name ""."""
    policy: Policy = "least"
    """Routing policy: how the router chooses a replica."""
    retries: int | None = None
    """Maximum number of further replicas tried if one rejects or fails a request; None: all."""
    cluster: ClusterTable = field(default_factory=ClusterTable)
    """Nodes of each accelerator; a replica on several nodes is a LeaderWorkerSet."""
    keys: tuple[Path, ...] = ()
    """Files with API keys; requests need one of these keys. Empty: requests need no key."""
    rate_limit_rps: float | None = None
    """Maximum rate of requests per API key, or per client address if there are no keys [1/s of model time].
    """

    def startup_of(self, model: str, accelerator: str) -> float:
        """Return the start-up time of a replica [s of model time]."""
        return self.startup_s.get(model, self.startup_s.get(accelerator, self.startup_s[""]))


def allow_files(count: int) -> None:
    """Raise the limit on open files of this process as far as the system allows.

    Each connection is a file.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = max(soft, count + 65_536)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
