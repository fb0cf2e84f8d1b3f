"""Kinds of load snapshots, and the states of a load after them as tests/data/load_states.md lists them."""

import re
from functools import cache
from pathlib import Path
from typing import Any

TABLE = Path(__file__).resolve().parents[1] / "data" / "load_states.md"
Kind = tuple[str, str]
"""The rate and the lengths of a snapshot: ``absent``, ``0`` or ``above 0``."""
VALUES = ("absent", "0", "above 0")
KINDS: tuple[Kind, ...] = tuple((rate, lengths) for rate in VALUES for lengths in VALUES)
RATE_RPM, IN_TOKENS, OUT_TOKENS = 300.0, 16.0, 64.0


@cache
def transitions() -> dict[tuple[str, Kind], tuple[str, bool]]:
    """Return the table: the next state by state and kind, and whether a note follows."""
    rows = [
        [cell.strip() for cell in line.strip("|\n ").split("|")]
        for line in TABLE.read_text("utf-8").splitlines()
        if line.startswith("| ")
    ]
    heads = [row for row in rows if row[:3] == ["`arrivalRate`", "lengths", "`new`"]]
    (head,) = heads
    states = [cell.strip("`") for cell in head[2:]]
    start = rows.index(head) + 1
    found = {}
    for rate, lengths, *cells in rows[start : start + len(KINDS)]:
        for state, cell in zip(states, cells, strict=True):
            match = re.fullmatch(r"`(\w+)`( ¹)?", cell)
            assert match is not None
            found[state, (rate, lengths)] = match[1], match[2] is not None
    assert len(found) == len(KINDS) * len(states)
    return found


def update_of(kind: Kind) -> dict[str, Any]:
    """Return a snapshot of one server of a kind."""
    rate, lengths = kind
    found: dict[str, Any] = {} if rate == "absent" else {"arrivalRate": RATE_RPM if rate != "0" else 0}
    if lengths != "absent":
        on = lengths != "0"
        found |= {"avgInTokens": IN_TOKENS if on else 0, "avgOutTokens": OUT_TOKENS if on else 0}
    return found


DOCUMENTS: dict[str, dict[str, Any]] = {
    "new": {},
    "sized": {"avgInTokens": IN_TOKENS, "avgOutTokens": OUT_TOKENS},
    "idle": {"arrivalRate": 0, "avgInTokens": 0, "avgOutTokens": 0},
    "asleep": {"arrivalRate": 0, "avgInTokens": IN_TOKENS, "avgOutTokens": OUT_TOKENS},
    "unsized": {"arrivalRate": RATE_RPM},
    "known": {"arrivalRate": RATE_RPM, "avgInTokens": IN_TOKENS, "avgOutTokens": OUT_TOKENS},
}
"""A load in a document for each state."""
