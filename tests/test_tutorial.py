"""The tutorial's commands print what the tutorial says they print."""

import contextlib
import io
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from notes import besides_compiling

from optimizer.cli.main import main

ROOT = Path(__file__).parent.parent
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LONG_NUMBER = re.compile(r"\d+\.\d{10,}(e[+-]?\d+)?")
LEFT_OUT = "…"
CALL = re.compile(r"(?:(echo '[^']*') \| )?(inferplan [^|<>&;$`*]*)([|>][^;&]*)?", re.DOTALL)
"""A call of the program: what it reads, itself, and where what it prints goes."""
LOOP = re.compile(r"for (\w+) in (.*); do\n(.*)\ndone", re.DOTALL)
SCRIPT = re.compile(r"python - <<'END'\n(.*)END", re.DOTALL)


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


def test_the_commands_print_what_the_tutorial_shows(folder: Path) -> None:
    programs = folder / "bin"
    programs.mkdir()
    # Scripts, not symbolic links: by a link the interpreter does not find its virtual environment.
    for name, arguments in (("inferplan", "-m optimizer "), ("python", ""), ("python3", "")):
        script = f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n'
        (programs / name).write_text(script, encoding="utf-8")
        (programs / name).chmod(0o755)
    paths = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    for command, output in commands_and_outputs():  # in their order: later ones use files of earlier ones
        printed = "".join(done(step, folder, paths) for step in steps(command))
        if output and "--timings" not in command:
            assert matches(lines_of(output), lines_of(printed)), f"{command}\n{printed}"


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


def done(step: str, folder: Path, paths: dict[str, str]) -> str:
    """Run a command; a call of inferplan, or a script, in this process, which saves starting Python for each.

    What stands around the call, a pipe or a redirection, is left to the shell.
    """
    script = SCRIPT.fullmatch(step)
    if script is not None:
        (folder / ".script.py").write_text(script[1], encoding="utf-8")
        return "".join(in_this_process(lambda: runpy.run_path(".script.py"), folder))
    found = CALL.fullmatch(step)
    if found is None:
        return in_bash(step, folder, paths)
    read, call, rest = found.groups()
    given = in_bash(read, folder, paths) if read else ""
    printed, said = in_this_process(lambda: main(shlex.split(call)[1:]), folder, given)
    if rest:
        (folder / ".printed").write_text(printed, encoding="utf-8")
        printed = in_bash(f"cat .printed {rest}", folder, paths)
    return printed + said


def in_this_process(run: Callable[[], object], folder: Path, given: str = "") -> tuple[str, str]:
    """Run something here; return what it prints on standard output, and on standard error."""
    printed, said = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(folder):
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
            run()
    return printed.getvalue(), besides_compiling(said.getvalue())


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
