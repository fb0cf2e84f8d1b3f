"""Configuration of the control loop, a document in YAML or JSON."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, TypeAdapter
from pydantic_core import PydanticCustomError

from optimizer.documents import Document, In, Name, Seconds, Url
from optimizer.errors import SpecError
from optimizer.schema.files import plain_value, read_text
from optimizer.schema.messages import json_type, validated
from optimizer.stabilisation.forecast import ForecastSettings
from optimizer.stabilisation.rules import FOR_COUNTS, Rules
from optimizer.units import SHARE

MIN_LEASE_PERIODS = 2
"""Minimum duration of the Lease [periods], because it is renewed once in each cycle."""
LabelName = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]


class ScrapeSource(Document):
    """Source of measurements that reads `/metrics` of the replicas directly."""

    kind: Literal["scrape"]
    """Type of the source: `scrape`."""
    url: Url
    """Address that lists the replicas in the format of Prometheus' HTTP service discovery."""
    server_label: LabelName = Field("server", alias="serverLabel")
    """Label that contains the name of the server."""


class PrometheusSource(Document):
    """Source of measurements that queries a Prometheus server, which scrapes the replicas."""

    kind: Literal["prometheus"]
    """Type of the source: `prometheus`."""
    url: Url
    """Address of the Prometheus server."""
    server_label: LabelName = Field("server", alias="serverLabel")
    """Label that contains the name of the server."""
    selector: str = ""
    """Label matchers that select the metrics of the replicas, such as `namespace="serving"`."""
    gateway_label: LabelName | None = Field(None, alias="gatewayLabel")
    """Label of a gateway's metrics that contains the name of the server, or of a model that only one server
    has. The gateway then counts arrivals; otherwise they are derived from the replicas.
    """
    stale_s: Seconds = Field(60.0, alias="staleAfter")
    """Age of a replica's last value from which it counts as not reporting [s]; at least two scrape intervals.
    """
    token_file: Path | None = Field(None, alias="tokenFile", strict=False)
    """File with a bearer token for Prometheus, relative to the working directory."""


class WorkloadTarget(Document):
    """Workload that runs a server on an accelerator, if its name is not the default."""

    server: Name
    """Name of the server."""
    accelerator: Name
    """Name of the accelerator."""
    name: Name
    """Name of the workload."""
    kind: Literal["Deployment", "LeaderWorkerSet"] = "Deployment"
    """Kind of the workload."""
    namespace: Name | None = None
    """Namespace of the workload; default: that of the configuration."""


class KubernetesTarget(Document):
    """Kubernetes cluster whose workloads the loop scales."""

    url: Url | None = None
    """Address of the API server; default: that of the pod's service account, else of the kubeconfig."""
    namespace: Name = "serving"
    """Namespace of the workloads."""
    field_manager: Name = Field("inferplan-loop", alias="fieldManager")
    """Field manager under which the loop sets the number of replicas."""
    lease: str = Field("inferplan-loop", max_length=253)
    """Name of the Lease that ensures that only one loop acts; empty: no Lease."""
    lease_s: Seconds = Field(60.0, alias="leaseDuration")
    """Time after which another loop can take over the Lease [s]."""
    identity: Name | None = None
    """Name of the loop as holder of the Lease, before a random suffix that the state file keeps; default: the
    host name, which in a cluster is the name of the pod.
    """
    reference_labels: bool = Field(default=False, alias="referenceLabels")
    """Whether the workloads are the Deployments with llm-inferno's labels: `inferno.server.managed` is
    `true`, `inferno.server.name` and `inferno.server.allocation.accelerator` name the server and its
    accelerator.
    """
    workloads: tuple[WorkloadTarget, ...] = Field((), strict=False)
    """Workloads whose names differ from those that `inferplan manifests` gives them."""


