"""The command line: every command and flag, exit statuses, and what goes to stdout and what to stderr."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from builders import Json, accelerator, document, server
from commands import ROOT, Answer, Run, shell

from optimizer import Replica, SystemSpec, __version__, analyze_replicas, load_system
from optimizer.__main__ import main as program
from optimizer.cli.main import COMMANDS
from optimizer.spec.writing import write_document
from optimizer.timing import PerfParms


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A small limited system in which everything fits."""
    file = tmp_path / "system.yaml"
    write_document(fitting(), file)
    return file


@pytest.fixture
def scarce(tmp_path: Path) -> Path:
    """A system in which two of three servers cannot be served."""
    file = tmp_path / "scarce.json"
    servers = [server("a"), server("b", replicas=2), server("c", replicas=3)]
    write_document(document(servers, [accelerator("A")], {"A": 1}), file)
    return file


def fitting() -> Json:
    return document(
        [server("s"), server("t", replicas=2)], [accelerator("A"), accelerator("B", cost=30)], {"A": 9}
    )


# --- solve ---------------------------------------------------------------------------------------------


def test_solve_shows_the_plan_at_a_glance(run: Run, path: Path) -> None:
    answer = run("solve", path)
    assert (answer.status, answer.errors) == (0, "")
    assert "30.00 cents/h" in answer.out
    assert "Proved: no plan with the cards that exist costs less." in answer.out
    assert answer.out.split()[-3:] == ["inferplan", "explain", str(path)]
    assert "All 2 servers served in full" in answer.out
    for heading in ("accelerators", "ITL", "TTFT", "limited by", "hidden columns", "used", "exist"):
        assert heading in answer.out


def test_flags_override_the_options_of_the_document(run: Run, tmp_path: Path) -> None:
    source = fitting() | {"optimizer": {"unlimited": True}}
    write_document(source, tmp_path / "x.json")
    assert run("solve", tmp_path / "x.json", "--json").json["solver"] == "separable"
    limited = run("solve", tmp_path / "x.json", "--json", "--limited").json
    assert limited["solver"] == "milp"
    assert limited["capacity"][0] == {"type": "A", "limit": 9, "used": 3}
    write_document(fitting(), tmp_path / "y.json")
    assert run("solve", tmp_path / "y.json", "--json", "--unlimited").json["capacity"][0]["limit"] is None


def test_solve_reads_standard_input(run: Run, path: Path) -> None:
    assert run("solve", "-", "--json", stdin=path.read_bytes()).out == run("solve", path, "--json").out


def test_the_output_file_holds_the_plan_as_json_beside_the_table(
    run: Run, path: Path, tmp_path: Path
) -> None:
    answer = run("solve", path, "-o", tmp_path / "plan.json")
    assert answer.status == 0
    assert "Allocations" in answer.out
    assert (tmp_path / "plan.json").read_text() == run("solve", path, "--json").out


def test_require_complete_shows_the_plan_and_exits_with_3(run: Run, path: Path, scarce: Path) -> None:
    assert run("solve", path, "--require-complete").status == 0
    answer = run("solve", scarce, "--json", "--require-complete")
    assert answer.status == 3
    assert answer.out == run("solve", scarce, "--json").out
    assert answer.err.startswith("inferplan: incomplete: 2 of the servers cannot be served in full: ")
    assert answer.err.count("\n") == 1


def test_require_reserves_exits_with_3_and_names_what_failed(run: Run, tmp_path: Path) -> None:
    servers = [server("a", 500, spareReplicas=1), server("b", 500)]
    files = {}
    for cards in (1, 2, 3):
        files[cards] = tmp_path / f"{cards}.json"
        files[cards].write_text(json.dumps(document(servers, [accelerator("A")], {"A": cards})))
    assert run("solve", files[3], "--require-reserves", "--require-complete").status == 0
    lost = run("solve", files[2], "--require-complete", "--require-reserves")
    assert (lost.status, lost.err) == (3, "inferplan: incomplete: 1 server lacks its reserve: a\n")
    assert "\n1 server lacks its reserve: a.\n" in lost.out
    assert run("solve", files[2], "--require-complete").status == 0
    both = run("solve", files[1], "--require-complete", "--require-reserves")
    assert both.status == 3
    assert "cannot be served in full" in both.err
    assert "; 1 server lacks its reserve: a" in both.err


def test_timings_go_to_stderr_and_leave_stdout_as_it_is(run: Run, path: Path) -> None:
    plain, timed = run("solve", path, "--json"), run("solve", path, "--json", "--timings")
    assert timed.out == plain.out
    stages = [line.split()[0] for line in timed.errors.splitlines()]
    assert stages[:2] == ["read", "candidates"]
    assert {"solve", "plan", "verify"} <= set(stages)
    assert all(re.fullmatch(r"\w+ +\d+\.\d ms", line) for line in timed.errors.splitlines())


