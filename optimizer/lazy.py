"""Lazy imports: a package offers names of its modules and imports a module when its name is first used."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def names_of_modules(
    package: str, names: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions ``__getattr__`` and ``__dir__`` of a package (PEP 562).

    Args:
        package: name of the package.
        names: names that the package offers, by module.
    """
    home_of = {name: module for module, offered in names.items() for name in offered}

    def loaded(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home_of[name]), name)

    return loaded, lambda: sorted(home_of)
