"""Help: commands in groups, flags in groups, and examples that parse."""

import shlex

import pytest
from commands import Run

from optimizer.cli.help import EXAMPLES, GROUPS
from optimizer.cli.main import COMMANDS, _parser


def test_every_command_is_in_one_group() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(COMMANDS)
    assert len(GROUPS) == 6


@pytest.mark.parametrize("columns", ["80", "100"])
def test_without_a_command_the_groups_are_printed(
    run: Run, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    answer = run()
    assert (answer.status, answer.errors) == (0, "")
    assert [line[:-1] for line in answer.out.splitlines() if line[:-1] in GROUPS] == [*GROUPS]
    assert max(map(len, answer.out.splitlines())) <= int(columns)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", COMMANDS)
def test_examples_of_a_command_parse(name: str) -> None:
    assert name in EXAMPLES
    for words in EXAMPLES[name]:
        assert words.split()[0] == name
        if not {"--help", ">"} & {*words.split()}:
            assert callable(_parser().parse_args(shlex.split(words)).run)


def test_flags_of_a_command_are_in_groups(run: Run) -> None:
    text = run("solve", "--help").out
    scenario, solver, output = (text.index(f"\n{title}:\n") for title in ("scenario", "solver", "output"))
    assert scenario < text.index("\n  --scale") < solver < text.index("\n  --gap") < output
    assert output < text.index("\n  --json")


def test_check_shows_the_line_with_a_caret(run: Run, tmp_path: object) -> None:
    path = f"{tmp_path}/system.yaml"
    with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write("accelerators:\n  - {name: A, type: A, cost: -3}\n  - {name: B, type: A, cost: -4}\n")
    lines = run("check", path).err.splitlines()
    place = next(i for i, line in enumerate(lines) if "cost: must be at least 0" in line)
    assert lines[place + 1] == "     2 |   - {name: A, type: A, cost: -3}"
    assert lines[place + 1][lines[place + 2].index("^")] == "c"
    assert lines[-1] == "inferplan: 2 errors"
