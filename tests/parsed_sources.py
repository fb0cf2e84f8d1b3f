"""Files of the program as syntax trees, each parsed once for all tests."""

import ast
from functools import cache
from pathlib import Path


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes())
