"""Configuration of the loop: a document of YAML or JSON."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from optimizer.documents import Document, Name, Seconds, Share
from optimizer.errors import SpecError
from optimizer.schema.files import plain_value, read_text
from optimizer.schema.messages import validated
from optimizer.stabilisation.rules import RECOMMENDED, Rules

LabelName = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]
Url = Annotated[str, Field(pattern=r"^https?://")]


class ScrapeSource(Document):
    """Source of measurements: the `/metrics` of the replicas themselves."""

    kind: Literal["scrape"]
    """`scrape`."""
    url: Url
    """Address that lists the replicas in Prometheus's format of HTTP discovery."""
    server_label: LabelName = Field("server", alias="serverLabel")
    """Label with the name of the server."""


class PrometheusSource(Document):
    """Source of measurements: a Prometheus that scrapes the replicas."""

    kind: Literal["prometheus"]
    """`prometheus`."""
    url: Url
    """Its address."""
    server_label: LabelName = Field("server", alias="serverLabel")
    """Label with the name of the server."""
    selector: str = ""
    """Label matchers of the replicas' metrics: `namespace="serving"`."""
    gateway_label: LabelName | None = Field(None, alias="gatewayLabel")
    """Label of a gateway's metrics with the name of the server, or of a model that only one server has. The
    gateway then counts arrivals; otherwise they are those of the replicas."""
    stale_s: Seconds = Field(60.0, alias="staleAfter")
    """Age of a replica's last value after which it does not report [s]; at least two scrape intervals."""
    token_file: Path | None = Field(None, alias="tokenFile", strict=False)
    """File with a bearer token, relative to the working directory."""


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
    """Its namespace; default: that of the configuration."""


class KubernetesTarget(Document):
    """The cluster whose workloads are scaled."""

    url: Url | None = None
    """Address of the API server; default: that of the pod's service account or of the kubeconfig."""
    namespace: Name = "serving"
    """Namespace of the workloads."""
    field_manager: Name = Field("inferplan-loop", alias="fieldManager")
    """Owner of the replicas that the loop sets."""
    lease: str = Field("inferplan-loop", max_length=253)
    """Name of the Lease that lets one loop act; empty: no Lease."""
    lease_s: Seconds = Field(60.0, alias="leaseDuration")
    """Time after which another loop can take the Lease [s]."""
    identity: Name | None = None
    """Holder of the Lease; default: the name of the host, in a cluster that of the pod."""
    reference_labels: bool = Field(default=False, alias="referenceLabels")
    """Whether workloads are the Deployments with the reference's labels: `inferno.server.managed` is `true`,
    `inferno.server.name` and `inferno.server.allocation.accelerator` name the server and its accelerator."""
    workloads: tuple[WorkloadTarget, ...] = Field((), strict=False)
    """Workloads with other names than `inferplan manifests` gives them."""


class ForecastSettings(Document):
    """Settings of the forecast of arrival rates."""

    level_s: Seconds = Field(120.0, alias="level")
    """Time constant of the level [s]."""
    trend_s: Seconds = Field(900.0, alias="trend")
    """Time constant of the trend [s]."""
    days: Annotated[float, Field(ge=1, le=365)] = 3.0
    """Number of days over which the daily season is averaged."""


class DriftSettings(Document):
    """Settings of the comparison of measured token times and TTFTs with the profiles."""

    limit: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Relative difference of token times above which a profile has drifted; twice as much for TTFTs."""
    span_s: Seconds = Field(300.0, alias="span")
    """Time constant of the average [s]."""
    refit: Literal["propose", "apply"] = "propose"
    """`propose`: state factors for the parameters of a profile that has drifted; `apply`: plan with them."""


class RemotePlanner(Document):
    """A stateful service that plans and stabilises."""

    url: Url
    """Its address."""
    key_file: Path | None = Field(None, alias="keyFile", strict=False)
    """File with an API key that can write, relative to the working directory."""


class LoopConfig(Document):
    """Configuration of the loop."""

    system: str
    """System to plan: a file or a folder, relative to this document, or `sample:NAME`."""
    source: Annotated[ScrapeSource | PrometheusSource, Field(discriminator="kind")]
    """Source of the measurements."""
    kubernetes: KubernetesTarget | None = None
    """The cluster to scale; absent: nothing is scaled."""
    planner: RemotePlanner | None = None
    """Service that plans and stabilises; absent: the loop itself."""
    period_s: Seconds = Field(15.0, alias="period")
    """Time from one cycle to the next [s]."""
    window_s: Seconds = Field(60.0, alias="window")
    """Time over which requests are counted [s]."""
    drain_s: Seconds = Field(90.0, alias="drain")
    """Time in which waiting requests are to be served, in addition to new ones [s]."""
    coverage: Share = 0.9
    """Minimum share of a server's replicas that must report; loads are then scaled up to all replicas."""
    variation: bool = True
    """Whether the variation of lengths is measured, too, for servers whose queue model uses it."""
    scale_to_zero: bool = Field(default=False, alias="scaleToZero")
    """Whether a server without traffic can lose its last replica."""
    startup_s: Seconds = Field(120.0, alias="startup")
    """Time that a replica needs to become ready [s]; forecasts look this far ahead."""
    forecast: ForecastSettings | Literal["none"] = ForecastSettings()
    """Forecast of arrival rates, or `none`. Plans use the larger of forecast and measurement."""
    drift: DriftSettings = DriftSettings()
    """Comparison of token times with the profiles."""
    rules: Rules = RECOMMENDED
    """Stabilisation rules; default: the recommended ones. A server without a measured load always keeps its
    replicas."""
    port: Annotated[int, Field(ge=1, le=65_535)] | None = None
    """Port for `/metrics` and `/healthz`; absent: none."""
    host: str = "127.0.0.1"
    """Address of that port."""
    reference_routes: bool = Field(default=False, alias="referenceRoutes")
    """Whether that port, on a loopback address, also has the routes of the reference's control loop."""

    @property
    def applied_rules(self) -> Rules:
        """The rules; a missing load always holds replicas."""
        given = {"hold_missing_load": True, "load_window_s": self.window_s, "startup_s": self.startup_s}
        return self.rules.model_copy(update=given)


def read_config(path: Path) -> LoopConfig:
    """Return the configuration in a file; the path of its system is made absolute.

    Raises:
        SpecError: the file cannot be read, or a value is invalid.
    """
    raw = plain_value(read_text(path), str(path))
    config = validated(LoopConfig, raw, f"{path}: ")
    if config.window_s < config.period_s:
        raise SpecError(
            f"{path}: window {config.window_s:g} s is below the period of {config.period_s:g} s; lengthen it"
        )
    if config.system.startswith("sample:"):
        return config
    return config.model_copy(update={"system": str(path.parent / config.system)})
