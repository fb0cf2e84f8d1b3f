"""Names and paths of the sample systems in the package."""

import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from optimizer.errors import SpecError
from optimizer.schema.messages import known_name

PREFIX = "sample:"
"""Prefix of the name of a sample, which can replace a path: ``sample:small``."""

DESCRIPTIONS: Mapping[str, str] = {
    "gpus": "Four open models in three service classes on L40S, A100, H100 and H200",
    "chat": "A chat with p95 targets",
    "small": "The reference family's small sample: 15 servers",
    "large": "The reference family's large sample: 27 servers, 9 types of cards",
    "serving-fleet": "Two regions with routes, shared queues, caches and rollouts",
    "nodes": "Two models on rented nodes of 8 cards",
    "robust": "Headroom, spare replicas, a budget and a power limit",
    "long-prompts": "Long documents with short answers, and batch limits as a decision",
    "length-pools": "A server whose requests are divided among pools by prompt length",
    "disaggregated": "Five servers that can have prefill and decode pools",
    "routes": "A router between an 8B and a 70B model",
    "versions": "A canary: a tenth of the requests goes to the next version",
    "shared-cards": "Four small models that share T4 cards",
    "shared-queue": "Three classes that share replicas and a queue",
    "queue-servers": "Two inference servers with a local queue",
    "multi-model-service": "Text, image, embedding and language models on one set of GPUs",
    "batching-platform": "A platform that answers prompts in batches",
    "everything": "All features in one system: 38 servers",
}
"""One line about each sample, in the order in which samples are offered."""


def samples() -> dict[str, Path]:
    """Return the paths of the sample systems, which are files or directories, by name.

    Raises:
        SpecError: the samples are not installed.
    """
    package = Path(str(resources.files("optimizer")))
    for folder in (package / "samples", package.parent / "specs"):  # installed package; source checkout
        if (folder / "small").is_dir():
            return {path.stem: path for path in sorted(folder.iterdir()) if not path.name.startswith(".")}
    raise SpecError(f"{PREFIX} the samples are not installed")


def sample_or_path(path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Return the path of a sample given as ``sample:NAME``; other paths are returned unchanged.

    Raises:
        SpecError: the sample does not exist.
    """
    if not str(path).startswith(PREFIX):
        return path
    result = samples()
    return result[known_name(str(path).removeprefix(PREFIX), result, "sample")]
