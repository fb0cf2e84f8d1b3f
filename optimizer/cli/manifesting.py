"""Sub-command `manifests`: writes a plan as Kubernetes manifests."""

import argparse
import re
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from optimizer.cli.command import Command, print_stderr
from optimizer.cli.flags import add_request, request_of
from optimizer.documents import Url
from optimizer.errors import SpecError
from optimizer.jobs.flag import Flag
from optimizer.jobs.requests import Request
from optimizer.plan import Plan, load_plan
from optimizer.plan.placements import services_of
from optimizer.render.autoscalers import (
    adapter_rules,
    horizontal_pod_autoscaler,
    metrics_api_trigger,
    prometheus_trigger,
    scaled_object,
)
from optimizer.render.cluster_table import read_cluster_table
from optimizer.render.manifests import (
    WorkloadManifest,
    deployment_patch,
    manifests_text,
    node_comment,
    variants,
    with_unused_roles,
)
from optimizer.schema.yaml_format import yaml_text
from optimizer.spec.system import System, load_system
from optimizer.spec.writing import write_text

SERVICE_URL = "http://inferplan.inferplan.svc:8080"


_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def _label(name: str) -> str:
    if not _LABEL.fullmatch(name):
        text = "must be a name of Kubernetes (at most 63 letters a-z, digits and hyphens), not {name}"
        raise PydanticCustomError("label", text, {"name": repr(name)})
    return name


Label = Annotated[str, AfterValidator(_label)]
"""A valid name of a Kubernetes object or container."""


class ManifestOptions(Request):
    """Flags of `manifests`."""

    system: Annotated[str | None, Flag("PATH")] = None
    """System of the plan; accelerators that the plan does not use then also get manifests, with 0 replicas.
    """
    deployments: bool = False
    """Write complete Deployments, or LeaderWorkerSets for replicas on several nodes; needs --system."""
    cluster_table: bool = False
    """Write a table of nodes and images with all defaults, to edit and give as --cluster; needs --system."""
    scaled_objects: bool = False
    """Write KEDA's ScaledObjects that read /v1/targets, instead of patches for Deployments."""
    prometheus: Annotated[Url | None, Flag("URL")] = None
    """Write ScaledObjects that read the metrics from Prometheus at URL."""
    hpa: bool = False
    """Write HorizontalPodAutoscalers that read the Prometheus Adapter, for clusters without KEDA."""
    adapter_rules: bool = False
    """Write the rules of the Prometheus Adapter for --hpa, as values of its Helm chart."""
    cluster: Annotated[Path | None, Flag("FILE")] = None
    """Table of the cluster's nodes and images; needs --system."""
    stabilised: bool = False
    """The service runs with --stabilise: ScaledObjects scale down without their own window of 300 s."""
    namespace: Annotated[Label, Flag("N")] = "serving"
    """Namespace of the Deployments (serving)."""
    container: Annotated[Label, Flag("C")] = "vllm"
    """Container with the engine, in patches of servers with tokens (vllm)."""
    no_replicas: bool = False
    """Omit replicas from patches and Deployments, for an autoscaler to set."""
    url: Annotated[Url, Flag("URL", help=f"URL of the service ({SERVICE_URL})")] = SERVICE_URL
    """URL of the service."""
    authentication: Annotated[str, Flag("A")] = "inferplan"
    """TriggerAuthentication with a key of the service; '' for none (inferplan)."""
    output: Annotated[Path | None, Flag("FILE", short="-o")] = None
    """Write FILE instead of stdout."""


_OUTPUTS = ("deployments", "cluster_table", "scaled_objects", "prometheus", "hpa", "adapter_rules")
"""Mutually exclusive options for the kind of output; without any, patches are written.

They are exclusive so that only one object sets the replicas of a workload.
"""


def _add_manifests(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Each server on each accelerator is its own workload; names have at most 63 characters. "
        "docs/kubernetes.md goes from an empty cluster to replicas that follow the plan."
    )
    parser.add_argument("plan", metavar="PLAN", help="a plan written by solve -o, or - for stdin")
    add_request(parser.add_mutually_exclusive_group(), ManifestOptions, fields=_OUTPUTS)
    add_request(parser, ManifestOptions, skipped=_OUTPUTS)


def _manifests(arguments: argparse.Namespace) -> None:
    options = request_of(ManifestOptions, arguments)
    scaled = options.scaled_objects or options.prometheus is not None or options.hpa
    if options.stabilised and not scaled:
        raise SpecError(
            "--stabilised: only autoscalers have a window; add --scaled-objects, --prometheus URL or --hpa"
        )
    for flag in ("deployments", "cluster_table", "cluster"):
        if getattr(options, flag) and options.system is None:
            raise SpecError(f"--{flag.replace('_', '-')}: add --system PATH, the system of the plan")
    system = None if options.system is None else load_system(options.system)
    plan = load_plan(arguments.plan)
    if system is not None:
        system = plan.planned_in(system)
        _check_names(plan, system)
    text = _text(options, plan, system)
    if options.output is None:
        sys.stdout.write(text)
    else:
        write_text(text, options.output)


def _text(options: ManifestOptions, plan: Plan, system: System | None) -> str:
    """Return the manifests of a plan as YAML."""
    from optimizer.render.alternatives import settings_elsewhere
    from optimizer.render.deployments import Deployments, starting_table

    table = read_cluster_table(options.cluster)
    for text in () if system is None else table.unknown_names(system):
        print_stderr(f"inferplan: warning: {options.cluster}: {text}")
    if system is not None:
        table = table.with_nodes_of(system)
    if options.cluster_table:
        assert system is not None
        return yaml_text(starting_table(system).model_dump(by_alias=True))
    if options.deployments:
        assert system is not None
        system = with_unused_roles(system)
        writer = Deployments(
            system, table, options.namespace, options.container, replicas=not options.no_replicas
        )
        texts = variants(plan, system, table, settings_elsewhere(system, plan))
        others = "".join(f"# {name}: rented, so it has no Deployment\n" for name in services_of(plan))
        return node_comment(plan) + others + manifests_text(map(writer.of, texts))
    texts = variants(plan, system, table)
    if options.adapter_rules:
        return yaml_text(adapter_rules(texts))
    return node_comment(plan) + manifests_text(map(partial(_manifest, options), texts))


def _check_names(plan: Plan, system: System) -> None:
    """Check that a system has all servers of a plan.

    Raises:
        SpecError: the system lacks a server of the plan.
    """
    missing = sorted(plan.allocations.keys() - system.servers.keys())
    if missing:
        raise SpecError(f"--system: has no server {missing[0]!r}, but the plan has; give the plan's system")


def _manifest(options: ManifestOptions, variant: WorkloadManifest) -> dict[str, Any]:
    """Return the object that scales a workload, or a patch of its replicas."""
    if options.hpa:
        return horizontal_pod_autoscaler(variant, options.namespace, stabilised=options.stabilised)
    if options.prometheus is not None:
        trigger = prometheus_trigger(variant, options.prometheus)
    elif options.scaled_objects:
        trigger = metrics_api_trigger(variant, options.url, options.authentication)
    else:
        replicas = not options.no_replicas
        return deployment_patch(variant, options.namespace, options.container, replicas=replicas)
    return scaled_object(variant, options.namespace, trigger, stabilised=options.stabilised)


COMMANDS = {"manifests": Command(_add_manifests, _manifests)}
