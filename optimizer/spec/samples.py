"""The sample systems that come with the package: their names, and where their files are."""

import os
from importlib import resources
from pathlib import Path

from optimizer.errors import SpecError
from optimizer.spec.messages import known_name

PREFIX = "sample:"
"""Begins the name of a sample in place of a path: ``sample:small``."""


def samples() -> dict[str, Path]:
    """Return the samples by name: each is a file, or a directory of files.

    Raises:
        SpecError: they are not there.
    """
    package = Path(str(resources.files("optimizer")))
    for folder in (package / "samples", package.parent / "specs"):  # installed; in a clone
        if (folder / "small").is_dir():
            return {path.stem: path for path in sorted(folder.iterdir()) if not path.name.startswith(".")}
    raise SpecError(f"{PREFIX} the samples are not installed")


def sample_or_path(path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Return the path of a sample where one is named, else the path itself.

    Raises:
        SpecError: there is no sample of this name.
    """
    if not str(path).startswith(PREFIX):
        return path
    found = samples()
    return found[known_name(str(path).removeprefix(PREFIX), found, "sample")]
