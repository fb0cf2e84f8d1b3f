"""Names and paths of the sample systems in the package."""

import os
from importlib import resources
from pathlib import Path

from optimizer.errors import SpecError
from optimizer.schema.messages import known_name

PREFIX = "sample:"
"""Prefix of the name of a sample, which can replace a path: ``sample:small``."""


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