# --- check, candidates ---------------------------------------------------------------------------------


def test_check_counts_what_a_system_holds(run: Run, path: Path) -> None:
    answer = run("check", path)
    assert answer.status == 0
    assert answer.err == (
        f"inferplan: warning: {path}:7:3: accelerators[1].type: type 'B' is not listed in count, "
        "so a limited plan has no card of it\n"
        f"     7 | {path.read_text().splitlines()[6]}\n{' ' * 11}^\n"
    )
    assert answer.out == (
        f"{path}: valid: 2 servers, 1 service class, 1 model, 2 profiles, 2 accelerators, 1 capacity\n"
    )


# --- analyze, size -------------------------------------------------------------------------------------

WORKED = ["--decode-base", 19, "--decode-per-request", 1, "--in-tokens", 0, "--out-tokens", 1025]
ITERATION = [
    "--iteration-base", 12, "--compute-per-token", 0.05, "--kv-read-per-token", 0.0005,
    "--in-tokens", 128, "--out-tokens", 512, "--max-batch", 48, "--max-queue", 128,
    "--queue-model", "reference",
]  # fmt: skip
PROBLEM = {
    "RPS": 3, "maxBatchSize": 48, "avgInputTokens": 128, "avgOutputTokens": 512, "alpha": 12, "beta": 0.05,
    "gamma": 0.0005, "maxQueueSize": 128,
}  # fmt: skip
ANSWER_NAMES = [
    "offeredRPS", "throughput", "avgRespTime", "avgWaitTime", "avgNumInServ", "avgTTFT", "avgITL", "maxRPS",
    "RPSTargetTTFT", "RPSTargetITL",
]  # fmt: skip


def test_analyze_is_the_library_call(run: Run) -> None:
    found = run("analyze", *WORKED, "--max-batch", 32, "--rate", 0.5, "--json").json
    replica = Replica.model_validate(
        {"maxBatch": 32, "inTokens": 0.0, "outTokens": 1025.0, "decodeParms": {"alpha": 19.0, "beta": 1.0}}
    )
    assert found == analyze_replicas([replica], [0.5])[0].model_dump(mode="json", by_alias=True)


def test_analyze_notes_an_overload_on_stderr(run: Run) -> None:
    answer = run("analyze", *WORKED, "--max-batch", 32, "--rate", 10, "--json")
    plain = run("analyze", *WORKED, "--max-batch", 32, "--rate", 10)
    assert answer.status == plain.status == 0
    assert json.loads(answer.out)["loss"] > 0.9
    assert "exceeds the stable maximum" in plain.err
    assert plain.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "figures"),
    [
        # the worked cases A and B of the reference's README, to the digits printed there
        (
            ["analyze", *WORKED, "--max-batch", 32, "--max-queue", 168, "--rate", 0.5],
            {"response": (42481, 0.5), "wait": (674, 0.5), "itl": (40.8, 0.05)},
        ),
        (
            ["size", *WORKED, "--max-batch", 48, "--max-queue", 152, "--target-itl", 50],
            {"maxRate": (35.20 / 60, 0.005 / 60)},
        ),
        # the true values of the reference's own example (queue-analysis v0.8), recorded
        (
            ["analyze", *ITERATION, "--rate", 3],
            {"response": (10348.367, 0.01), "ttft": (67.615, 0.001), "itl": (20.1189, 0.0001)},
        ),
        (
            ["size", *ITERATION, "--target-ttft", 60, "--target-itl", 20],
            {"rateAtTTFT": (2.9494622, 3e-4), "rateAtITL": (2.971982, 3e-4), "maxRate": (2.9494622, 3e-4)},
        ),
    ],
)
def test_a_replica_has_its_known_answers(
    run: Run, words: list[object], figures: dict[str, tuple[float, float]]
) -> None:
    answer = run(*words, "--json")
    assert (answer.status, answer.errors) == (0, "")
    for name, (value, tolerance) in figures.items():
        assert answer.json[name] == pytest.approx(value, abs=tolerance), name


def test_a_throughput_target_caps_the_rate(run: Run) -> None:
    free = run("size", *WORKED, "--max-batch", 32, "--json").json["maxRate"]
    capped = run("size", *WORKED, "--max-batch", 32, "--throughput-target", "--json").json["maxRate"]
    assert capped == pytest.approx(0.9 * free, rel=2e-3)


