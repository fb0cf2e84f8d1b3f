"""Settings of an emulated fleet, and its limit on open files."""

import resource
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from optimizer.errors import SpecError
from optimizer.jobs.flag import Flag
from optimizer.jobs.requests import PlanOptions
from optimizer.units import SHARE

Policy = Literal["least", "round-robin", "random", "sticky"]


class FleetSettings(PlanOptions):
    """Settings of an emulated fleet, which are the flags of `emulate`; times are model times."""

    port: Annotated[int, Flag("P")] = Field(8100, ge=0, le=65_535)
    """Port of the router; replicas have the next ones (8100); 0: any free ports."""
    host: Annotated[str, Flag("HOST")] = "127.0.0.1"
    """Address to listen on (127.0.0.1)."""
    plan: Annotated[Path | None, Flag("FILE")] = None
    """Plan to emulate, as `solve -o` writes it; default: solve the system."""
    speed: Annotated[float, Flag("X")] = Field(1.0, gt=0, le=100)
    """Speed of the replicas' clocks relative to real time (1); latencies are accurate up to 3."""
    share: Annotated[float, Flag("F", SHARE)] = Field(1.0, gt=0, le=1)
    """Share of the replicas to run, at least one of each pool (1)."""
    seed: Annotated[int, Flag("S")] = Field(1, ge=0, lt=2**63)
    """Random seed of texts, of output lengths that a request leaves open, and of stages (1)."""
    startup: Annotated[str, Flag("S[,NAME=S]")] = "0"
    """Start-up time of replicas [s], which can differ by model or accelerator: 30,llama_70b=120 (0)."""
    route: Annotated[Policy, Flag("POLICY")] = "least"
    """Policy by which the router chooses a replica: least, round-robin, random or sticky (least)."""
    retries: Annotated[int | None, Flag("N")] = Field(None, ge=0, le=10_000)
    """Maximum further replicas that the router tries if one rejects or fails a request; default: all."""
    keys_file: Annotated[Path | None, Flag("FILE")] = None
    """File of API keys, as for `serve`; requests to the router need one of them (no keys)."""
    rate_limit: Annotated[float | None, Flag("X")] = Field(None, gt=0, le=1e6)
    """Maximum requests per second of each key, or of each address without keys; others get status 429 (any).
    """
    scalable: bool = False
    """Serve the part of the Kubernetes API that scales workloads at the router's port; scaling then starts
    and stops replicas.
    """
    cluster: Annotated[Path | None, Flag("FILE")] = None
    """Table of the nodes of each accelerator; replicas on several nodes become LeaderWorkerSets."""
    write_tokenizer: Annotated[Path | None, Flag("DIR")] = None
    """Write a tokenizer with one token per word to DIR, for benchmark clients."""

    @cached_property
    def startup_s(self) -> Mapping[str, float]:
        """Start-up times by model or accelerator [s of model time]; the default has the name "".

        Raises:
            SpecError: a part of the text is not a time.
        """
        return _startup_times(self.startup)

    def startup_of(self, model: str, accelerator: str) -> float:
        """Return the start-up time of a replica [s of model time]."""
        return self.startup_s.get(model, self.startup_s.get(accelerator, self.startup_s[""]))


def _startup_times(text: str) -> dict[str, float]:
    """Parse start-up times such as `30,llama=120`: by name of a model or an accelerator [s].

    The default has the name "".

    Raises:
        SpecError: a part is not a time.
    """
    startup_times = {"": 0.0}
    for part in text.split(","):
        key, _, value = part.rpartition("=")
        try:
            seconds = float(value)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds < 1e6:
            raise SpecError(f"--startup: {part!r} must be seconds, or NAME=SECONDS, such as 30,llama_70b=120")
        startup_times[key] = seconds
    return startup_times


def allow_files(count: int) -> None:
    """Raise the limit on open files of this process as far as the system allows.

    Each connection is a file.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = max(soft, count + 65_536)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
