"""Lazy imports: a package offers names of its modules and imports a module when its name is first used."""

import ast
import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def names_of_modules(package: str, *others: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions ``__getattr__`` and ``__dir__`` of a package (PEP 562).

    The package imports its names only for type checkers, in a block ``if TYPE_CHECKING``, which this function
    reads. So importing the package or one of its modules imports no other module, and imports cannot be
    circular.

    Args:
        package: name of the package.
        others: names that the package defines itself.
    """
    source = ast.parse(inspect.getsource(sys.modules[package]))
    home_of = {
        item.name: statement.module
        for block in source.body
        if isinstance(block, ast.If)
        for statement in block.body
        if isinstance(statement, ast.ImportFrom) and statement.module
        for item in statement.names
    }

    def loaded(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home_of[name]), name)

    return loaded, lambda: [*sorted(home_of), *others]
