"""fit, predict, profiles add and plot fit, from files to files."""

import difflib
import math
from pathlib import Path
from typing import Any

import pytest
from commands import Run, is_one_line

from optimizer.cli.main import main
from optimizer.fitting.profile import read_profile
from optimizer.render.fit_sections import fit_sections, verdict
from optimizer.schema.files import parse_part
from optimizer.spec.system import join_parts, load_system
from optimizer.spec.writing import write_document

HEADER = "in_tokens,out_tokens,in_tokens_cv,out_tokens_cv,arrivals,rate_rps,duration_s,max_in_flight"


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fit a profile to a few points of one shape, which is fast."""
    folder = tmp_path_factory.mktemp("fit")
    points = folder / "points.csv"
    rows = ["256,64,0,0,closed,,20,1,20.5,7.1", "256,64,0,0,constant,10,20,64,22,7.9"]
    rows += ["256,64,0,0,constant,30,20,64,25,10.4"]
    points.write_text("\n".join([f"{HEADER},ttft_ms,itl_ms", *rows, ""]), encoding="utf-8")
    target = folder / "profile.yaml"
    flags = ["--kv-capacity", "400000", "--max-seqs", "256", "--model", "m", "--acc", "H100"]
    flags += ["--engine", "vLLM 0.11", "--weights", "bf16"]
    assert main(["fit", str(points), *flags, "-o", str(target)]) == 0
    return target


def test_fit_writes_a_profile_with_its_key_and_provenance(profile: Path) -> None:
    found = read_profile(profile)
    assert (found.name, found.accelerator, found.kv_capacity_tokens, found.max_batch_size) == (
        "m", "H100", 400_000, 256,
    )  # fmt: skip
    assert found.provenance.engine == "vllm:0.11"
    assert found.provenance.source == "points.csv"
    assert len(found.points) == 3
    assert any("one shape only" in warning for warning in found.fit.warnings)


def test_fit_reads_engines_as_estimate_does(profile: Path, run: Run) -> None:
    found = run("fit", profile.parent / "points.csv", "--engine", "vlm:0.11")
    is_one_line(found, "engine: 'vlm' does not exist; did you mean 'vllm'?")


@pytest.mark.slow
def test_fit_compares_the_stated_cache_with_the_runs(profile: Path, run: Run) -> None:
    points = profile.parent / "points.csv"
    found = run("fit", points, "--kv-capacity", "300")
    is_one_line(found, "kv-capacity: 300 tokens hold no request of points.csv: line 2, 256 + 64 tokens")
    text = run("fit", points, "--kv-capacity", "3000").words
    assert text.index("Not good for planning yet") < text.index("measured (points)")
    assert "Warnings - kv-capacity: 3,000 tokens hold less than the 5,877 tokens" in text


def test_profiles_of_earlier_versions_give_the_same_predictions(profile: Path, tmp_path: Path) -> None:
    """Earlier versions stated standard errors instead of intervals, and a condition number."""
    new = read_profile(profile)
    document: dict[str, Any] = new.document()
    fit = {key: value for key, value in document["fit"].items() if key not in {"intervals", "prior"}}
    errors = {"alpha": 0.1, "beta": 0.0}
    path = tmp_path / "old.yaml"
    write_document({**document, "fit": fit | {"standardErrors": errors, "conditionNumber": 12.0}}, path)
    old = read_profile(path)
    assert (old.coefficients, old.points, old.provenance) == (new.coefficients, new.points, new.provenance)
    alpha = new.iteration.base_ms
    assert old.fit.intervals == {"alpha": pytest.approx((alpha - 0.196, alpha + 0.196))}
    assert "earlier version" in old.fit.warnings[0]
    assert old.fit.warnings[1:] == new.fit.warnings


def test_fit_starts_with_a_verdict(profile: Path) -> None:
    """The errors are those of the table; one shape with short prompts says nothing about the context."""
    found = read_profile(profile)
    section, *_ = fit_sections(found)
    _, paragraph, _ = section.text
    itl, ttft = (max(math.ceil(100 * error), 1) for error in (found.fit.errors.itl, found.fit.errors.ttft))
    assert paragraph.text.startswith(
        f"Good for planning up to 30 requests/s; ITL within {itl}% and TTFT within {ttft}% of fitted runs; "
    )
    assert "γ not" in paragraph.text

    def said(**changes: object) -> str:
        return verdict(found.model_copy(update={"fit": found.fit.model_copy(update=changes)}))

    law = found.iteration
    known = {"alpha": law.base_ms, "beta": law.compute_per_token_ms, "gamma": law.kv_read_per_token_ms}
    ends = {key: (0.9 * value, 1.1 * value) for key, value in known.items()}
    assert said(intervals=ends, fitted_terms=("alpha", "beta")).endswith(
        "; α and β identified, γ not: add a run with many users (64, for example)."
    )
    assert said(intervals=ends, fitted_terms=("alpha",)).endswith(
        "; α identified, β and γ not: add runs with prompts of another length."
    )
    assert said(intervals=ends, fitted_terms=()).endswith(
        "; α, β and γ not identified: add a sweep of rates for several shapes."
    ), "a run with one request at a time is among the runs"
    text = said(held_out=found.fit.errors.model_copy(update={"ttft": 0.2}))
    assert text.startswith("Usable for planning up to 30 requests/s with a headroom of 20%; ")
    assert " of held-out runs; " in text
    text = said(spoiled_by="c8.json contradicts the other runs")
    assert text.startswith("Usable for planning up to 30 requests/s with a headroom of 10%; ")
    assert "; c8.json contradicts the other runs; " in text
    bad = said(held_out=found.fit.errors.model_copy(update={"ttft": 0.3}))
    assert bad.startswith("Not good for planning yet; ")


def test_predict_answers_runs_and_steady_states_with_errors(run: Run, profile: Path, tmp_path: Path) -> None:
    points = tmp_path / "p.csv"
    rows = ["256,64,0,0,constant,20,20,64,23", "256,64,0.2,0.2,poisson,20,,,", "256,64,0,0,closed,,,8,"]
    rows += ["256,64,0,0,poisson,100000,,,", "8192,64,0,0,constant,1,20,64,"]
    points.write_text("\n".join([f"{HEADER},ttft_ms", *rows, ""]), encoding="utf-8")
    alone, steady, closed, beyond, outside = run("predict", profile, points, "--json").json
    assert alone["kind"] == "run"
    assert alone["errors"]["ttft_ms"] == pytest.approx(alone["ttft_ms"] / 23 - 1)
    for row in (alone, steady, closed):
        assert {"ttft_ms", "itl_ms", "throughput_rps", "ttft_percentiles", "itl_percentiles"} <= set(row)
    assert steady["kind"] == closed["kind"] == "steady"
    assert steady["throughput_rps"] == pytest.approx(20)
    assert "exceed the largest stable rate" in beyond["message"]
    assert "prompts of 8,192 tokens, measured from 256 to 256" in str(outside["outside"])
    assert "Predictions (5)" in run("predict", profile, points).out


BY_HAND = """\
# The fleet of the café, kept by hand.
accelerators:
  - {name: H100,   type: H100, cost: $2.50/h}   # rented
  - {name: 2xH100, type: H100, cost: $5.00/h, multiplicity: 2}
