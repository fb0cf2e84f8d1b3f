"""The sub-command that writes a plan as Kubernetes manifests: manifests."""

import argparse
import sys
from pathlib import Path

from optimizer.cli.command import Command

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
    from optimizer.plan import load_plan
    from optimizer.render import manifests
    from optimizer.spec.system import load_system
    from optimizer.spec.writing import write_text

    system = None if arguments.system is None else load_system(arguments.system)
    found = manifests.variants(load_plan(arguments.plan), system)
    namespace = arguments.namespace
    if arguments.prometheus is not None:
        written = [
            manifests.scaled_object(each, namespace, manifests.prometheus_trigger(each, arguments.prometheus))
            for each in found
        ]
    elif arguments.scaled_objects:
        triggers = (
            manifests.metrics_api_trigger(each, arguments.url, arguments.authentication) for each in found
        )
        written = [
            manifests.scaled_object(each, namespace, trigger)
            for each, trigger in zip(found, triggers, strict=True)
        ]
    else:
        written = [
            manifests.deployment_patch(
                each, namespace, arguments.container, replicas=not arguments.no_replicas
            )
            for each in found
        ]
    text = manifests.manifests_text(written)
    if arguments.output is None:
        sys.stdout.write(text)
    else:
        write_text(text, arguments.output)


COMMANDS = {
    "manifests": Command(
        "write a plan as Kubernetes manifests: Deployments' patches or ScaledObjects",
        _add_manifests,
        _manifests,
    )
}
