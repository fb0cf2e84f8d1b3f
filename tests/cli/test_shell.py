"""What comes with the package: samples by name, completion for shells, and one table of exit codes."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path
from shutil import which

import pytest
from commands import ROOT, Run, is_one_line

from optimizer import SpecError, load_system
from optimizer.cli.main import COMMANDS, EXIT_CODES
from optimizer.cli.shell import SHELLS
from optimizer.errors import InferplanError
from optimizer.schema.samples import samples


@pytest.mark.slow
def test_every_sample_has_a_name_and_is_read_by_it(run: Run, specs: Path) -> None:
    lines = run("samples").out.splitlines()
    assert all(len(line) <= 110 and len(line.split()) > 3 for line in lines)  # each has a description
    assert lines[0].startswith("sample:gpus ")
    names = sorted(line.split()[0] for line in lines)
    files = {path.stem for path in specs.iterdir() if path.is_dir() or path.suffix == ".yaml"}
    assert names == [f"sample:{name}" for name in sorted(files)]
    for name in names:
        assert load_system(name) == load_system(samples()[name.removeprefix("sample:")])
    assert load_system("sample:small") == load_system(specs / "small")
    assert run("compare", "sample:long-prompts").status == 0


def test_an_unknown_sample_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SpecError, match="sample: 'smal' does not exist; did you mean 'small'"):
        load_system("sample:smal")


def test_the_samples_are_written_whole_and_over_nothing(run: Run, tmp_path: Path, specs: Path) -> None:
    assert run("samples", tmp_path / "mine").status == 0
    written = {path.relative_to(tmp_path / "mine"): path for path in (tmp_path / "mine").rglob("*.yaml")}
    assert written.keys() == {path.relative_to(specs) for path in specs.rglob("*.yaml")}
    assert all(path.read_bytes() == (specs / name).read_bytes() for name, path in written.items())
    again = run("samples", tmp_path / "mine")
    is_one_line(again, f"{tmp_path}/mine/gpus.yaml: already exists; name another directory\n")


def test_a_package_without_samples_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optimizer.schema.samples.resources.files", lambda _: tmp_path / "optimizer")
    with pytest.raises(SpecError, match="the samples are not installed"):
        samples()


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
def test_the_completion_knows_every_command_and_flag(run: Run, shell: str) -> None:
    script = run("completion", shell).out
    for word in (*COMMANDS, "--unlimited", "--require-complete", "--api-keys"):
        assert word.removeprefix("--") in script, word


def test_bash_takes_the_completion_and_completes(run: Run, tmp_path: Path) -> None:
    script = run("completion", "bash").out
    (tmp_path / "fleet.yaml").touch()
    ask = (
        script + '\ncomplete_words() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); '
        '_shtab_inferplan; printf "%s\\n" "${COMPREPLY[@]}"; }\n'
        "complete_words inferplan sol; complete_words inferplan solve --unl\n"
        "complete_words inferplan solve fl; complete_words inferplan solve sample:sm\n"
        'complete_words inferplan verify fl; [[ "$COMP_WORDBREAKS" != *:* ]] && echo whole\n'
    )
    found = subprocess.run(["bash", "-c", ask], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.stdout.split() == [
        "solve", "--unlimited", "fleet.yaml", "sample:small", "fleet.yaml", "whole",
    ]  # fmt: skip


@pytest.mark.skipif(which("fish") is None, reason="fish is not installed")
def test_fish_takes_the_completion_and_completes(run: Run, tmp_path: Path) -> None:
    (tmp_path / "inferplan.fish").write_text(run("completion", "fish").out, encoding="utf-8")
    (tmp_path / "fleet.yaml").touch()
    lines = ("sol", "solve --unl", "solve fl", "compare x --with sample:l", "samples fl")
    ask = "; ".join(["source inferplan.fish", *(f"complete -C 'inferplan {line}'" for line in lines)])
    command = ["fish", "--no-config", "-c", ask]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert [line.partition("\t")[0] for line in found.stdout.split("\n") if line] == [
        "solve", "--unlimited", "fleet.yaml", "sample:large", "sample:length-pools", "sample:long-prompts",
    ]  # fmt: skip


@pytest.mark.skipif(which("zsh") is None, reason="zsh is not installed")
def test_zsh_takes_the_completion(run: Run) -> None:
    script = run("completion", "zsh").out
    assert "_inferplan_systems() { compadd -- sample:batching-platform" in script
    found = subprocess.run(["zsh", "-n"], input=script, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")


def test_the_exit_codes_stand_in_one_table(run: Run) -> None:
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    section = page.partition("## Exit codes\n")[2].partition("\n## ")[0]
    shown = run("--help").out
    for code, text in EXIT_CODES.items():
        assert f"| {code} | {text}" in section
        assert f"{code} {text}" in " ".join(shown.split())
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)} == EXIT_CODES.keys()
    assert {kind.exit_code for kind in InferplanError.__subclasses__()} <= EXIT_CODES.keys()


@pytest.mark.slow
def test_the_wheel_does_without_the_repository(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        wheel.extractall(tmp_path / "installed")
    for words in (["--version"], ["solve", "sample:small"], ["samples", "specs"], ["report", "specs/small"]):
        found = subprocess.run(
            [sys.executable, "-m", "optimizer", *words],
            cwd=tmp_path / "installed",
            capture_output=True,
            text=True,
            check=False,
        )
        assert (found.returncode, found.stderr) == (0, ""), words
        assert found.stdout
