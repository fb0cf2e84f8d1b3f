"""Every command of the pages runs, once and in its order, and prints what the page shows."""

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from _pytest.mark import ParameterSet
from doc_pages import DOCS, ROOT, blocks, printed

from optimizer.cli.main import main

LONG_NUMBER = re.compile(r"\d+\.\d{10,}(e[+-]?\d+)?")
LEFT_OUT = "…"
CALL = re.compile(r"(?:(echo '[^']*') \| )?(inferplan [^|<>&;$`*]*)([|>][^;&]*)?", re.DOTALL)
"""A call of the program: what it reads, itself, and where what it prints goes."""
LOOP = re.compile(r"for (\w+) in (.*); do\n(.*)\ndone", re.DOTALL)
SCRIPT = re.compile(r"python - <<'END'\n(.*)END", re.DOTALL)
ELSEWHERE = re.compile(r"pip install|--cluster|inferplan serve")
"""Commands that need a network, a cluster or a port."""
TUTORIAL = "tutorial.md"
SCENARIOS = sorted(f"scenarios/{path.name}" for path in (DOCS / "scenarios").glob("*.md"))
PAGES = ("../README.md", "index.md", "growth.md", "simulation.md", TUTORIAL, *SCENARIOS)
FILES = {"growth.md": {"fleet.yaml": "yaml", "day.csv": "csv"}}
"""Files of a page that are blocks of it, by language."""
SLOW = (
    "inferplan solve specs/batching-platform",
    "inferplan simulate specs/multi-model-service",
    "inferplan simulate specs/small",
    "inferplan sweep specs/serving-fleet --vary load=0.5,1,5 --unlimited",
    "inferplan sweep specs/disaggregated",
    "inferplan sweep fleet.yaml --samples",
    "inferplan horizon fleet.yaml",
    "inferplan report specs/small --simulate",
    "inferplan solve specs/small --simulate --repair",
)
"""How commands begin that take long."""


class Command(NamedTuple):
    """Steps of a block, and what is shown below it."""

    steps: list[str]
    output: str


def commands(page: str) -> Iterator[Command]:
    """Yield the commands of each shell, console or Python block."""
    for block in blocks((DOCS / page).read_text(encoding="utf-8")):
        text, output = block.text, block.output
        if block.language == "console":
            text, _, output = text.removeprefix("$ ").partition("\n")
        elif block.language == "python" and "import" in text and (page == TUTORIAL or output):
            text = f"python - <<'END'\n{text}END\n"
        elif block.language != "sh":
            continue
        yield Command([step for step in steps(text) if not ELSEWHERE.search(step)], output)


def lines_of(text: str) -> list[str]:
    """Return lines with something on them; of long numbers the digits that every machine agrees on."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return [LONG_NUMBER.sub(lambda number: f"{float(number[0]):.8g}", line) for line in lines]


def matches(shown: list[str], found: list[str]) -> bool:
    """Say whether the lines shown are those printed, where a line of … stands for any number of them."""
    if not shown:
        return not found
    if shown[0].strip() == LEFT_OUT:
        return any(matches(shown[1:], found[skip:]) for skip in range(len(found) + 1))
    return bool(found) and shown[0] == found[0] and matches(shown[1:], found[1:])


class Place:
    """A folder in which the commands of a page run, with the samples and programs that they name."""

    def __init__(self, folder: Path, page: str) -> None:
        """Make the folder."""
        self.folder, self.status = folder, 0
        for name in ("specs", "demos"):
            shutil.copytree(ROOT / name, folder / name)
        (folder / "keys.txt").write_text("read,solve everyday-key\n", encoding="utf-8")
        for name, language in FILES.get(page, {}).items():
            found = blocks((DOCS / page).read_text(encoding="utf-8"))
            (text,) = (block.text for block in found if block.language == language)
            (folder / name).write_text(text, encoding="utf-8")
        programs = folder / "bin"
        programs.mkdir()
        # Scripts, not symbolic links: by a link the interpreter does not find its virtual environment.
        for name, arguments in (("inferplan", "-m optimizer "), ("python", ""), ("python3", "")):
            script = f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n'
            (programs / name).write_text(script, encoding="utf-8")
            (programs / name).chmod(0o755)
        self.paths = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}

    def done(self, step: str) -> str:
        """Run a command; a call of inferplan, or a script, in this process, which saves starting Python.

        What stands around the call, a pipe or a redirection, is left to the shell.
        """
        script = SCRIPT.fullmatch(step)
        if script is not None:
            (self.folder / ".script.py").write_text(script[1], encoding="utf-8")
            return "".join(printed(lambda: runpy.run_path(".script.py"), self.folder))
        found = CALL.fullmatch(step)
        if found is None:
            return self.in_bash(step)
        read, call, rest = found.groups()
        given = self.in_bash(read) if read else ""
        out, err = printed(lambda: self.call(call), self.folder, given)
        if rest:
            (self.folder / ".printed").write_text(out, encoding="utf-8")
            out = self.in_bash(f"cat .printed {rest}")
        return out + err

    def call(self, words: str) -> None:
        """Call the program; a solve that takes seconds gets more of them, because the machine may be busy."""
        given = shlex.split(words, comments=True)[1:]
        patient = ["--time-limit", "300"] if given[0] == "solve" and "--mixed" in given else []
        self.status = main([*given, *patient])

    def in_bash(self, command: str) -> str:
        run = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=os.environ | self.paths,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            check=False,
        )
        return run.stdout


def steps(command: str) -> list[str]:
    """Return the commands of a block, each with the lines of text that it is given; a loop is unrolled."""
    found: list[str] = []
    lines = iter(command.replace("\\\n", " ").strip().splitlines())
    for line in lines:
        step = line.strip()
        text = re.search(r"<<'(\w+)'", line)
        end = text[1] if text else "done" if line.startswith("for ") else ""
        while (end and step.splitlines()[-1] != end) or step.count('"') % 2:
            step += "\n" + next(lines)
        loop = LOOP.fullmatch(step)
        if loop is None:
            found.append(step)
        else:
            found += [
                each for value in loop[2].split() for each in steps(loop[3].replace(f"${loop[1]}", value))
            ]
    return found


def test_the_tutorial_has_commands() -> None:
    assert len(list(commands(TUTORIAL))) >= 15


def pages() -> Iterator[ParameterSet]:
    """Yield each page, and in the slow run those that have slow commands with all of their commands."""
    for page in PAGES:
        yield pytest.param(page, False, id=page)
        if any(command.steps[0].startswith(SLOW) for command in commands(page) if command.steps):
            yield pytest.param(page, True, id=f"all of {page}", marks=pytest.mark.slow)


@pytest.mark.slow
@pytest.mark.parametrize(("page", "every"), [*pages()])
def test_the_commands_print_what_the_page_shows(
    page: str, *, every: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scenarios show the first lines; a command that fails shows what it says."""
    if page == "growth.md":
        monkeypatch.setenv("COLUMNS", "100")
    place = Place(tmp_path, page)
    for command in commands(page):
        if not every and command.steps and command.steps[0].startswith(SLOW):
            continue
        place.status = 0
        found = "".join(map(place.done, command.steps))
        assert place.status == 0 or command.output, (command, found)
        shown = lines_of(command.output) + ([LEFT_OUT] if page in SCENARIOS else [])
        if command.output and not any("--timings" in step for step in command.steps):
            assert matches(shown, lines_of(found)), f"{command.steps}\n{found}"
