"""Lazy imports: a package offers names of its modules and imports a module when its name is first used."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def names_of_modules(
    package: str, homes: Mapping[str, tuple[str, ...]], *others: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions ``__getattr__`` and ``__dir__`` of a package (PEP 562).

    Importing the package or one of its modules then imports no other module, so imports cannot be circular.

    Args:
        package: name of the package.
        homes: for each module, the names that the package offers from it.
        others: names that the package defines itself.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def loaded(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home_of[name]), name)

    return loaded, lambda: [*sorted(home_of), *others]
