"""Settings of the service, from arguments, environment variables or defaults, in this order.

The environment variable of a setting is ``INFERPLAN_`` and its name in capitals; host and port are also read
from the reference's ``INFERNO_HOST`` and ``INFERNO_PORT``.
"""

import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from optimizer.errors import SpecError
from optimizer.jobs.flag import Flag
from optimizer.parallel import core_count
from optimizer.schema.messages import did_you_mean, problem_text

PREFIX = "INFERPLAN_"
_SERVICE_LINK = re.compile(rf"{PREFIX}(SERVICE_|PORT_\d)")
_Count = Annotated[int, Field(ge=1, le=1_000_000)]


def _workers() -> int:
    """Return the default number of solver workers: one per available core, plus one.

    The additional worker keeps all cores busy while requests and responses are transferred.
    """
    return 1 + core_count()


def _study_workers() -> int:
    """Return the default number of study workers: half the cores, so that small requests always get some."""
    return max(1, core_count() // 2)


class Settings(BaseSettings):
    """Settings of the service."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        use_attribute_docstrings=True,
    )

    host: Annotated[str, Flag("H")] = Field(
        "127.0.0.1", min_length=1, validation_alias=AliasChoices("INFERPLAN_HOST", "INFERNO_HOST")
    )
    """Address to listen on (127.0.0.1)."""
    port: Annotated[int, Flag("P")] = Field(
        8080, ge=0, le=65535, validation_alias=AliasChoices("INFERPLAN_PORT", "INFERNO_PORT")
    )
    """Port to listen on; 0 takes a free one (8080)."""
    workers: Annotated[int, Flag("N")] = Field(1, ge=1, le=256)
    """Processes that answer requests; more than one only if stateless (1)."""
    stateful: Annotated[bool, Flag(short="-F")] = False
    """Keep a fleet that requests modify; otherwise each request carries its system."""
    state: Annotated[Path | None, Flag("FILE")] = None
    """File that keeps the fleet of a stateful service across restarts; created if missing."""
    stabilise: Annotated[Path | Literal["recommended"] | None, Flag("RULES", const="recommended")] = None
    """Damp changes of desired replicas, by the rules in a file or by default the recommended rules;
    `inferplan replay` shows their effect."""
    stale_after_s: Annotated[float, Flag("S", name="stale_after")] = Field(
        300.0, gt=0, le=1e9, allow_inf_nan=False
    )
    """Age at which a plan becomes stale: targets are then refused [s] (300)."""
    metric_aliases: Annotated[
        tuple[Literal["inferno", "wva"], ...], NoDecode, Flag("NAME", name="metric_alias")
    ] = ()
    """Also export the desired replicas in /metrics as inferno_… or wva_desired_replicas; in the environment
    separated by commas."""
    web: Annotated[bool, Flag()] = False
    """Serve the page for analysts under /web; needs the extra `web`."""
    protect_state: Annotated[bool, Flag()] = False
    """Do not let /optimizeOne replace the fleet of a stateful service."""
    unserved: Annotated[Literal["keep", "fail", "omit"], Flag("A")] = "keep"
    """Answer of /optimizeOne and /optimize for servers that cannot be served: keep: their current allocation;
    fail: 404 for all; omit: nothing, so that the reference's actuator stops them (keep)."""
    queue_at_root: Annotated[bool, Flag(name="queue")] = False
    """Serve the queue-analysis routes at the root too, not only under /queue."""
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    """Host names that clients can use for the service, ``*`` for any; separated by commas in the environment.
    Default: with a loopback address the local names of this machine, otherwise any."""
    insecure: Annotated[bool, Flag()] = False
    """Listen on a non-loopback address without API keys."""
    api_key_files: Annotated[tuple[Path, ...], NoDecode, Flag("FILE", name="api_keys")] = ()
    """Files of API keys, in lines of KEY or SCOPES KEY, with scopes of read,solve,write; separated as in PATH
    in the environment. Without files, requests need no key."""
    max_body_bytes: int = Field(4 * 2**20, ge=1, le=2**30)
    """Maximum size of a request body [bytes]."""
    max_bodies_bytes: int = Field(32 * 2**20, ge=1, le=2**40)
    """Maximum total size of the request bodies in each worker [bytes]."""
    body_timeout_s: float = Field(20.0, gt=0, le=86_400, allow_inf_nan=False)
    """Time limit for receiving the body of a request [s]."""
    write_timeout_s: float = Field(30.0, gt=0, le=86_400, allow_inf_nan=False)
    """Time limit for a client to read an answer [s]."""
    max_solves: int = Field(default_factory=_workers, ge=1, le=1024)
    """Maximum number of concurrent solves in each worker."""
    solver_processes: int = Field(default_factory=_workers, ge=0, le=1024)
    """Processes that solve for each worker, so that the worker itself stays free to answer; 0: threads."""
    max_studies: int = Field(default_factory=_study_workers, ge=1, le=1024)
    """Maximum number of concurrent explanations, reports, comparisons and figures in each worker."""
    sizing_memo_rows: int = Field(2**15, ge=0, le=10_000_000)
    """Replicas whose sizing each process remembers, of some 400 bytes each; 0: none."""
    max_waiting: int = Field(128, ge=0, le=1_000_000)
    """Maximum number of requests in each worker that wait to be solved; the same limit applies to studies."""
    request_timeout_s: float = Field(60.0, gt=0, le=86_400, allow_inf_nan=False)
    """Maximum time from a request to its answer, including waiting [s]."""
    max_servers: _Count = 2_000
    """Maximum number of servers of a system."""
    max_accelerators: _Count = 500
    """Maximum number of accelerators of a system, and of accelerator types with a capacity."""
    max_models: _Count = 2_000
    """Maximum number of models of a system, and of service classes."""
    max_profiles: _Count = 100_000
    """Maximum number of profiles of a system."""
    max_batch: _Count = 8_192
    """Maximum batch limit in a document [requests]."""

    @field_validator("api_key_files", "metric_aliases", mode="before")
    @classmethod
    def _parts(cls, value: Any, info: ValidationInfo) -> Any:
        """Split a value from an environment variable into its parts."""
        between = os.pathsep if info.field_name == "api_key_files" else ","
        return tuple(filter(None, value.split(between))) if isinstance(value, str) else value

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _hosts(cls, value: Any) -> Any:
        """Split host names from an environment variable, and convert them to lower case."""
        names = value.split(",") if isinstance(value, str) else value
        return tuple(name.strip().strip("[]").lower() for name in names if name.strip())

    def environment(self) -> dict[str, str]:
        """Return environment variables from which another process reads the same settings."""
        texts = {name: str(value) for name, value in self}
        texts["allowed_hosts"] = ",".join(self.allowed_hosts)
        texts["state"] = "" if self.state is None else str(self.state.absolute())
        texts["stabilise"] = "" if self.stabilise is None else str(self.stabilise)
        texts["metric_aliases"] = ",".join(self.metric_aliases)
        texts["api_key_files"] = os.pathsep.join(str(path.absolute()) for path in self.api_key_files)
        return {variable_of(name): text for name, text in texts.items()}

    @property
    def max_solve_s(self) -> float:
        """Maximum time of a solve [s]; the rest of a request's time is for sizing, checking and writing."""
        return 0.9 * self.request_timeout_s

    def is_loopback(self) -> bool:
        """Return whether only this machine can reach the address to listen on."""
        return _is_loopback(self.host.strip("[]"))

    def accepts_host(self, name: str) -> bool:
        """Return whether clients can use a host name, given without port and brackets and in any case."""
        if self.allowed_hosts:
            return "*" in self.allowed_hosts or name.lower() in self.allowed_hosts
        return not self.is_loopback() or _is_loopback(name)

    def check(self) -> None:
        """Check that the settings do not contradict each other or expose the service.

        Raises:
            SpecError: the settings are invalid; the message states the fix.
        """
        if self.workers > 1 and self.stateful:
            raise SpecError(
                f"--workers {self.workers}: a stateful service holds its fleet in one process; "
                "remove --workers or --stateful"
            )
        if self.workers > 1 and self.web:
            raise SpecError(
                f"--workers {self.workers}: the page needs one process for all visitors; "
                "remove --workers or --web"
            )
        if self.protect_state and not self.stateful:
            raise SpecError(
                "--protect-state: without --stateful there is no fleet; add --stateful, or remove it"
            )
        if self.state is not None and not self.stateful:
            raise SpecError(
                f"--state {self.state}: without --stateful there is no fleet to keep; add --stateful"
            )
        if not (self.is_loopback() or self.api_key_files or self.insecure):
            raise SpecError(
                f"--host {self.host}: other machines can reach this address and there are no API keys; "
                "give --api-keys FILE, or --insecure to allow every client"
            )


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return name.lower() == "localhost"


def load_settings(**given: object) -> Settings:
    """Return the settings from arguments, environment variables or defaults, in this order.

    Raises:
        SpecError: a value is out of range; the message names the argument or the environment variable.
    """
    try:
        return Settings(**given)  # type: ignore[arg-type]
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        name = str(problem["loc"][0])
        shown = f"--{name.replace('_', '-')}" if name in given else variable_of(name)
        raise SpecError(f"{shown}: {problem_text(problem)}") from None


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Return a warning for each environment variable that looks like a setting but is none.

    Variables that Kubernetes sets for a service of the name `inferplan` are ignored.
    """
    known = [variable_of(name) for name in Settings.model_fields]
    given = (name for name in environment if name.upper().startswith(PREFIX) and name.upper() not in known)
    return [
        f"{name}: no setting has this name{did_you_mean(name, known)}; it is ignored"
        for name in sorted(given)
        if not _SERVICE_LINK.match(name)
    ]


def variable_of(name: str) -> str:
    """Return the environment variable of a setting, given its name or the variable itself."""
    return name if name.isupper() else f"{PREFIX}{name.upper()}"
