"""The sub-command that writes a plan as Kubernetes manifests: manifests."""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

from optimizer.cli.command import Command
from optimizer.errors import SpecError
from optimizer.plan import load_plan
from optimizer.render.manifests import (
    WorkloadManifest,
    deployment_patch,
    metrics_api_trigger,
    prometheus_trigger,
    scaled_object,
)
from optimizer.spec.system import load_system
from optimizer.spec.writing import write_text

SERVICE_URL = "http://inferplan.inferplan.svc:8080"


def _add_manifests(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Each server on each accelerator is a Deployment of its own; names have at most 63 characters. "
        "docs/kubernetes.md goes from an empty cluster to replicas that follow the plan."
    )
    parser.add_argument("plan", metavar="PLAN", help="a plan: what solve -o wrote, or - for stdin")
    parser.add_argument(
        "--system",
        metavar="PATH",
        help="its system; accelerators that are not chosen then get manifests, too, with no replicas",
    )
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument(
        "--scaled-objects",
        action="store_true",
        help="write KEDA's ScaledObjects that read /v1/targets, in place of patches for Deployments",
    )
    kinds.add_argument(
        "--prometheus", metavar="URL", help="write ScaledObjects that read the metrics from Prometheus at URL"
    )
    parser.add_argument(
        "--stabilised",
        action="store_true",
        help="the service runs with --stabilise: ScaledObjects scale down without a window of their own, "
        "which otherwise is 300 s",
    )
    parser.add_argument("--namespace", metavar="N", default="serving", help="of the Deployments (serving)")
    parser.add_argument(
        "--container", metavar="C", default="vllm", help="container with the engine, in patches (vllm)"
    )
    parser.add_argument(
        "--no-replicas", action="store_true", help="leave replicas out of patches, for an autoscaler to set"
    )
    parser.add_argument("--url", metavar="URL", default=SERVICE_URL, help=f"of the service ({SERVICE_URL})")
    parser.add_argument(
        "--authentication",
        metavar="A",
        default="inferplan",
        help="TriggerAuthentication with a key of the service; '' for none (inferplan)",
    )
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write FILE in place of stdout")


def _manifests(arguments: argparse.Namespace) -> None:
    from optimizer.render import manifests

    scaled = arguments.scaled_objects or arguments.prometheus is not None
    if arguments.stabilised and not scaled:
        raise SpecError("--stabilised: patches have no window; add --scaled-objects or --prometheus URL")
    system = None if arguments.system is None else load_system(arguments.system)
    found = manifests.variants(load_plan(arguments.plan), system)
    text = manifests.manifests_text(map(partial(_scaled if scaled else _patched, arguments), found))
    if arguments.output is None:
        sys.stdout.write(text)
    else:
        write_text(text, arguments.output)


def _patched(arguments: argparse.Namespace, variant: WorkloadManifest) -> dict[str, Any]:
    """Return the patch for the Deployment of a variant."""
    replicas = not arguments.no_replicas
    return deployment_patch(variant, arguments.namespace, arguments.container, replicas=replicas)


def _scaled(arguments: argparse.Namespace, variant: WorkloadManifest) -> dict[str, Any]:
    """Return the ScaledObject of a variant."""
    if arguments.prometheus is None:
        trigger = metrics_api_trigger(variant, arguments.url, arguments.authentication)
    else:
        trigger = prometheus_trigger(variant, arguments.prometheus)
    return scaled_object(variant, arguments.namespace, trigger, stabilised=arguments.stabilised)


COMMANDS = {"manifests": Command(_add_manifests, _manifests)}
