"""Autoscaler manifests for the workloads of a plan: KEDA ScaledObjects, or HPAs and Prometheus Adapter rules.

Both read the desired number of replicas as a metric with target average value 1, so the number of replicas
follows the metric.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from optimizer.render.manifests import WorkloadManifest, metadata_of

SCALE_DOWN_WINDOW_S = 300
"""Stabilisation window of an HPA for scaling down, if the service does not stabilise targets [s]."""
METRIC = "inferplan_desired_replicas"


def scaled_object(
    variant: WorkloadManifest, namespace: str, trigger: Mapping[str, Any], *, stabilised: bool = False
) -> dict[str, Any]:
    """Return the KEDA ScaledObject that scales a workload by a trigger.

    If the trigger fails and fewer replicas run, it falls back to the replicas of the plan. A workload with 0
    replicas in the plan has no fallback, because it would start replicas that no plan asks for.

    Args:
        namespace: namespace of the workload.
        trigger: source of the desired number of replicas.
        stabilised: whether the service stabilises the number; otherwise the HPA does so when scaling down.
    """
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": metadata_of(variant, namespace),
        "spec": {
            "scaleTargetRef": variant.target,
            "pollingInterval": 15,
            "cooldownPeriod": 300,
            "minReplicaCount": 0,
            "maxReplicaCount": _most(variant),
            **_fallback(variant.replicas),
            "advanced": {
                "restoreToOriginalReplicaCount": False,
                "horizontalPodAutoscalerConfig": {"behavior": _behaviour(stabilised=stabilised)},
            },
            "triggers": [dict(trigger)],
        },
    }


def _most(variant: WorkloadManifest) -> int:
    """Return the maximum number of replicas of a workload's autoscaler, well above any likely target."""
    return max(10, 4 * variant.replicas)


def _behaviour(*, stabilised: bool) -> dict[str, Any]:
    """Return the `behavior` of an HPA: how quickly it can add and remove replicas."""
    return {
        "scaleUp": _window(0) | {"selectPolicy": "Max", "policies": _UP},
        "scaleDown": _window(0 if stabilised else SCALE_DOWN_WINDOW_S) | {"policies": _DOWN},
    }


def _fallback(replicas: int) -> dict[str, Any]:
    """Return KEDA's `fallback` section: replicas to run if the metric is missing; if 0, no fallback is set.

    Without a fallback, KEDA keeps the current replicas.
    """
    if not replicas:
        return {}
    settings = {"failureThreshold": 3, "replicas": replicas, "behavior": "currentReplicasIfHigher"}
    return {"fallback": settings}


def _window(seconds: int) -> dict[str, Any]:
    """Return the HPA's rules for scaling up or down, with tolerance 0 so that no change is ignored.

    Args:
        seconds: stabilisation window of the HPA [s].
    """
    return {"stabilizationWindowSeconds": seconds, "tolerance": "0"}


_UP = [
    {"type": "Percent", "value": 100, "periodSeconds": 60},
    {"type": "Pods", "value": 4, "periodSeconds": 60},
]
_DOWN = [{"type": "Percent", "value": 100, "periodSeconds": 60}]


def metrics_api_trigger(variant: WorkloadManifest, service_url: str, authentication: str) -> dict[str, Any]:
    """Return the KEDA trigger that reads the desired replicas from `/v1/targets` of the service.

    Args:
        authentication: name of the TriggerAuthentication; empty if the service requires no key.
    """
    path = f"{quote(variant.server, safe='')}/{quote(variant.accelerator, safe='')}"
    metadata = {
        "url": f"{service_url.rstrip('/')}/v1/targets/{path}",
        "format": "json",
        "valueLocation": "desiredReplicas",
        "targetValue": "1",
        "activationTargetValue": "0",
    }
    trigger: dict[str, Any] = {"type": "metrics-api", "metricType": "AverageValue", "metadata": metadata}
    if authentication:
        metadata |= {"authMode": "apiKey", "method": "header", "keyParamName": "X-API-KEY"}
        trigger["authenticationRef"] = {"name": authentication}
    return trigger


def prometheus_trigger(variant: WorkloadManifest, prometheus_url: str) -> dict[str, Any]:
    """Return the KEDA trigger that reads the desired replicas from Prometheus.

    A missing metric is an error.
    """
    return {
        "type": "prometheus",
        "metricType": "AverageValue",
        "metadata": {
            "serverAddress": prometheus_url,
            "query": f"max({_series(variant)})",
            "threshold": "1",
            "activationThreshold": "0",
            "ignoreNullValues": "false",
        },
    }


def horizontal_pod_autoscaler(
    variant: WorkloadManifest, namespace: str, *, stabilised: bool = False
) -> dict[str, Any]:
    """Return the HPA that scales a workload by an external metric of the Prometheus Adapter.

    If the metric is missing, the HPA keeps the current replicas. It can scale to zero, because a plan does
    not use every accelerator.

    Args:
        namespace: namespace of the workload.
        stabilised: whether the service stabilises the number; otherwise the HPA does so when scaling down.
    """
    target = {"type": "AverageValue", "averageValue": "1"}
    metric = {"metric": {"name": _metric_name(variant)}, "target": target}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata_of(variant, namespace),
        "spec": {
            "scaleTargetRef": variant.target,
            "minReplicas": 0,
            "maxReplicas": _most(variant),
            "metrics": [{"type": "External", "external": metric}],
            "behavior": _behaviour(stabilised=stabilised),
        },
    }


def adapter_rules(variants: Iterable[WorkloadManifest]) -> dict[str, Any]:
    """Return the values of the Prometheus Adapter's Helm chart with a metric for each workload.

    Each has its own metric, because server names can contain characters that Kubernetes labels cannot.
    """
    rules = [
        {
            "seriesQuery": _series(each),
            "name": {"as": _metric_name(each)},
            "resources": {"namespaced": False},
            "metricsQuery": f"max({_series(each)})",
        }
        for each in variants
    ]
    return {"rules": {"external": rules}}


def _metric_name(variant: WorkloadManifest) -> str:
    return f"{METRIC}_{variant.name.replace('-', '_')}"


def _series(variant: WorkloadManifest) -> str:
    """Return the PromQL selector of the metric with a workload's desired replicas."""
    return f'{METRIC}{{server="{_escaped(variant.server)}",accelerator="{_escaped(variant.accelerator)}"}}'


def _escaped(value: str) -> str:
    """Escape text for use as a quoted label value in PromQL."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
