"""The help of every command for the site, in which flags that many commands share are described once."""

import contextlib
import io
import os
import re
from collections import Counter
from functools import cache

from optimizer.cli.main import COMMANDS, main

COLUMNS = "100"
COMMON = 5
"""Number of commands from which a flag with the same text is described once."""
_ENTRY = re.compile(r"^  -.*\n(?:   .*\n)*", re.MULTILINE)
_EMPTY_GROUP = re.compile(r"^[a-z][a-z ]*:\n(?=\n|\Z)", re.MULTILINE)
_FLAGS = re.compile(r"--?[\w-]+")


@cache
def help_of(name: str | None) -> str:
    """Return the text of ``inferplan NAME --help``, or without a name that of ``inferplan --help``."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = COLUMNS
    try:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
            main([name, "--help"] if name else ["--help"])
    finally:
        os.environ.pop("COLUMNS")
        os.environ.update({} if before is None else {"COLUMNS": before})
    return out.getvalue()


@cache
def common_flags() -> list[str]:
    """Return the entries of flags that at least ``COMMON`` commands share, sorted."""
    counts = Counter(_key(entry) for name in COMMANDS for entry in _ENTRY.findall(help_of(name)))
    texts = {_key(entry): entry for name in COMMANDS for entry in _ENTRY.findall(help_of(name))}
    return sorted((texts[key] for key, count in counts.items() if count >= COMMON), key=_long)


def own_help_of(name: str) -> str:
    """Return the help of a command, in which common flags have their names only."""
    text = help_of(name)
    common = {_key(entry) for entry in common_flags()}
    shared = [_long(entry) for entry in _ENTRY.findall(text) if _key(entry) in common]
    text = _ENTRY.sub(lambda entry: "" if _key(entry[0]) in common else entry[0], text)
    usage, rest = text.split("\n\n", 1)
    shown = f"{_short(usage, name)}\n\n{_EMPTY_GROUP.sub('', rest)}"
    return re.sub(r"\n{3,}", "\n\n", shown).rstrip() + "\n\ncommon flags: " + " ".join(sorted(shared)) + "\n"


def _short(usage: str, name: str) -> str:
    """Return a usage line without its flags."""
    depth, kept, start = 0, "", 0
    text = " ".join(usage.split()).removeprefix(f"usage: inferplan {name} ")
    for i, character in enumerate(text):
        start = i if character == "[" and depth == 0 else start
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "]" and depth == 0:
            kept += "" if text.startswith("[-", start) else text[start : i + 1]
        elif depth == 0:
            kept += character
    return " ".join(f"usage: inferplan {name} [FLAGS] {kept}".split())


def _key(entry: str) -> str:
    return " ".join(entry.split())


def _long(entry: str) -> str:
    """Return the longest name of a flag."""
    head = entry.strip().split("  ")[0].splitlines()[0]
    flags: list[str] = _FLAGS.findall(head)
    return max(flags, key=len)
