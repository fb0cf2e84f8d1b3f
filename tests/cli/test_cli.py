"""The command line: every command and flag, exit statuses, and what goes to stdout and what to stderr."""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from builders import accelerator, document, server, service_class

from optimizer import Replica, SystemSpec, __version__, analyze_replicas, find_candidates, load_system, solve
from optimizer.cli.main import COMMANDS, main
from optimizer.spec.writing import write_document

ROOT = Path(__file__).resolve().parents[2]
Json = dict[str, Any]


class Answer(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Answer]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process, with `stdin` as its standard input."""

    def call(*arguments: object, stdin: bytes = b"") -> Answer:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            status = main([str(item) for item in arguments])
        except SystemExit as stop:
            status = int(stop.code or 0)
        captured = capsys.readouterr()
        return Answer(status, captured.out, captured.err)

    return call


def shell(*arguments: object, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | more.pop("environment", {})
    command = [sys.executable, "-m", "optimizer", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, **more)


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
    assert (answer.status, answer.err) == (0, "")
    assert "30.00 cents/h" in answer.out
    assert "proved optimal" in answer.out
    assert "2 of 2 servers served in full" in answer.out
    for heading in ("accelerator", "replicas", "cards", "ITL", "TTFT", "hidden columns", "used", "exist"):
        assert heading in answer.out


def test_solve_json_writes_the_plan_alone(run: Run, path: Path) -> None:
    answer = run("solve", path, "--json")
    assert (answer.status, answer.err) == (0, "")
    assert answer.out == solve(load_system(path)).to_json() + "\n"


def test_the_sample_systems_have_their_known_answers(run: Run, specs: Path) -> None:
    # the known answers of the reference's README, one accelerator for each server
    assert run("solve", specs / "small", "--json").json["totalCost"] == pytest.approx(41857.75)
    assert run("solve", specs / "small", "--json", "--unlimited").json["totalCost"] == pytest.approx(35924.5)


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


def test_require_complete_is_content_with_a_complete_plan(run: Run, path: Path) -> None:
    assert run("solve", path, "--require-complete").status == 0


def test_require_complete_shows_the_plan_and_exits_with_3(run: Run, scarce: Path) -> None:
    answer = run("solve", scarce, "--json", "--require-complete")
    assert answer.status == 3
    assert answer.out == run("solve", scarce, "--json").out
    assert answer.err.startswith("inferplan: incomplete: 2 of the servers cannot be served in full: ")
    assert answer.err.count("\n") == 1


def test_an_incomplete_plan_names_unserved_servers_and_reasons(run: Run, scarce: Path) -> None:
    answer = run("solve", scarce)
    assert (answer.status, answer.err) == (0, "")
    assert "1 of 3 servers served in full" in answer.out
    assert "Not served in full" in answer.out
    assert "2 replicas on A take 2 cards of A" in " ".join(answer.out.split())


def test_timings_go_to_stderr_and_leave_stdout_as_it_is(run: Run, path: Path) -> None:
    plain, timed = run("solve", path, "--json"), run("solve", path, "--json", "--timings")
    assert timed.out == plain.out
    stages = [line.split()[0] for line in timed.err.splitlines()]
    assert stages[:2] == ["read", "candidates"]
    assert {"solve", "plan", "verify"} <= set(stages)
    assert all(re.fullmatch(r"\w+ +\d+\.\d ms", line) for line in timed.err.splitlines())


@pytest.mark.parametrize("flags", [["--gap", "0.5"], ["--gap", "0"], ["--gap=1"], ["--time-limit", "1e6"]])
def test_gap_and_time_limit_are_accepted_in_their_range(run: Run, path: Path, flags: list[str]) -> None:
    answer = run("solve", path, "--json", *flags)
    assert answer.status == 0
    assert answer.json["complete"]


def test_a_gap_reaches_the_solver(run: Run, specs: Path) -> None:
    exact = run("solve", specs / "large", "--json", "--gap", "0").json
    loose = run("solve", specs / "large", "--json", "--gap", "0.5").json
    assert exact["gap"] == 0
    assert exact["totalCost"] <= loose["totalCost"] <= 2 * exact["totalCost"]


def test_the_greedy_solver_can_be_asked_for(run: Run, specs: Path) -> None:
    greedy = run("solve", specs / "small", "--json", "--solver", "greedy").json
    assert (greedy["status"], greedy["solver"]) == ("heuristic", "greedy")
    assert greedy["totalCost"] >= 41857.75


def test_a_mixed_plan_can_be_asked_for(run: Run, specs: Path) -> None:
    mixed = run("solve", specs / "small", "--json", "--mixed", "--gap", "0").json
    assert mixed["totalCost"] == pytest.approx(37929.0)  # the reference's README, known answers


def test_a_load_snapshot_replaces_the_loads_of_the_document(run: Run, path: Path, tmp_path: Path) -> None:
    (tmp_path / "load.csv").write_text("server,arrivalRate\ns,0\n")
    answer = run("solve", path, "--json", "--load", tmp_path / "load.csv").json
    assert answer["allocations"]["s"] == []
    assert answer["allocations"]["t"][0]["numReplicas"] == 2


# --- check, candidates ---------------------------------------------------------------------------------


def test_check_counts_what_a_system_holds(run: Run, path: Path) -> None:
    answer = run("check", path)
    assert answer.status == 0
    assert answer.err == (
        f"inferplan: warning: {path}:7:3: accelerators[1].type: type 'B' is not listed in count, "
        "so a limited plan has no card of it\n"
    )
    assert answer.out == (
        f"{path}: valid: 2 servers, 1 service class, 1 model, 2 profiles, 2 accelerators, 1 capacity\n"
    )


def test_check_of_the_large_sample(run: Run, specs: Path) -> None:
    assert run("check", specs / "large").out.endswith(
        ": valid: 27 servers, 4 service classes, 9 models, 189 profiles, 21 accelerators, 9 capacities\n"
    )


def test_candidates_shows_columns_and_rejections(run: Run, tmp_path: Path) -> None:
    source = document(
        [server("s", accelerators=["A"])],
        [accelerator("A"), accelerator("B")],
        classes=[service_class("gold", itl=99)],
    )
    write_document(source, tmp_path / "x.yaml")
    answer = run("candidates", tmp_path / "x.yaml")
    assert (answer.status, answer.err) == (0, "")
    assert "Candidates (1)" in answer.out
    assert "not_allowed" in answer.out


def test_candidates_json_is_what_the_library_finds(run: Run, path: Path) -> None:
    answer = run("candidates", path, "--json")
    assert answer.err == ""
    assert answer.json == find_candidates(load_system(path)).to_wire()
    assert {"server", "accelerator", "numReplicas", "maxBatch", "cost", "units"} <= set(
        answer.json["candidates"][0]
    )


# --- analyze, size -------------------------------------------------------------------------------------

WORKED = ["--decode-base", 19, "--decode-per-request", 1, "--in-tokens", 0, "--out-tokens", 1025]
ITERATION = [
    "--iteration-base", 12, "--compute-per-token", 0.05, "--kv-read-per-token", 0.0005,
    "--in-tokens", 128, "--out-tokens", 512, "--max-batch", 48, "--max-queue", 128,
]  # fmt: skip
REFERENCE = ["--queue-model", "reference"]
PROBLEM = {
    "RPS": 3, "maxBatchSize": 48, "avgInputTokens": 128, "avgOutputTokens": 512, "alpha": 12, "beta": 0.05,
    "gamma": 0.0005, "maxQueueSize": 128,
}  # fmt: skip
ANSWER_NAMES = [
    "offeredRPS", "throughput", "avgRespTime", "avgWaitTime", "avgNumInServ", "avgTTFT", "avgITL", "maxRPS",
    "RPSTargetTTFT", "RPSTargetITL",
]  # fmt: skip


def test_analyze_shows_the_worked_case_of_the_linear_law(run: Run) -> None:
    answer = run("analyze", *WORKED, "--max-batch", 32, "--max-queue", 168, "--rate", 0.5, "--json")
    assert (answer.status, answer.err) == (0, "")
    found = answer.json
    # worked case A of the reference's README, to the digits printed there
    assert round(found["inService"] + found["inQueue"], 2) == 21.24
    assert round(found["response"]) == 42481
    assert round(found["wait"]) == 674
    assert round(found["itl"], 1) == 40.8


def test_analyze_shows_the_worked_case_of_the_iteration_law(run: Run) -> None:
    found = run("analyze", *ITERATION, *REFERENCE, "--rate", 3, "--json").json
    # the true values of the reference's own example (queue-analysis v0.8), recorded
    assert found["response"] == pytest.approx(10348.367, abs=0.01)
    assert found["ttft"] == pytest.approx(67.615, abs=0.001)
    assert found["itl"] == pytest.approx(20.1189, abs=0.0001)


def test_analyze_is_the_library_call(run: Run) -> None:
    found = run("analyze", *WORKED, "--max-batch", 32, "--rate", 0.5, "--json").json
    replica = Replica.model_validate(
        {"maxBatch": 32, "inTokens": 0.0, "outTokens": 1025.0, "decodeParms": {"alpha": 19.0, "beta": 1.0}}
    )
    assert found == analyze_replicas([replica], [0.5])[0].model_dump(mode="json", by_alias=True)


def test_analyze_shows_every_figure_with_its_unit(run: Run) -> None:
    answer = run("analyze", *WORKED, "--max-batch", 32, "--rate", 0.5)
    assert answer.err == ""
    for figure, unit in (
        ("offered rate", "req/s"),
        ("TTFT", "ms"),
        ("ITL", "ms"),
        ("in the batch", "requests"),
    ):
        assert any(figure in line and unit in line for line in answer.out.splitlines())


def test_analyze_notes_an_overload_on_stderr(run: Run) -> None:
    answer = run("analyze", *WORKED, "--max-batch", 32, "--rate", 10, "--json")
    plain = run("analyze", *WORKED, "--max-batch", 32, "--rate", 10)
    assert answer.status == plain.status == 0
    assert json.loads(answer.out)["loss"] > 0.9
    assert "exceeds the stable maximum" in plain.err
    assert plain.err.count("\n") == 1


def test_size_finds_the_worked_case(run: Run) -> None:
    arguments = [*WORKED, "--max-batch", 48, "--max-queue", 152, "--target-itl", 50]
    found = run("size", *arguments, "--json").json
    assert round(found["maxRate"] * 60, 2) == 35.20  # worked case B of the reference's README
    assert "35.2" in run("size", *arguments).out


def test_size_under_the_iteration_law_meets_both_targets(run: Run) -> None:
    found = run("size", *ITERATION, *REFERENCE, "--target-ttft", 60, "--target-itl", 20, "--json").json
    # the reference's own answer, recorded
    assert found["rateAtTTFT"] == pytest.approx(2.9494622, rel=1e-4)
    assert found["rateAtITL"] == pytest.approx(2.971982, rel=1e-4)
    assert found["maxRate"] == pytest.approx(2.9494622, rel=1e-4)


def test_a_throughput_target_caps_the_rate(run: Run) -> None:
    free = run("size", *WORKED, "--max-batch", 32, "--json").json["maxRate"]
    capped = run("size", *WORKED, "--max-batch", 32, "--throughput-target", "--json").json["maxRate"]
    assert capped == pytest.approx(0.9 * free, rel=2e-3)


def test_batches_are_answered_by_line_in_the_reference_format(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "problems.jsonl"
    file.write_text("\n".join(json.dumps(PROBLEM | {"RPS": rps}) for rps in (1, 2, 3)) + "\n\n")
    answer = run("analyze", "--batch", file)
    assert (answer.status, answer.err) == (0, "")
    answers = [json.loads(line) for line in answer.out.splitlines()]
    assert [list(item) for item in answers] == [ANSWER_NAMES] * 3
    assert [item["offeredRPS"] for item in answers] == [1, 2, 3]
    assert answers[2]["avgTTFT"] == pytest.approx(67.615, abs=0.001)  # the reference's own answer, recorded
    assert answers[2]["RPSTargetTTFT"] == answers[2]["RPSTargetITL"] == 0
    assert run("analyze", "--batch", "-", stdin=file.read_bytes()).out == answer.out


def test_a_batch_of_problems_is_sized_line_by_line(run: Run) -> None:
    line = json.dumps(PROBLEM | {"targetTTFT": 60, "targetITL": 20}).encode()
    answer = run("size", "--batch", "-", stdin=line)
    assert (answer.status, answer.err) == (0, "")
    found = answer.json
    assert list(found) == ANSWER_NAMES
    assert found["RPSTargetTTFT"] == pytest.approx(
        2.9494622, rel=1e-4
    )  # the reference's own answer, recorded
    assert found["RPSTargetITL"] == pytest.approx(2.971982, rel=1e-4)


def test_keys_of_problems_match_in_any_case(run: Run) -> None:
    shouted = json.dumps({key.upper(): value for key, value in PROBLEM.items()}).encode()
    plain = json.dumps(PROBLEM).encode()
    assert (
        run("analyze", "--batch", "-", stdin=shouted).out == run("analyze", "--batch", "-", stdin=plain).out
    )


def test_a_problem_without_a_queue_is_a_loss_system(run: Run) -> None:
    bare = {key: value for key, value in PROBLEM.items() if key != "maxQueueSize"}
    answer = run("analyze", "--batch", "-", stdin=json.dumps(bare | {"RPS": 5}).encode())
    assert answer.json["avgWaitTime"] == 0
    assert answer.json["throughput"] < 4.9


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


@pytest.mark.parametrize("suffix", [".json", ".yaml", ".yml"])
def test_convert_writes_the_same_system_in_one_file(
    run: Run, specs: Path, tmp_path: Path, suffix: str
) -> None:
    target = tmp_path / f"small{suffix}"
    assert run("convert", specs / "small", "-o", target) == Answer(0, "", "")
    assert load_system(target) == load_system(specs / "small")


def test_convert_there_and_back_gives_the_same_document(run: Run, specs: Path, tmp_path: Path) -> None:
    run("convert", specs / "small", "-o", tmp_path / "a.json")
    run("convert", tmp_path / "a.json", "-o", tmp_path / "b.yaml")
    run("convert", tmp_path / "b.yaml", "-o", tmp_path / "c.json")
    run("convert", tmp_path / "c.json", "-o", tmp_path / "d.json")
    assert json.loads((tmp_path / "a.json").read_text()) == json.loads((tmp_path / "c.json").read_text())
    assert (tmp_path / "c.json").read_bytes() == (tmp_path / "d.json").read_bytes()


def test_convert_unwraps_the_format_of_the_reference(run: Run, tmp_path: Path) -> None:
    wrapped = {"system": {"serverData": {"Servers": fitting()["servers"]}}} | {
        key: value for key, value in fitting().items() if key != "servers"
    }
    run("convert", "-", "-o", tmp_path / "x.json", stdin=json.dumps(wrapped).encode())
    assert set(json.loads((tmp_path / "x.json").read_text())) == set(fitting())


def test_convert_may_replace_its_own_source(run: Run, path: Path) -> None:
    before = load_system(path)
    assert run("convert", path, "-o", path).status == 0
    assert load_system(path) == before


def keys_missing_in(schema: Json, value: Any, node: Json, place: str = "") -> list[str]:
    """Return the places of a document that its JSON schema does not know."""
    node = schema["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node
    for choice in node.get("anyOf", []):
        if choice.get("type") != "null":
            node = schema["$defs"][choice["$ref"].rpartition("/")[2]] if "$ref" in choice else choice
    if isinstance(value, dict):
        found = [f"{place}.{key}" for key in value if key not in node["properties"]]
        for key in set(value) & set(node["properties"]):
            found += keys_missing_in(schema, value[key], node["properties"][key], f"{place}.{key}")
        return found
    if isinstance(value, list):
        return [
            x
            for i, item in enumerate(value)
            for x in keys_missing_in(schema, item, node["items"], f"{place}[{i}]")
        ]
    return []


def test_the_schema_knows_every_key_of_the_samples(run: Run, specs: Path) -> None:
    answer = run("schema")
    assert (answer.status, answer.err) == (0, "")
    schema = answer.json
    assert schema["type"] == "object"
    assert set(schema["properties"]) == {
        "accelerators", "models", "serviceClasses", "servers", "count", "optimizer", "routes",
    }  # fmt: skip
    for name in ("small", "large"):
        spec = load_system(specs / name).to_spec().model_dump(mode="json", by_alias=True, exclude_unset=True)
        assert keys_missing_in(schema, spec, schema) == []
    assert keys_missing_in(schema, {"servers": [{"nmae": 1}]}, schema) == [".servers[0].nmae"]


def test_the_schema_closes_objects_and_resolves_references(run: Run) -> None:
    text = run("schema").out
    schema = json.loads(text)
    assert all(item["additionalProperties"] is False for item in [schema, *schema["$defs"].values()])
    assert set(re.findall(r'"#/\$defs/(\w+)"', text)) <= set(schema["$defs"])
    assert schema["$defs"]["Server"]["required"] == ["name", "model"]


def test_the_samples_validate_against_the_schema(run: Run, specs: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    for name in ("small", "large"):
        spec = load_system(specs / name).to_spec()
        document = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
        jsonschema.Draft202012Validator(run("schema").json).validate(document)


def test_the_schema_is_that_of_the_library(run: Run) -> None:
    assert run("schema").json == SystemSpec.model_json_schema(by_alias=True)


# --- help, version -------------------------------------------------------------------------------------


def test_the_version_is_shown(run: Run) -> None:
    assert run("--version") == Answer(0, f"inferplan {__version__}\n", "")


def test_help_names_every_command_and_every_exit_status(run: Run) -> None:
    answer = run("--help")
    assert (answer.status, answer.err) == (0, "")
    assert {"solve", "check", "candidates", "analyze", "size", "convert", "schema"} <= set(COMMANDS)
    for name in COMMANDS:
        assert re.search(rf"^ +{name}\b", answer.out, re.MULTILINE)
    for status in ("0 done", "2 bad input", "3 --require-complete", "4 the solver"):
        assert status in " ".join(answer.out.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_every_flag(run: Run, name: str) -> None:
    answer = run(name, "--help")
    assert (answer.status, answer.err) == (0, "")
    options = answer.out.partition("options:")[2]
    flags = re.split(r"\n(?=  -)", options)[1:]
    assert flags
    for flag in flags:
        text = re.split(r"\n {20,}| {2,}", flag.strip(), maxsplit=1)
        assert len(text) == 2, f"{name}: a flag without a text: {flag}"
        assert len(text[1].split()) > 1, f"{name}: a flag without a text: {flag}"


@pytest.mark.parametrize(
    "flag", ["--decode-base", "--iteration-base", "--rate", "--in-tokens", "--max-batch"]
)
def test_every_flag_of_a_replica_shows_its_unit(run: Run, flag: str) -> None:
    line = next(line for line in run("analyze", "--help").out.splitlines() if line.strip().startswith(flag))
    assert re.search(r"\b(MS|TOKENS|REQUESTS|REQ/S)\b", line)


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


def test_a_process_exits_with_the_status_and_prints_only_json(path: Path, scarce: Path) -> None:
    good = shell("solve", "-", "--json", input=path.read_text())
    assert (good.returncode, good.stderr) == (0, "")
    assert json.loads(good.stdout)["complete"]
    incomplete = shell("solve", scarce, "--json", "--require-complete")
    assert incomplete.returncode == 3
    assert not json.loads(incomplete.stdout)["complete"]


def test_standard_input_has_a_name_in_messages(run: Run, path: Path) -> None:
    found = run("check", "-", stdin=path.read_bytes())
    assert found.status == 0
    assert "standard input:7:3: accelerators[1].type" in found.err
    assert found.out.startswith("-: valid: 2 servers")


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


def test_a_full_disk_behind_the_help_is_one_line_on_stderr() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with Path("/dev/full").open("w") as full:
        found = subprocess.run(
            [sys.executable, "-m", "optimizer", "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
    assert found.returncode == 1
    assert found.stderr == "inferplan: error: the answer cannot be written: No space left on device\n"


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
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout


@pytest.mark.parametrize("flags", [["--json"], pytest.param([], marks=pytest.mark.slow)])
def test_a_full_disk_behind_stdout_is_one_line_on_stderr(path: Path, flags: list[str]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with Path("/dev/full").open("w") as full:
        found = subprocess.run(
            [sys.executable, "-m", "optimizer", "solve", path, *flags],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
    assert found.returncode not in {0, 3}
    assert found.stderr.startswith("inferplan: error: ")
    assert found.stderr.count("\n") == 1


def test_an_interruption_is_one_line(run: Run, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("optimizer.cli.planning.solve", interrupted)
    assert run("solve", path) == Answer(130, "", "inferplan: interrupted\n")


def test_a_solver_failure_ends_with_status_4(run: Run, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optimizer.pipeline.verify", lambda *_: ["the sky is falling"])
    answer = run("solve", path)
    assert (answer.status, answer.out) == (4, "")
    assert answer.err.startswith("inferplan: error: the plan does not hold: the sky is falling")
