"""Many cases of one property, of which the default run takes the first ones; the slow run draws new seeds."""

import os
import random
from collections.abc import Iterable
from itertools import islice
from typing import Any

import pytest
from _pytest.mark import ParameterSet

DRAWN_BY = "TEST_SEED"
"""Variable of the environment with the number by which a slow run draws its seeds."""
LARGEST_SEED = 10**6
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


def draw_seeds() -> str:
    """Choose the number by which a run and its workers draw seeds if none is given; say how to repeat it."""
    number = os.environ.setdefault(DRAWN_BY, str(random.SystemRandom().randrange(LARGEST_SEED)))
    return f"{DRAWN_BY}={number} draws the seeds of this run again"


def seeds(quick: int, slow: int) -> list[int | ParameterSet]:
    """Return the first seeds, and so many slow ones, others in each run, which the names of cases show."""
    if not _run["slow"]:
        return [*range(quick)]
    drawn = random.Random(os.environ.get(DRAWN_BY)).sample(range(quick, LARGEST_SEED), slow)
    return [*range(quick), *map(_slow, drawn)]