def test_batches_are_answered_by_line_in_the_reference_format(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "problems.jsonl"
    file.write_text("\n".join(json.dumps(PROBLEM | {"RPS": rps}) for rps in (1, 2, 3)) + "\n\n")
    answer = run("analyze", "--batch", file)
    assert (answer.status, answer.errors) == (0, "")
    answers = [json.loads(line) for line in answer.out.splitlines()]
    assert [list(item) for item in answers] == [ANSWER_NAMES] * 3
    assert [item["offeredRPS"] for item in answers] == [1, 2, 3]
    assert answers[2]["avgTTFT"] == pytest.approx(67.615, abs=0.001)  # the reference's own answer, recorded
    assert answers[2]["RPSTargetTTFT"] == answers[2]["RPSTargetITL"] == 0
    assert run("analyze", "--batch", "-", stdin=file.read_bytes()).out == answer.out


def test_a_bad_batch_line_does_not_affect_the_others(run: Run) -> None:
    lines = [
        json.dumps(PROBLEM),
        "{",
        "[]",
        json.dumps(PROBLEM | {"surprise": 1}),
        json.dumps(PROBLEM | {"RPS": 0}),
        json.dumps(PROBLEM | {"avgOutputTokens": 0.5}),
        json.dumps(PROBLEM),
    ]
    answer = run("analyze", "--batch", "-", stdin="\n".join(lines).encode())
    assert answer.status == 2
    answers = [json.loads(line) for line in answer.out.splitlines()]
    assert len(answers) == len(lines)
    assert answers[0] == answers[6]
    assert [list(item) for item in answers[1:6]] == [["message"]] * 5
    assert answers[3]["message"] == "line 4: surprise: unknown key; remove it or correct its spelling"
    assert answers[5]["message"] == "line 6: avgOutputTokens: must be at least 1, not 0.5"
    assert answer.err.count("\n") == 1


def test_an_empty_batch_has_no_answers(run: Run) -> None:
    assert run("analyze", "--batch", "-") == Answer(0, "", "")


# --- convert, schema, generate -------------------------------------------------------------------------


def test_convert_writes_the_same_system_in_one_file(run: Run, specs: Path, tmp_path: Path) -> None:
    assert run("convert", specs / "small", "-o", tmp_path / "small.yml") == Answer(0, "", "")
    assert load_system(tmp_path / "small.yml") == load_system(specs / "small")


def test_convert_may_replace_its_own_source(run: Run, path: Path) -> None:
    before = load_system(path)
    assert run("convert", path, "-o", path).status == 0
    assert load_system(path) == before


def test_the_schema_is_that_of_the_library_with_closed_objects(run: Run) -> None:
    answer = run("schema")
    assert (answer.status, answer.errors) == (0, "")
    schema = answer.json
    assert schema == SystemSpec.model_json_schema(by_alias=True)
    assert all(item["additionalProperties"] is False for item in [schema, *schema["$defs"].values()])
    assert set(re.findall(r'"#/\$defs/(\w+)"', answer.out)) <= set(schema["$defs"])
    assert schema["$defs"]["Server"]["required"] == ["name", "model"]


@pytest.mark.slow
def test_the_samples_validate_against_the_schema(run: Run, specs: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = jsonschema.Draft202012Validator(run("schema").json)
    for name in ("small", "large"):
        schema.validate(
            load_system(specs / name).to_spec().model_dump(mode="json", by_alias=True, exclude_none=True)
        )
    with pytest.raises(jsonschema.ValidationError, match="nmae"):
        schema.validate({"servers": [{"name": "s", "model": "m", "nmae": 1}]})


# --- help, version -------------------------------------------------------------------------------------


def test_the_version_is_shown(run: Run) -> None:
    assert run("--version") == Answer(0, f"inferplan {__version__}\n", "")


def test_help_names_every_command(run: Run) -> None:
    answer = run("--help")
    assert (answer.status, answer.errors) == (0, "")
    assert {"solve", "check", "candidates", "analyze", "size", "convert", "schema"} <= set(COMMANDS)
    for name in COMMANDS:
        assert re.search(rf"^ +{name}\b", answer.out, re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_every_flag(run: Run, name: str) -> None:
    answer = run(name, "--help")
    assert (answer.status, answer.errors) == (0, "")
    options = re.split(r"\n(?:options|scenario|memory|output):\n", answer.out, maxsplit=1)[1]
    flags = [part for part in re.split(r"\n(?=  -)", options) if part.startswith("  -")]
    assert flags
    for flag in flags:
        text = re.split(r"\n {20,}| {2,}", flag.strip(), maxsplit=1)
        assert len(text) == 2, f"{name}: a flag without a text: {flag}"
        assert len(text[1].split()) > 1, f"{name}: a flag without a text: {flag}"


@pytest.mark.parametrize(
    "flag", ["--decode-base", "--iteration-base", "--rate", "--in-tokens", "--max-batch"]
)
def test_every_flag_of_a_replica_shows_its_unit(run: Run, flag: str) -> None:
    line = next(line for line in run("analyze", "--help").out.splitlines() if line.split()[:1] == [flag])
    assert re.search(r"\b(MS|TOKENS|REQUESTS|REQ/S)\b", line)


def test_every_field_of_a_replica_has_a_flag(run: Run) -> None:
    shown = run("analyze", "--help").out
    laws = {"decode", "prefill", "iteration", "batch"}  # the documents of their terms follow
    laws |= {"shapes", "prefix_tokens", "prefix_hit_rate", "prefix_stored"}  # of rows of --batch only
    fields = [name for name in Replica.model_fields if name not in laws]
    fields += [name for name in PerfParms.model_fields if name != "base_ms"]
    fields += [f"{part}_base" for part in ("decode", "prefill", "iteration", "service")]
    flags = [name.removesuffix("_ms").replace("kv_capacity_tokens", "kv_capacity") for name in fields]
    assert [flag for flag in flags if f"--{flag.replace('_', '-')} " not in shown] == []


def test_times_of_a_law_have_units_on_the_command_line(run: Run) -> None:
    more = ("--in-tokens", 9, "--out-tokens", 9, "--max-batch", 4, "--rate", 1, "--json", "--per-sequence")
    plain = run("analyze", *ITERATION[:6], *more, 0.02).json
    assert run("analyze", *ITERATION[:6], *more, "20us").json == plain


@pytest.mark.slow
def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys; from optimizer.cli.main import main\n"
        "heavy = {'numpy', 'scipy', 'pydantic', 'highspy', 'pulp', 'yaml', 'rich', 'matplotlib', 'fastapi',"
        " 'uvicorn', 'starlette'}\n"
        "for words in (['--help'], ['--version'], ['solve', '--help'], ['serve', '--help']):\n"
        "    try: main(words)\n"
        "    except SystemExit: pass\n"
        "    print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    derived = "['numpy', 'pydantic']"  # flags come from the fields of models
    assert found.stderr.splitlines() == ["[]", "[]", derived, derived]


# --- as a process --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_process_exits_with_the_status_and_prints_only_json(path: Path, scarce: Path) -> None:
    good = shell("solve", "-", "--json", input=path.read_text())
    assert (good.status, good.errors, good.json["complete"]) == (0, "", True)
    incomplete = shell("solve", scarce, "--json", "--require-complete")
    assert (incomplete.status, incomplete.json["complete"]) == (3, False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "buffered"),
    [
        ("solve {}", False),
        ("solve --help", True),
        ("--version", False),
        *(
            pytest.param(words, buffered, marks=pytest.mark.slow)
            for words, buffered in [
                ("candidates {}", True),
                ("solve {} --json", True),
                ("schema", True),
                ("schema", False),
                ("--help", False),
                ("--version", True),
            ]
        ),
    ],
)
def test_a_reader_that_goes_away_is_no_error(specs: Path, arguments: str, *, buffered: bool) -> None:
    words = arguments.format(specs / "small").split()
    unbuffered = {} if buffered else {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "optimizer", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | unbuffered,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() in {0, 141}  # done, or ended as by the signal for a broken pipe


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["solve", "{}"],
        *(
            pytest.param(words, marks=pytest.mark.slow)
            for words in (["--help"], ["analyze", "--help"], ["schema"], ["candidates", "{}"])
        ),
    ],
)
def test_a_terminal_that_knows_no_unicode_is_served_as_well(path: Path, arguments: list[str]) -> None:
    words = [word.format(path) for word in arguments]
    found = shell(*words, environment={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert (found.status, found.errors) == (0, "")
    assert found.out


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["--help"], ["solve", "{}", "--json"], pytest.param(["solve", "{}"], marks=pytest.mark.slow)]
)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_behind_stdout_is_one_line_on_stderr(path: Path, words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        found = shell(*(word.format(path) for word in words), stdout=full)
    assert found.status == 1
    assert found.errors == "inferplan: error: the answer cannot be written: No space left on device\n"


def test_an_interruption_is_one_line(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("optimizer.cli.planning.solve", interrupted)
    monkeypatch.setattr(sys, "argv", ["inferplan", "solve", str(path)])
    before = signal.getsignal(signal.SIGINT)
    try:
        assert program() == 130
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN  # another Ctrl-C does not interrupt the end
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr() == ("", "inferplan: interrupted\n")


def test_a_solver_failure_ends_with_status_4(run: Run, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optimizer.pipeline.verify", lambda *_: ["the sky is falling"])
    answer = run("solve", path)
    assert (answer.status, answer.out) == (4, "")
    assert answer.err.startswith("inferplan: error: the plan failed verification: the sky is falling")
