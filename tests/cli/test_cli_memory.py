"""`inferplan estimate --memory`: 80 columns, the same as JSON, faults in one line."""

import pytest
from commands import Run, is_one_line

WORDS = ("estimate", "--memory", "llama-3.1-70b", "H100", "4xH100", "16xH100", "--prefix-tokens", "300")
ONE = ("--memory", "llama-3.1-70b", "H100")


def test_tables_fit_80_columns(run: Run) -> None:
    answer = run(*WORDS)
    assert (answer.status, answer.err) == (0, "")
    assert max(len(line.rstrip()) for line in answer.out.splitlines()) <= 80
    for text in ("4 × H100", "4 cards are the minimum", "KV head is stored 2 times", "shared prefix of 288"):
        assert text in answer.words, text


@pytest.mark.parametrize("model", ["deepseek-v4-flash", "nemotron-3-nano-30b", "kimi-k3", "gemma-3n-e4b"])
def test_layers_of_every_kind_fit_80_columns(run: Run, model: str) -> None:
    lines = run("estimate", "--memory", model, "8xH100", "--table", "layers").out.splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert sum(line.lstrip()[:1].isdigit() for line in lines) >= 3


def test_json_has_the_figures_of_the_table(run: Run) -> None:
    found = run(*WORDS, "--json").json
    rows = [line.split(",") for line in run(*WORDS, "--table", "memory", "--csv").out.splitlines()]
    place = rows[0].index("paged")
    assert [int(row[place]) for row in rows[1:]] == [item["requests"]["paged"] for item in found["devices"]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--memory", "llama-3.1-70b"),
            "--memory: name a model and accelerators; 'inferplan catalogue' lists",
        ),
        (
            ("--memory", "llama-3.1-70b", "H1000"),
            "accelerator: 'H1000' is not in the catalogue; did you mean",
        ),
        ((*ONE, "--in-tokens", "200000"), "in-tokens, out-tokens: 200,000 + 256 tokens"),
        ((*ONE, "--max-length", "200000"), "max-length: 200,000 tokens exceed the context"),
        ((*ONE, "--prefix-tokens", "2000"), "prefix-tokens: 2,000 exceed in-tokens, 1,024"),
        ((*ONE, "--at-batch", "4"), "--at-batch: --memory does not use it"),
        ((*ONE, "--weights", "int3"), "format of the weights: 'int3' does not exist"),
        (("--memory", "nope.json", "H100"), "nope.json: no such file"),
        ((*ONE[1:], "--block-tokens", "8"), "--block-tokens: needs --memory; add it, or remove the flag"),
        ((*ONE[1:], "--workspace", "1GB"), "--workspace: needs --memory; add it, or remove the flag"),
        ((*ONE[1:], "L40S"), "L40S: one accelerator is estimated; give one, or add --memory"),
    ],
)
def test_faults_are_one_line(run: Run, words: tuple[str, ...], message: str) -> None:
    is_one_line(run("estimate", *words), message)
