"""The tutorial's commands print what the tutorial says they print."""

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import ROOT, blocks, printed, read_page

from optimizer.cli.main import main

LONG_NUMBER = re.compile(r"\d+\.\d{10,}(e[+-]?\d+)?")
LEFT_OUT = "…"
CALL = re.compile(r"(?:(echo '[^']*') \| )?(inferplan [^|<>&;$`*]*)([|>][^;&]*)?", re.DOTALL)
"""A call of the program: what it reads, itself, and where what it prints goes."""
LOOP = re.compile(r"for (\w+) in (.*); do\n(.*)\ndone", re.DOTALL)
SCRIPT = re.compile(r"python - <<'END'\n(.*)END", re.DOTALL)


def commands_and_outputs() -> list[tuple[str, str]]:
    """Return every shell or Python block with the output block that follows it."""
    return [
        (block.text if block.language == "sh" else f"python - <<'END'\n{block.text}END\n", block.output)
        for block in blocks(read_page("tutorial.md"))
        if block.language in {"sh", "python"}
    ]


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
        found = "".join(done(step, folder, paths) for step in steps(command))
        if output and "--timings" not in command:
            assert matches(lines_of(output), lines_of(found)), f"{command}\n{found}"


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
        return "".join(printed(lambda: runpy.run_path(".script.py"), folder))
    found = CALL.fullmatch(step)
    if found is None:
        return in_bash(step, folder, paths)
    read, call, rest = found.groups()
    given = in_bash(read, folder, paths) if read else ""
    out, err = printed(lambda: main(shlex.split(call)[1:]), folder, given)
    if rest:
        (folder / ".printed").write_text(out, encoding="utf-8")
        out = in_bash(f"cat .printed {rest}", folder, paths)
    return out + err


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
