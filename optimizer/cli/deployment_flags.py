"""Flags for the deployment of a model, for estimates of its token times and memory."""

import argparse
from collections.abc import Mapping
from typing import Any

from optimizer.cli.command import number
from optimizer.units import SHARE

_FLAGS: Mapping[str, tuple[str, Any, str]] = {
    "tp": ("N", int, "tensor parallelism: devices of a replica (all its cards)"),
    "weights": ("FORMAT", str, "bf16, fp8, int8, int4, fp4 or mxfp4 (as published)"),
    "cache": ("FORMAT", str, "format of the KV cache, bf16 or fp8 (bf16)"),
    "memory_utilization": (
        "SHARE", number(0.01, 1, "the share of the memory", scale=SHARE),
        "share of the device's memory that the engine takes (0.9)",
    ),
}  # fmt: skip
"""Settings of the deployment: metavar, type and help of the flag."""
DEPLOYMENT = (*_FLAGS, "eager")
"""The flags as arguments are named, which is how the deployment names them."""


def add_deployment(group: Any) -> None:
    """Add the flags to a parser or a group of it."""
    for name, (metavar, kind, text) in _FLAGS.items():
        group.add_argument(f"--{name.replace('_', '-')}", metavar=metavar, type=kind, help=text)
    group.add_argument(
        "--eager",
        action="store_true",
        default=None,
        help="the engine runs without CUDA graphs: the host starts every kernel",
    )


def deployment_given(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of the deployment that the flags give."""
    return {name: value for name in DEPLOYMENT if (value := getattr(arguments, name)) is not None}
