"""fit, predict, profiles add and plot fit, from files to files."""

import difflib
import io
import json
from pathlib import Path

import pytest

from optimizer.cli.main import main
from optimizer.fitting.profile import read_profile
from optimizer.spec.files import parse_part
from optimizer.spec.system import System, join_parts, load_system
from optimizer.spec.writing import write_document

HEADER = "in_tokens,out_tokens,in_tokens_cv,out_tokens_cv,arrivals,rate_rps,duration_s,max_in_flight"


def predicted(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, object]]:
    assert main(["predict", *arguments, "--json"]) == 0
    answer: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return answer


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
    assert found.provenance.engine == "vLLM 0.11"
    assert found.provenance.source == "points.csv"
    assert len(found.points) == 3
    assert any("one shape only" in warning for warning in found.fit.warnings)


def test_predict_answers_runs_and_steady_states_with_errors(
    profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    points = tmp_path / "p.csv"
    rows = ["256,64,0,0,constant,20,20,64,23", "256,64,0.2,0.2,poisson,20,,,", "256,64,0,0,closed,,,8,"]
    rows += ["256,64,0,0,poisson,100000,,,", "8192,64,0,0,constant,1,20,64,"]
    points.write_text("\n".join([f"{HEADER},ttft_ms", *rows, ""]), encoding="utf-8")
    run, steady, closed, beyond, outside = predicted(capsys, str(profile), str(points))
    assert run["kind"] == "run"
    errors, ttft = run["errors"], run["ttft_ms"]
    assert isinstance(errors, dict)
    assert isinstance(ttft, float)
    assert errors["ttft_ms"] == pytest.approx(ttft / 23 - 1)
    for row in (run, steady, closed):
        assert {"ttft_ms", "itl_ms", "throughput_rps", "ttft_percentiles", "itl_percentiles"} <= set(row)
    assert steady["kind"] == closed["kind"] == "steady"
    assert steady["throughput_rps"] == pytest.approx(20)
    assert "exceed the largest stable rate" in str(beyond["message"])
    assert "prompts of 8,192 tokens, measured from 256 to 256" in str(outside["outside"])


def test_tables_are_written_without_json(
    profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    points = tmp_path / "p.csv"
    points.write_text(f"{HEADER},itl_ms\n256,64,0,0,constant,20,20,64,9\n", encoding="utf-8")
    assert main(["predict", str(profile), str(points)]) == 0
    assert "Predictions (1)" in capsys.readouterr().out


def test_profiles_add_puts_the_profile_into_a_system(profile: Path, tmp_path: Path) -> None:
    system = tmp_path / "system.yaml"
    system.write_text(
        "accelerators: [{name: H100, type: H100, cost: 100}]\n"
        "models: [{name: m, acc: H100, perfParms: {alpha: 9, beta: 0.1}, maxBatchSize: 8}]\n",
        encoding="utf-8",
    )
    assert main(["profiles", "add", str(profile), str(system)]) == 0
    (entry,) = load_system(system).profiles.values()
    fitted = read_profile(profile)
    assert entry.iteration is not None
    assert entry.iteration.base_ms == fitted.iteration.base_ms
    assert entry.provenance == fitted.provenance
    assert entry.max_batch_size == 256


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
  - {name: s, class: gold, model: llama, currentAlloc: {load: {arrivalRate: 10/s, avgOutTokens: 64}}}
"""


def changed_lines(before: str, after: str) -> list[str]:
    return [line[2:].split("#")[0].strip() for line in difflib.ndiff(before.splitlines(), after.splitlines())
            if line[:2] == "- "]  # fmt: skip


@pytest.mark.parametrize(
    ("acc", "changed"),
    [
        ("H100", ["- {name: llama, acc: H100,   perfParms: estimate}"]),
        (
            "2xH100",
            [
                "kvCapacity: 900000", "maxNumTokens: 4096",
                "decodeParms:  {alpha: 9ms, beta: 0.1}", "prefillParms: {gamma: 5ms, delta: 0.01}",
            ],
        ),
    ],
)  # fmt: skip
def test_profiles_add_changes_the_entry_and_nothing_else(
    acc: str, changed: list[str], profile: Path, tmp_path: Path
) -> None:
    system = tmp_path / "system.yaml"
    system.write_text(BY_HAND, encoding="utf-8")
    assert main(["profiles", "add", str(profile), str(system), "--model", "llama", "--acc", acc]) == 0
    after = system.read_text(encoding="utf-8")
    assert changed_lines(BY_HAND, after) == changed
    for comment in ("# The fleet of the café", "# rented", "# to be measured", "# two cards", "# as deployed",
                    "# What is promised."):  # fmt: skip
        assert comment in after
    loaded, fitted = load_system(system), read_profile(profile)
    found = loaded.profiles["llama", acc]
    assert found.iteration is not None
    assert (found.iteration.base_ms, found.provenance) == (fitted.iteration.base_ms, fitted.provenance)
    assert (found.decode, found.kv_capacity_tokens) == (None, fitted.kv_capacity_tokens)
    other = "2xH100" if acc == "H100" else "H100"
    assert loaded.profiles["llama", other] == load_system_text(BY_HAND).profiles["llama", other]


def load_system_text(text: str) -> System:
    return join_parts([parse_part(text)])


def test_what_the_profile_does_not_state_stays(profile: Path, tmp_path: Path) -> None:
    unstated, system = tmp_path / "unstated.yaml", tmp_path / "system.yaml"
    values = read_profile(profile).model_copy(update={"kv_capacity_tokens": None, "max_batch_size": 0})
    write_document(values.document(), unstated)
    system.write_text(
        BY_HAND.replace("kvCapacity", "maxBatchSize: 7\n    atTokens: 64\n    kvCapacity"), "utf-8"
    )
    assert main(["profiles", "add", str(unstated), str(system), "--model", "llama", "--acc", "2xH100"]) == 0
    found = load_system(system).profiles["llama", "2xH100"]
    assert (found.kv_capacity_tokens, found.max_batch_size, found.at_tokens) == (900_000, 7, 64)


def test_profiles_add_changes_one_file_of_a_directory(profile: Path, tmp_path: Path) -> None:
    top, rest = BY_HAND.split("# What is promised.")
    (tmp_path / "cards.yaml").write_text(top, encoding="utf-8")
    (tmp_path / "servers.yml").write_text(rest, encoding="utf-8")
    assert main(["profiles", "add", str(profile), str(tmp_path), "--model", "llama"]) == 0
    assert (tmp_path / "servers.yml").read_text(encoding="utf-8") == rest
    assert changed_lines(top, (tmp_path / "cards.yaml").read_text(encoding="utf-8"))
    assert load_system(tmp_path).profiles["llama", "H100"].provenance is not None


def test_profiles_add_writes_elsewhere_with_the_comments(
    profile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, target = tmp_path / "system.yaml", tmp_path / "new.yaml"
    system.write_text(BY_HAND, encoding="utf-8")
    add = ["profiles", "add", str(profile), "--model", "llama"]
    assert main([*add, str(system), "-o", str(target)]) == 0
    assert system.read_text(encoding="utf-8") == BY_HAND
    assert len(changed_lines(BY_HAND, target.read_text(encoding="utf-8"))) == 1
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(BY_HAND.encode())))
    assert main([*add, "-", "-o", str(tmp_path / "piped.yaml")]) == 0
    assert (tmp_path / "piped.yaml").read_text(encoding="utf-8") == target.read_text(encoding="utf-8")
    assert main([*add, str(system), "-o", str(tmp_path / "new.json")]) == 0  # another format, the same system
    assert load_system(tmp_path / "new.json") == load_system(target)


def test_an_entry_that_shares_its_text_is_written_elsewhere_only(
    profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    system, target = tmp_path / "system.yaml", tmp_path / "new.yaml"
    text = (
        "accelerators: [{name: H100, type: H100}, {name: B, type: B}]\n"
        "models:\n- {name: m, acc: H100, perfParms: &times {alpha: 3}}\n"
        "- {name: m, acc: B, perfParms: *times}\n"
    )
    system.write_text(text, encoding="utf-8")
    add = ["profiles", "add", str(profile), str(system)]
    assert main(add) == 2
    assert "an anchor or a merge shares the text of the entry" in capsys.readouterr().err
    assert system.read_text(encoding="utf-8") == text
    assert main([*add, "-o", str(target)]) == 0
    found = load_system(target)
    assert found.profiles["m", "H100"].provenance == read_profile(profile).provenance
    assert found.profiles["m", "B"] == load_system(system).profiles["m", "B"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "model: no server uses model 'm'; name one of these with --model: llama"),
        (["--model", "lama"], "model: no server uses model 'lama'; name one of these with --model: llama"),
        (["--model", "llama", "--acc", "A100"], "name one of it with --acc: 2xH100, H100"),
    ],
)
def test_profiles_add_lists_the_known_models_and_accelerators(
    flags: list[str], message: str, profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    system = tmp_path / "system.yaml"
    system.write_text(BY_HAND, encoding="utf-8")
    capsys.readouterr()
    assert main(["profiles", "add", str(profile), str(system), *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert system.read_text(encoding="utf-8") == BY_HAND


def test_a_sample_is_not_written_over(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["profiles", "add", str(profile), "sample:chat"]) == 2
    assert "-o: missing" in capsys.readouterr().err


def test_profiles_add_names_the_accelerators_that_there_are(
    profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    system = tmp_path / "system.yaml"
    system.write_text("accelerators: [{name: A100, type: A100, cost: 100}]\n", encoding="utf-8")
    assert main(["profiles", "add", str(profile), str(system)]) == 2
    assert "has no accelerator 'H100'; name one of it with --acc: A100" in capsys.readouterr().err


def test_plot_fit_shows_measured_and_predicted(
    profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "fit.svg"
    assert main(["plot", "fit", str(profile), "-o", str(picture), "--json"]) == 0
    figure = json.loads(capsys.readouterr().out)
    assert [series["name"] for series in figure["panels"][0]["series"]] == ["256/64 predicted", "256/64"]
    assert figure["panels"][1]["series"][1]["y"] == [7.1, 7.9, 10.4]
    assert picture.read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "{none}"], "no such file or directory"),
        (["fit", "{empty}"], "the file is empty"),
        (["fit", "{profile}"], "not a known benchmark report"),
        (
            ["predict", "{empty}", "{empty}"],
            "not a fitted profile; give a file written by 'inferplan fit -o'",
        ),
        (["plot", "fit", "{empty}", "--json"], "not a fitted profile"),
        (["profiles", "add", "{empty}", "{empty}"], "not a fitted profile"),
    ],
)
def test_wrong_files_end_in_one_line(
    arguments: list[str], message: str, profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty.yaml"
    empty.write_text("", encoding="utf-8")
    places = {"none": tmp_path / "none.json", "empty": empty, "profile": profile}
    assert main([argument.format(**places) for argument in arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_a_plan_states_profile_sources_and_their_domain(
    profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    system = tmp_path / "system.yaml"
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
    assert main(["profiles", "add", str(profile), str(system)]) == 0
    assert main(["solve", str(system), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    near, far = plan["allocations"]["near"][0], plan["allocations"]["far"][0]
    assert near["provenance"].startswith(
        "m on H100: measured (points, vLLM 0.11, bf16), 3 runs of 256-256 tokens"
    )
    assert "outside" not in near
    assert far["outside"][0] == "prompts of 8,000 tokens, measured from 256 to 256"
    for command in (
        ["solve", str(system)],
        ["report", str(system)],
        ["explain", str(system), "--server", "far"],
    ):
        assert main(command) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert "m on H100: measured (points, vLLM 0.11, bf16)" in shown, command
        assert "far on H100: prompts of 8,000 tokens, measured from 256 to 256" in shown, command
    assert main(["check", str(system)]) == 0
    assert "outside the measured range of 'm' on 'H100'" in " ".join(capsys.readouterr().err.split())
