"""Many cases of one property, of which the default run takes the first ones."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

import pytest
from _pytest.mark import ParameterSet

_run = {"slow": True}
"""Whether slow cases are collected; where none runs, thousands would be collected in vain."""


def leave_out_slow_cases() -> None:
    """Collect quick cases alone from now on."""
    _run["slow"] = False


def mostly_slow(cases: Iterable[Any], quick: int) -> list[Any | ParameterSet]:
    """Return cases to parametrize with, all but the first ones marked slow; several arguments are a tuple."""
    found = list(cases) if _run["slow"] else list(islice(cases, quick))
    return [*found[:quick], *map(_slow, found[quick:])]


def _slow(case: Any) -> ParameterSet:
    """Mark a case slow beside its other marks."""
    if isinstance(case, ParameterSet):
        return pytest.param(*case.values, marks=[*case.marks, pytest.mark.slow], id=case.id)
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
