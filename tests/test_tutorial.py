"""The tutorial's commands print what the tutorial says they print."""

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from optimizer.cli.main import main

ROOT = Path(__file__).parent.parent
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LONG_NUMBER = re.compile(r"\d+\.\d{10,}(e[+-]?\d+)?")
LEFT_OUT = "…"


def commands_and_outputs() -> list[tuple[str, str]]:
    """Return every shell or Python block with the output block that follows it."""
    blocks = BLOCK.findall(TUTORIAL)
    pairs = []
    for (kind, text), (next_kind, output) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if kind in {"sh", "python"}:
            command = text if kind == "sh" else f"python - <<'END'\n{text}END\n"
            pairs.append((command, output if next_kind == "text" else ""))
    return pairs


def lines_of(text: str) -> list[str]:
    """Return lines with something on them; of long numbers the digits that every machine agrees on."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return [LONG_NUMBER.sub(lambda number: f"{float(number[0]):.8g}", line) for line in lines]


def matches(shown: list[str], printed: list[str]) -> bool:
    """Say whether the lines shown are those printed, where a line of … stands for any number of them."""
    if not shown:
        return not printed
    if shown[0].strip() == LEFT_OUT:
        return any(matches(shown[1:], printed[skip:]) for skip in range(len(printed) + 1))
    return bool(printed) and shown[0] == printed[0] and matches(shown[1:], printed[1:])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("tutorial")
    for name in ("specs", "demos"):
        shutil.copytree(ROOT / name, copy / name)
    return copy


def test_the_tutorial_has_commands() -> None:
    assert len(commands_and_outputs()) >= 20


def test_the_commands_print_what_the_tutorial_shows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    programs = folder / "bin"
    programs.mkdir()
    # Scripts, not symbolic links: by a link the interpreter does not find its virtual environment.
    for name, arguments in (("inferplan", "-m optimizer "), ("python", ""), ("python3", "")):
        script = f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n'
        (programs / name).write_text(script, encoding="utf-8")
        (programs / name).chmod(0o755)
    paths = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    for command, output in commands_and_outputs():  # in their order: later ones use files of earlier ones
        words = alone(command)
        printed = in_bash(command, folder, paths) if words is None else in_this_process(words, folder)
        if output and "--timings" not in command:
            assert matches(lines_of(output), lines_of(printed)), f"{command}\n{printed}"


def alone(command: str) -> list[str] | None:
    """Return the arguments of a block that is one call of inferplan and needs no shell, else nothing."""
    line = command.replace("\\\n", " ").strip()
    if "\n" in line or re.search(r"[|<>&;$`*]", line) or not line.startswith("inferplan "):
        return None
    return shlex.split(line)[1:]


def in_this_process(words: list[str], folder: Path) -> str:
    """Run a command here, which saves starting Python and importing everything for each of them."""
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        main(words)
    return printed.getvalue()


def in_bash(command: str, folder: Path, paths: dict[str, str]) -> str:
    run = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=os.environ | paths,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        check=False,
    )
    return run.stdout
