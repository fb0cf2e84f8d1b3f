"""`inferplan estimate --memory`: 80 columns, the same as JSON, faults in one line."""

import json

import pytest

from optimizer.cli.main import main

WORDS = ("estimate", "--memory", "llama-3.1-70b", "H100", "4xH100", "16xH100", "--prefix-tokens", "300")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    try:
        status = main([*words])
    except SystemExit as stop:
        status = int(stop.code or 0)
    return status, *capsys.readouterr()


def test_tables_fit_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, *WORDS)
    assert (status, err) == (0, "")
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80
    for text in ("4 x H100", "2 cards are the minimum", "KV head is stored 2 times", "shared prefix of 288"):
        assert text in " ".join(out.split()), text


def test_json_has_the_figures_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(capsys, *WORDS, "--json")[1])
    _, table, _ = run(capsys, *WORDS, "--table", "memory", "--csv")
    rows = [line.split(",") for line in table.splitlines()]
    place = rows[0].index("paged")
    assert [int(row[place]) for row in rows[1:]] == [item["requests"]["paged"] for item in found["devices"]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("llama-3.1-70b",),
            "--memory: name a model and accelerators; 'inferplan catalogue' lists the names",
        ),
        (("llama-3.1-70b", "H1000"), "accelerator: 'H1000' is not in the catalogue; did you mean"),
        (("llama-3.1-70b", "H100", "--in-tokens", "200000"), "in-tokens, out-tokens: 200,000 + 256 tokens"),
        (
            ("llama-3.1-70b", "H100", "--max-length", "200000"),
            "max-length: 200,000 tokens exceed the context",
        ),
        (
            ("llama-3.1-70b", "H100", "--prefix-tokens", "2000"),
            "prefix-tokens: 2,000 exceed in-tokens, 1,024",
        ),
        (("llama-3.1-70b", "H100", "--at-batch", "4"), "--at-batch: --memory does not use it"),
        (("llama-3.1-70b", "H100", "--weights", "int3"), "format of the weights: 'int3' does not exist"),
        (("nope.json", "H100"), "nope.json: no such file"),
    ],
)
def test_faults_are_one_line(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    status, out, err = run(capsys, "estimate", "--memory", *words)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err


@pytest.mark.parametrize("flag", [("--block-tokens", "8"), ("--workspace", "1GB")])
def test_flags_of_memory_need_it(capsys: pytest.CaptureFixture[str], flag: tuple[str, ...]) -> None:
    status, _, err = run(capsys, "estimate", "llama-3.1-8b", "H100", *flag)
    assert (status, err) == (2, f"inferplan: error: {flag[0]}: needs --memory; add it, or remove the flag\n")


def test_one_accelerator_is_estimated_without_it(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "estimate", "llama-3.1-8b", "H100", "L40S")
    assert status == 2
    assert err == "inferplan: error: L40S: one accelerator is estimated; give one, or add --memory\n"