class DriftSettings(Document):
    """Settings for comparing measured token times and TTFTs with the profiles."""

    limit: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Relative difference of token times from which a profile counts as drifted; twice this for TTFTs."""
    span_s: Seconds = Field(300.0, alias="span")
    """Time constant of the average over measurements [s]."""
    refit: Literal["propose", "apply"] = "propose"
    """What happens if a profile has drifted. `propose`: state factors for its parameters; `apply`: plan with
    them.
    """


class RemotePlanner(Document):
    """A stateful service that plans and stabilises instead of the loop."""

    url: Url
    """Address of the service."""
    key_file: Path | None = Field(None, alias="keyFile", strict=False)
    """File with an API key that has the write scope, relative to the working directory."""


def _source(raw: object) -> object:
    """Read a source by its kind, so that the path of an error has no name of a class."""
    kinds: dict[str, type[Document]] = {"scrape": ScrapeSource, "prometheus": PrometheusSource}
    source = kinds.get(str(raw.get("kind"))) if isinstance(raw, dict) else None
    return raw if source is None else source.model_validate(raw)


def _forecast(raw: object) -> object:
    """Read a forecast, so that an error is about the one of the two types that was meant."""
    if isinstance(raw, dict):
        return ForecastSettings.model_validate(raw)
    if raw != "none" and not isinstance(raw, ForecastSettings):
        text = "must be 'none' or an object with keys, not {value}"
        raise PydanticCustomError("forecast", text, {"value": json_type(raw)})
    return raw


def _one_or_each(kind: Any) -> BeforeValidator:
    """Return a validator of one value, or of an object with one value for each name.

    Errors are then about the one of the two types that was meant.
    """
    one, each = TypeAdapter(kind), TypeAdapter(dict[Name, kind])
    return BeforeValidator(
        lambda raw: raw if raw is None else (each if isinstance(raw, dict) else one).validate_python(raw)
    )


QueueKind = Literal["common", "own"]
Routing = Literal["leastLoaded", "random"]
DEFAULT_STARTUP_S = 120.0


class LoopConfig(Document):
    """Configuration of the control loop."""

    system: Annotated[str, Field(min_length=1)]
    """System to plan: a file or a folder, relative to this document, or `sample:NAME`."""
    source: Annotated[ScrapeSource | PrometheusSource, Field(discriminator="kind"), BeforeValidator(_source)]
    """Source of the measurements."""
    kubernetes: KubernetesTarget | None = None
    """Cluster to scale; absent: nothing is scaled."""
    planner: RemotePlanner | None = None
    """Service that plans and stabilises; absent: the loop does so itself."""
    period_s: Seconds = Field(15.0, alias="period")
    """Time from the start of one cycle to the start of the next [s]."""
    window_s: Seconds = Field(60.0, alias="window")
    """Length of the time window in which requests are counted [s]."""
    late_cost: Annotated[float, Field(ge=0, le=10_000)] = Field(20.0, alias="lateCost")
    """Cost of a request that is late because it waits, in costs of serving one request; 0: waiting requests
    get no replicas.
    """
    drain_s: Seconds | None = Field(None, alias="drain")
    """Without effect, because `lateCost` replaced it [s]."""
    queue: Annotated[QueueKind | Mapping[str, QueueKind] | None, _one_or_each(QueueKind)] = None
    """Whether all replicas of a server serve one queue (`common`), or each has its own; one value, or one
    for each server. Default: common for shared queues, and if a gateway counts arrivals; otherwise own.
    """
    routing: Annotated[Routing | Mapping[str, Routing], _one_or_each(Routing)] = "leastLoaded"
    """How requests are routed to the replicas of a server; one value, or one for each server."""
    coverage: Annotated[float, In(SHARE, gt=0, le=1)] = 0.9
    """Minimum fraction of a server's replicas that must report; their load is then scaled up to all replicas.
    """
    variation: bool = True
    """Whether the variation of token lengths is also measured, for servers whose queue model uses it."""
    scale_to_zero: bool = Field(default=False, alias="scaleToZero")
    """Whether a server without traffic can lose its last replica."""
    startup: Annotated[float | Mapping[str, float], _one_or_each(Seconds)] = DEFAULT_STARTUP_S
    """Time that a replica needs to become ready [s]: one, or one for each accelerator (others: 120 s)."""
    forecast: Annotated[ForecastSettings | Literal["none"], BeforeValidator(_forecast)] = ForecastSettings()
    """Settings for forecasting arrival rates, or `none`. Plans use the larger of forecast and measured rate.
    """
    drift: DriftSettings = DriftSettings()
    """Settings for comparing token times with the profiles."""
    rules: Rules = FOR_COUNTS
    """Stabilisation rules. Default: the recommended rules without `scaleDownLimit`; replicas for a backlog
    then leave at once, and others soon after a significant fall of the load. A server without a measured
    load always keeps its replicas.
    """
    port: Annotated[int, Field(ge=1, le=65_535)] | None = None
    """Port for `/metrics` and `/healthz`; absent: no port."""
    host: Name = "127.0.0.1"
    """Address on which the port listens."""
    reference_routes: bool = Field(default=False, alias="referenceRoutes")
    """Whether the port, on a loopback address, also has the routes of llm-inferno's control loop."""

    @property
    def applied_rules(self) -> Rules:
        """Stabilisation rules in use; they always keep the replicas of a server without a measured load."""
        given = {"hold_missing_load": True, "noise": None, "startup_s": self.longest_startup_s}
        return self.rules.model_copy(update=given)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Settings that are valid, but have no effect or are probably not meant, with the advice."""
        texts = {
            f"drain: it has no effect, because lateCost ({self.late_cost:g}) replaced it; remove it": (
                self.drain_s is not None
            ),
            "rules.noise: it has no effect, because the loop's rates are not smoothed again; remove it": (
                not self.releases_early and self.rules.noise is not None
            ),
            "scaleToZero: without source.gatewayLabel no request for a server without replicas is seen, so "
            "it stays at zero until someone starts a replica; let a gateway count arrivals": (
                self.scale_to_zero and not self._has_gateway
            ),
        }
        return tuple(text for text, applies in texts.items() if applies)

    @property
    def _has_gateway(self) -> bool:
        return isinstance(self.source, PrometheusSource) and self.source.gateway_label is not None

    @property
    def releases_early(self) -> bool:
        """Whether replicas leave without delay after a backlog, and soon after a significant fall."""
        return "rules" not in self.model_fields_set

    @property
    def forecast_settings(self) -> ForecastSettings | None:
        """Settings of the forecast; None for no forecast."""
        return None if self.forecast == "none" else self.forecast

    def startup_of(self, accelerator: str) -> float:
        """Return the start-up time of a replica on an accelerator [s]."""
        return float(_given(self.startup, accelerator) or DEFAULT_STARTUP_S)

    @property
    def longest_startup_s(self) -> float:
        """Longest start-up time that is stated [s]."""
        given = self.startup
        return max(given.values(), default=DEFAULT_STARTUP_S) if isinstance(given, Mapping) else given

    def is_routed_at_random(self, server: str) -> bool:
        """Return whether the requests of a server are routed to its replicas at random."""
        return bool(_given(self.routing, server) == "random")

    def is_common(self, server: str, *, shared: bool) -> bool:
        """Return whether all replicas of a server serve one queue; `shared`: whether it is a shared queue."""
        given = _given(self.queue, server)
        return bool(given == "common") if given else shared or self._has_gateway


def _given(values: Any, name: str) -> Any:
    """Return the value for a name, from one value for all names or from one value for each name."""
    return values.get(name) if isinstance(values, Mapping) else values


def read_config(path: Path) -> LoopConfig:
    """Read the configuration in a file; the path of its system becomes absolute.

    Raises:
        SpecError: the file cannot be read, or a value is invalid.
    """
    raw = plain_value(read_text(path), str(path))
    config = validated(LoopConfig, raw, f"{path}: ")
    if config.window_s < config.period_s:
        raise SpecError(
            f"{path}: window {config.window_s:g} s is below the period of {config.period_s:g} s; lengthen it"
        )
    target = config.kubernetes
    if target is not None and target.lease and target.lease_s < MIN_LEASE_PERIODS * config.period_s:
        raise SpecError(
            f"{path}: kubernetes.leaseDuration {target.lease_s:g} s is below twice the period of "
            f"{config.period_s:g} s, so the Lease would expire between cycles; lengthen it"
        )
    if config.system.startswith("sample:"):
        return config
    return config.model_copy(update={"system": str(path.parent / config.system)})