models:
  - {name: llama, acc: H100,   perfParms: estimate}   # to be measured
  - name: llama
    acc:  2xH100   # two cards
    kvCapacity: 900000
    maxNumTokens: 4096   # as deployed
    decodeParms:  {alpha: 9ms, beta: 0.1}
    prefillParms: {gamma: 5ms, delta: 0.01}

# What is promised.
serviceClasses:
  - name: gold
    modelTargets: [{model: llama,  slo-itl: 50ms}]
servers:
  - name: s
    class: gold
    model: llama
    currentAlloc: {load: {arrivalRate: 10/s, avgInTokens: 256, avgOutTokens: 64}}
"""


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """A document with comments of its own."""
    path = tmp_path / "system.yaml"
    path.write_text(BY_HAND, encoding="utf-8")
    return path


def changed_lines(before: str, after: str) -> list[str]:
    return [line[2:].split("#")[0].strip() for line in difflib.ndiff(before.splitlines(), after.splitlines())
            if line[:2] == "- "]  # fmt: skip


def test_profiles_add_changes_the_entry_and_nothing_else(run: Run, profile: Path, system: Path) -> None:
    assert run("profiles", "add", profile, system, "--model", "llama", "--acc", "2xH100").status == 0
    assert changed_lines(BY_HAND, system.read_text(encoding="utf-8")) == [
        "kvCapacity: 900000", "maxNumTokens: 4096",
        "decodeParms:  {alpha: 9ms, beta: 0.1}", "prefillParms: {gamma: 5ms, delta: 0.01}",
    ]  # fmt: skip
    loaded, fitted = load_system(system), read_profile(profile)
    found = loaded.profiles["llama", "2xH100"]
    assert found.iteration is not None
    assert (found.iteration.base_ms, found.provenance) == (fitted.iteration.base_ms, fitted.provenance)
    assert (found.decode, found.kv_capacity_tokens) == (None, fitted.kv_capacity_tokens)
    assert found.max_batch_size == 256
    before = join_parts([parse_part(BY_HAND)]).profiles
    assert loaded.profiles["llama", "H100"] == before["llama", "H100"]


def test_what_the_profile_does_not_state_stays(run: Run, profile: Path, system: Path, tmp_path: Path) -> None:
    unstated = tmp_path / "unstated.yaml"
    values = read_profile(profile).model_copy(update={"kv_capacity_tokens": None, "max_batch_size": 0})
    write_document(values.document(), unstated)
    system.write_text(
        BY_HAND.replace("kvCapacity", "maxBatchSize: 7\n    atTokens: 64\n    kvCapacity"), "utf-8"
    )
    assert run("profiles", "add", unstated, system, "--model", "llama", "--acc", "2xH100").status == 0
    found = load_system(system).profiles["llama", "2xH100"]
    assert (found.kv_capacity_tokens, found.max_batch_size, found.at_tokens) == (900_000, 7, 64)


def test_profiles_add_changes_one_file_of_a_directory(run: Run, profile: Path, tmp_path: Path) -> None:
    top, rest = BY_HAND.split("# What is promised.")
    (tmp_path / "cards.yaml").write_text(top, encoding="utf-8")
    (tmp_path / "servers.yml").write_text(rest, encoding="utf-8")
    assert run("profiles", "add", profile, tmp_path, "--model", "llama").status == 0
    assert (tmp_path / "servers.yml").read_text(encoding="utf-8") == rest
    assert changed_lines(top, (tmp_path / "cards.yaml").read_text(encoding="utf-8"))
    assert load_system(tmp_path).profiles["llama", "H100"].provenance is not None


def test_profiles_add_writes_elsewhere_with_the_comments(
    run: Run, profile: Path, system: Path, tmp_path: Path
) -> None:
    target, piped, other = (tmp_path / name for name in ("new.yaml", "piped.yaml", "new.json"))
    add = ["profiles", "add", profile, "--model", "llama"]
    assert run(*add, system, "-o", target).status == 0
    assert system.read_text(encoding="utf-8") == BY_HAND
    assert len(changed_lines(BY_HAND, target.read_text(encoding="utf-8"))) == 1
    assert run(*add, "-", "-o", piped, stdin=BY_HAND.encode()).status == 0
    assert piped.read_text(encoding="utf-8") == target.read_text(encoding="utf-8")
    assert run(*add, system, "-o", other).status == 0  # another format, the same system
    assert load_system(other) == load_system(target)


def test_an_entry_that_shares_its_text_is_written_elsewhere_only(
    run: Run, profile: Path, system: Path, tmp_path: Path
) -> None:
    target = tmp_path / "new.yaml"
    text = (
        "accelerators: [{name: H100, type: H100}, {name: B, type: B}]\n"
        "models:\n- {name: m, acc: H100, perfParms: &times {alpha: 3}}\n"
        "- {name: m, acc: B, perfParms: *times}\n"
    )
    system.write_text(text, encoding="utf-8")
    add = ["profiles", "add", profile, system]
    is_one_line(run(*add), "an anchor or a merge shares the text of the entry")
    assert system.read_text(encoding="utf-8") == text
    assert run(*add, "-o", target).status == 0
    found = load_system(target)
    assert found.profiles["m", "H100"].provenance == read_profile(profile).provenance
    assert found.profiles["m", "B"] == load_system(system).profiles["m", "B"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "model: no server uses model 'm'; name one of these with --model: llama"),
        (["--model", "lama"], "model: no server uses model 'lama'; name one of these with --model: llama"),
        (
            ["--model", "llama", "--acc", "A100"],
            "has no accelerator 'A100'; name one of these with --acc: 2xH",
        ),
    ],
)
def test_profiles_add_lists_the_known_models_and_accelerators(
    run: Run, flags: list[str], message: str, profile: Path, system: Path
) -> None:
    is_one_line(run("profiles", "add", profile, system, *flags), message)
    assert system.read_text(encoding="utf-8") == BY_HAND


def test_a_sample_is_not_written_over(run: Run, profile: Path) -> None:
    is_one_line(run("profiles", "add", profile, "sample:chat"), "-o: missing")


def test_plot_fit_shows_measured_and_predicted(run: Run, profile: Path, tmp_path: Path) -> None:
    picture = tmp_path / "fit.svg"
    figure = run("plot", "fit", profile, "-o", picture, "--json").json
    assert [series["name"] for series in figure["panels"][0]["series"]] == ["256/64 predicted", "256/64"]
    assert figure["panels"][1]["series"][1]["y"] == [7.1, 7.9, 10.4]
    assert picture.read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "{none}"], "no such file or directory"),
        (["fit", "{empty}"], "the file is empty"),
        (["fit", "{profile}"], "not a known benchmark report"),
        (["predict", "{empty}", "{empty}"], "not a fitted profile; give a file written by 'inferplan fit"),
        (["plot", "fit", "{empty}", "--json"], "not a fitted profile"),
        (["profiles", "add", "{empty}", "{empty}"], "not a fitted profile"),
    ],
)
def test_wrong_files_end_in_one_line(
    run: Run, arguments: list[str], message: str, profile: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty.yaml"
    empty.write_text("", encoding="utf-8")
    places = {"none": tmp_path / "none.json", "empty": empty, "profile": profile}
    is_one_line(run(*(argument.format(**places) for argument in arguments)), message)


@pytest.mark.slow
def test_a_plan_states_profile_sources_and_their_domain(run: Run, profile: Path, system: Path) -> None:
    system.write_text(
        "accelerators: [{name: H100, type: H100, cost: 100}]\n"
        "serviceClasses: [{name: c, modelTargets: [{model: m, slo-itl: 50}]}]\n"
        "servers:\n"
        "- {name: near, class: c, model: m, currentAlloc: {load: {arrivalRate: 600, avgInTokens: 256, "
        "avgOutTokens: 64}}}\n"
        "- {name: far, class: c, model: m, currentAlloc: {load: {arrivalRate: 60, avgInTokens: 8000, "
        "avgOutTokens: 64}}}\n"
        "optimizer: {unlimited: true}\n",
        encoding="utf-8",
    )
    assert run("profiles", "add", profile, system).status == 0
    plan = run("solve", system, "--json").json
    near, far = plan["allocations"]["near"][0], plan["allocations"]["far"][0]
    assert near["provenance"].startswith(
        "m on H100: measured (points, vllm:0.11, bf16), 3 runs of 256-256 tokens"
    )
    assert "outside" not in near
    assert far["outside"][0] == "prompts of 8,000 tokens, measured from 256 to 256"
    for command in (["solve", system], ["report", system], ["explain", system, "--server", "far"]):
        shown = run(*command).words
        assert "m on H100: measured (points, vllm:0.11, bf16)" in shown, command
        assert "far on H100: prompts of 8,000 tokens, measured from 256 to 256" in shown, command
    assert "outside the measured range of 'm' on 'H100'" in " ".join(run("check", system).err.split())
