"""Bad input: one clear line that names the place, exit status 2, nothing on stdout, nothing written.

One example of each fault is given to every command; all faults of documents are in ``tests/spec``.

And what is odd but no mistake: requests of one token and of 100,000, loads of next to nothing and of a
billion, systems in which nothing fits. Those get an answer in words.
"""

import json
import os
import random
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import Json, accelerator, document, profile, server, service_class
from commands import ROOT, Answer, Run
from patience import PATIENCE_S

from optimizer.schema.files import MAX_YAML_BYTES


def sound() -> Json:
    return document([server("s"), server("t")], [accelerator("A"), accelerator("B")], {"A": 9, "B": 9})


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """A system in which nothing is wrong."""
    path = tmp_path / "good.json"
    path.write_text(json.dumps(sound()))
    return path


def is_refusal(answer: Answer, place: object = "", status: int = 2) -> None:
    """Hold an answer to the promise: status, a line for each fault that names its place, nothing else."""
    assert answer.status == status
    assert answer.out == ""
    assert answer.err.endswith("\n")
    assert str(place) in answer.err or str(place) in without_positions(answer.err)
    for line in answer.err.splitlines():
        if not re.match(r" |inferplan: [\d,]+ errors?$", line):  # the line with a caret, and the count
            assert "error: " in line
        assert len(line) < 600
    for word in ("Traceback", "pydantic", "ValidationError", "sys.", "None:", "NoneType"):
        assert word not in answer.err


def without_positions(text: str) -> str:
    """Return messages without the lines and columns behind the names of files."""
    return re.sub(r":\d+:\d+(?=: )", "", text)


READERS = ("solve", "check", "candidates")


def refused_by_all(run: Run, path: object, place: str, folder: Path) -> None:
    """Hold every command that reads a system to the promise, with the same message."""
    before = sorted(folder.iterdir())
    answers = [run(command, path) for command in READERS]
    answers.append(run("convert", path, "-o", folder / "converted.yaml"))
    answers.append(run("solve", path, "--json", "-o", folder / "plan.json"))
    for answer in answers:
        is_refusal(answer, place)
    checked = answers.pop(READERS.index("check")).err.splitlines()
    assert len({answer.err for answer in answers}) == 1
    assert answers[0].err.partition(" (and ")[0].rstrip() in checked  # `check` says all, line by line
    assert sorted(folder.iterdir()) == before


# --- documents -----------------------------------------------------------------------------------------


def test_a_missing_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "nowhere.yaml"
    refused_by_all(run, path, f"error: {path}: no such file or directory\n", tmp_path)


def test_an_unreadable_special_file(run: Run) -> None:
    if not Path("/proc/self/mem").exists():
        pytest.skip("this system has no /proc")
    is_refusal(run("check", "/proc/self/mem"), "/proc/self/mem: ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("x.yaml", "servers: [1,\n  b: }", "x.yaml:2:6: not valid YAML: "),
        ("x.json", "{'servers': []}", "x.json:1:2: not valid JSON: "),
        ("x.json", '{"servers": []} {}', "x.json:1:"),
        ("x.json", "", "x.json:1:1: not valid JSON: "),
        ("x.yaml", "servers: []\nservers: []\n", "x.yaml:2:1: "),
        ("x.json", "{}", "x.json: expected a document with sections such as 'servers', but found none"),
        ("x", "{}", "x: expected a document with sections such as 'servers', but found none"),
        ("x", b"\x89PNG\r\n\x1a\n\x00", "x: not UTF-8 text (byte 0)"),
        ("x.json", b"\xff\xfe{\x00}\x00", "x.json: not UTF-8 text (byte 0)"),
        ("x.yaml", b"\x00\x01\x02", "x.yaml:"),
    ],
)
def test_text_that_is_no_document(run: Run, tmp_path: Path, name: str, text: str | bytes, place: str) -> None:
    data = text.encode() if isinstance(text, str) else text
    (tmp_path / name).write_bytes(data)
    is_refusal(run("check", "-", stdin=data), "standard input")
    refused_by_all(run, tmp_path / name, f"{tmp_path}/{place}", tmp_path)


def wrong(change: Callable[[Json], object]) -> Json:
    source = sound()
    change(source)
    return source


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("source", "place"),
    [
        (wrong(lambda d: d["servers"][1].update(modle="m")), "servers[1].modle: unknown key"),
        (wrong(lambda d: d["accelerators"][1].update(cost="7")), "accelerators[1].cost: must be a number"),
        (wrong(lambda d: d["servers"].append("s")), 'servers[2]: must be an object with keys, not "s"'),
        (wrong(lambda d: d["servers"].append(server("s"))), "servers[2]: 's' occurs twice"),
        (wrong(lambda d: d.update(models=[])), "servers[0].model: model 'm' does not exist"),
        (wrong(lambda d: d["servers"][0].update(model="zz\nyy")), "servers[0].model: model 'zz\\nyy' does"),
        (wrong(lambda d: d["servers"][0].update({"a\nb": 1})), "servers[0]."),
        (wrong(lambda d: d["servers"][0].update({"k" * 100_000: 1})), "servers[0].k"),
        (wrong(lambda d: d["servers"][0].update(model="\ud800")), "servers[0].model: "),
        (wrong(lambda d: d["servers"][0].update(maxNumReplicas=10**30)), "servers[0].maxNumReplicas: must"),
    ],
)
def test_a_document_that_is_wrong_in_one_place(run: Run, tmp_path: Path, source: Json, place: str) -> None:
    (tmp_path / "x.json").write_text(json.dumps(source))
    refused_by_all(run, tmp_path / "x.json", f"{tmp_path}/x.json: {place}", tmp_path)


# --- rubbish of 50 MB ----------------------------------------------------------------------------------

MB = 10**6
RUBBISH: dict[str, Callable[[int], bytes]] = {
    "random bytes": lambda size: random.Random(1).randbytes(size),
    "one long line": lambda size: b"a" * size,
    "lines of a: b": lambda size: b"a: b\n" * (size // 5),
    "distinct lines": lambda size: b"".join(b"k%07d: 1\n" % i for i in range(size // 12)),
    "open brackets": lambda size: b"[" * size,
    "open objects": lambda size: b'{"a":' * (size // 5),
    "dashes": lambda size: b"- " * (size // 2),
    "items": lambda size: b"- a\n" * (size // 4),
    "numbers for servers": lambda size: b'{"servers": [' + b"0," * (size // 2 - 10) + b"0]}",
    "objects for servers": lambda size: b'{"servers": [' + b"{}," * (size // 3 - 10) + b"{}]}",
    "keys for sections": lambda size: b"{" + b",".join(b'"k%07d":1' % i for i in range(size // 13)) + b"}",
    "a long key": lambda size: (
        b'{"servers": [{"name": "s", "model": "m", "' + b"k" * (size - 99) + b'": 1}]}'
    ),
    "a long text": lambda size: b'{"servers": "' + b"k" * (size - 99) + b'"}',
    "a long number": lambda size: b'{"servers": ' + b"9" * (size - 99) + b"}",
    "spaces": lambda size: b" " * size,
    "empty lines": lambda size: b"\n" * size,
}


CHECK_EACH = """
import sys
from optimizer.cli.main import main
for path in sys.argv[1:]:
    print(main(["check", path]), file=sys.stderr, flush=True)
"""


def bounded(*paths: Path | str, seconds: int, memory: int = 3 * 2**30, **more: Any) -> list[Answer]:
    """Check files in one process that may take so much of a core's time and memory and no more."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))

    found = subprocess.run(
        [sys.executable, "-c", CHECK_EACH, *paths],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=PATIENCE_S,  # where it waits without end
        preexec_fn=limit,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        **more,
    )
    assert found.returncode == 0, found.stderr
    answers, lines = [], list[str]()
    for line in found.stderr.splitlines(keepends=True):
        if line.strip().isdigit():
            answers.append(Answer(int(line), found.stdout, "".join(lines)))
            lines.clear()
        else:
            lines.append(line)
    return answers


@pytest.fixture
def rubbish(tmp_path: Path) -> Iterator[Callable[[str, str, int], Path]]:
    """Write a big file, and take it away again at the end."""
    written: list[Path] = []

    def write(kind: str, suffix: str, size: int) -> Path:
        path = tmp_path / f"rubbish{len(written)}{suffix}"
        path.write_bytes(RUBBISH[kind](size))
        written.append(path)
        return path

    yield write
    for path in written:
        path.unlink(missing_ok=True)


@pytest.mark.slow
def test_rubbish_is_refused_at_once(rubbish: Callable[[str, str, int], Path]) -> None:
    paths = [
        rubbish("random bytes", ".yaml", 50 * MB),  # refused by its size alone, whatever is in it
        rubbish("numbers for servers", ".json", 50 * MB),
        rubbish("open brackets", ".json", 50 * MB),
        rubbish("open brackets", ".yaml", min(4 * MB, MAX_YAML_BYTES - 1000)),
        *(path for path in [Path("/dev/zero")] if path.exists()),
    ]
    for path, answer in zip(paths, bounded(*paths, seconds=30), strict=True):
        is_refusal(answer, path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "suffix", "size"),
    [
        ("random bytes", ".yaml", 50 * MB),
        ("random bytes", "", 50 * MB),
        *((kind, ".json", 50 * MB) for kind in RUBBISH if kind != "distinct lines"),
        *((kind, ".yaml", MAX_YAML_BYTES - 1000) for kind in RUBBISH),
    ],
)
def test_rubbish_of_every_kind_is_refused_in_bounded_time(
    rubbish: Callable[[str, str, int], Path], kind: str, suffix: str, size: int
) -> None:
    path = rubbish(kind, suffix, size)
    (answer,) = bounded(path, seconds=20)
    is_refusal(answer, path)


@pytest.mark.slow
def test_50_mb_of_rubbish_on_standard_input_are_refused_at_once(
    rubbish: Callable[[str, str, int], Path],
) -> None:
    with rubbish("lines of a: b", ".txt", 50 * MB).open("rb") as stream:
        (answer,) = bounded("-", seconds=20, stdin=stream)
    is_refusal(answer, "standard input")


@pytest.mark.slow
def test_standard_input_that_is_closed_is_refused() -> None:
    command = f'exec "{sys.executable}" -m optimizer check - <&-'
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    found = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, check=False, env=environment
    )
    is_refusal(Answer(found.returncode, found.stdout, found.stderr), "standard input")


# --- flags ---------------------------------------------------------------------------------------------


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (["sovle", "{good}"], "unknown command 'sovle'; did you mean 'solve'? See 'inferplan --help'"),
        (["xyzzy"], "unknown command 'xyzzy'; see 'inferplan --help'"),
        (["profiles", "ad", "{good}"], "unknown action 'ad'; did you mean 'add'?"),
        (["solve", "{good}", "--unlimted"], "unknown flag --unlimted; did you mean '--unlimited'?"),
        (["solve", "{good}", "-unlimited"], "unknown flag -unlimited; did you mean '--unlimited'?"),
        (["solve", "{good}", "--time_limit=3"], "unknown flag --time_limit; did you mean '--time-limit'?"),
        (["solve", "{good}", "--foo"], "unknown flag --foo; see 'inferplan solve --help'"),
        (["simulate", "{good}", "--rate", "3"], "unknown flag --rate; init, analyze have it; see"),
        (["solve", "{good}", "--jsno"], "unknown flag --jsno; did you mean '--json'?"),
        (["solve", "{good}", "-x"], "unknown flag -x; see 'inferplan solve --help'"),
        (["solve", "{good}", "unlimited"], "unexpected argument 'unlimited'; did you mean '--unlimited'?"),
        (["--versoin", "schema"], "unknown flag --versoin; did you mean '--version'?"),
        (["plot", "distributon", "{good}"], "not 'distributon'; did you mean 'distribution'?"),
        (["solve", "{good}", "--estimates", "uper"], "one of upper, middle, lower, not 'uper'; did you mean"),
        (["solve", "{good}", "--table", "alocations"], "this output has no table 'alocations'; did you mean"),
        (["plan"], "plan"),
        (["solve"], "PATH"),
        (["solve", "{good}", "{good}"], "unexpected argument"),
        (["solve", "{good}", "--limited", "--unlimited"], "--unlimited"),
        (["solve", "{good}", "--jason"], "--jason"),
        (["solve", "{good}", "--unlim"], "--unlim"),
        (["solve", "{good}", "--gap", "2"], "--gap: '2': must be at least 0 and at most 1"),
        (["solve", "{good}", "--gap", "500%"], "--gap: '500%': must be at least 0 and at most 100%"),
        (["solve", "{good}", "--time-limit", "-3 min"], "must be more than 0 and at most 16,666.7 min"),
        (["solve", "{good}", "--gap", "nan"], "--gap: 'nan'"),
        (["solve", "{good}", "--gap"], "--gap"),
        (["solve", "{good}", "--time-limit", "0"], "--time-limit: '0': must be more than 0"),
        (["solve", "{good}", "--time-limit", "inf"], "--time-limit: 'inf'"),
        (["solve", "{good}", "-o", "{folder}/no/plan.json"], "no/plan.json: cannot be written: no such"),
        (["solve", "{good}", "-o", "{folder}"], "{folder}: cannot be written: is a directory"),
        (["solve", "{good}", "--load", "{folder}/nowhere.csv"], "nowhere.csv: no such file or directory"),
        (["solve", "{good}", "--load", "{good}"], "good.json:1: unknown column"),
        (["check", "{good}", "--wide"], "--wide"),
        (["convert", "{good}"], "--output"),
        (["convert", "{good}", "-o", "{folder}/x"], "/x: the suffix must be one of .yaml, .yml, .json"),
        (["convert", "{good}", "-o", "{folder}/no/x.json"], "no/x.json: cannot be written: no such"),
        (["schema", "more"], "more"),
    ],
)
def test_arguments_that_are_wrong(
    run: Run, good: Path, tmp_path: Path, arguments: list[str], place: str
) -> None:
    before = sorted(tmp_path.iterdir())
    words = [word.format(good=good, folder=tmp_path) for word in arguments]
    is_refusal(run(*words), place.format(folder=tmp_path))
    assert sorted(tmp_path.iterdir()) == before


LAW = {"--decode-base": 19, "--decode-per-request": 1}
REPLICA = LAW | {"--in-tokens": 0, "--out-tokens": 10, "--max-batch": 4}


@pytest.mark.parametrize(
    ("command", "change", "place"),
    [
        ("analyze", {}, "--rate: missing"),
        ("analyze", {"--rate": 0}, "--rate: '0': must be more than 0"),
        ("analyze", {"--rate": "nan"}, "--rate: 'nan': must be more than 0"),
        ("analyze", {"--rate": "inf"}, "rate: must be finite"),
        ("analyze", {"--rate": "fast"}, "--rate: "),
        ("analyze", {"--rate": 1, **dict.fromkeys(LAW)}, "--decode-base"),
        ("analyze", {"--rate": 1, "--iteration-base": 1}, "--iteration-base"),
        ("analyze", {"--rate": 1, "--out-tokens": None}, "--out-tokens: missing"),
        ("analyze", {"--rate": 1, "--max-batch": None}, "--max-batch: missing"),
        ("analyze", {"--rate": 1, "--max-batch": 0}, "--max-batch: must be at least 1, not 0"),
        ("analyze", {"--rate": 1, "--max-batch": 2_000_000}, "--max-batch: must be at most "),
        ("analyze", {"--rate": 1, "--max-batch": 1.5}, "--max-batch: "),
        ("analyze", {"--rate": 1, "--max-queue": -1}, "--max-queue: must be at least 0"),
        ("analyze", {"--rate": 1, "--decode-base": "nan"}, "--decode-base: must be a finite"),
        ("analyze", {"--rate": 1, "--decode-base": -1}, "--decode-base: must be at least 0"),
        ("analyze", {"--rate": 1, "--out-tokens": 0.5}, "--out-tokens: must be at least 1, not 0.5"),
        ("analyze", {"--rate": 1, "--in-tokens": -1}, "--in-tokens: must"),
        ("analyze", {"--rate": 1} | dict.fromkeys(LAW, 0), "the service time of a request is zero"),
        ("size", {"--target-itl": -1}, "--target-itl: must be at least 0, not -1"),
        ("size", {"--target-ttft": "nan"}, "--target-ttft: must be a finite number"),
        ("size", {"--target-itl": 1}, "the best ITL at batch 1 is 20 ms, target 1 ms"),
        ("size", {"--rate": 1}, "--rate"),
        ("analyze", ["--batch", "{folder}/nowhere.jsonl"], "nowhere.jsonl: no such file or directory"),
        ("analyze", ["--batch", "{folder}"], "{folder}: is a directory"),
        ("size", ["--batch", "-", "--decode-base", "19"], "--batch"),
        ("analyze", ["--batch", "-", "--rate", "1"], "--batch"),
    ],
)
def test_a_replica_that_is_wrong(
    run: Run, tmp_path: Path, command: str, change: Json | list[str], place: str
) -> None:
    if isinstance(change, dict):
        change = [f"{flag}={value}" for flag, value in (REPLICA | change).items() if value is not None]
    words = [word.format(folder=tmp_path) for word in change]
    is_refusal(run(command, *words), place.format(folder=tmp_path))


def test_a_batch_that_is_no_text_is_refused(run: Run) -> None:
    is_refusal(run("analyze", "--batch", "-", stdin=b"\xff\xfe"), "standard input: not UTF-8 text")


# --- nothing is written --------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["solve"], ["convert"]])
def test_a_failing_run_leaves_an_existing_file_as_it_is(run: Run, tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "out.json").write_text("before")
    (tmp_path / "bad.json").write_text('{"servers": [{}]}')
    is_refusal(run(*command, tmp_path / "bad.json", "-o", tmp_path / "out.json"))
    assert (tmp_path / "out.json").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.json", "out.json"]


# --- odd, but no mistake -------------------------------------------------------------------------------


def both(run: Run, tmp_path: Path, source: Json) -> tuple[Json, Json]:
    """Return plan and candidates of a document; each must answer within seconds, as table and as JSON."""
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(source))
    found = []
    for command in ("solve", "candidates"):
        begin = time.process_time()
        answer = run(command, path, "--json")
        assert time.process_time() - begin < 10
        assert (answer.status, answer.errors) == (0, "")
        table = run(command, path)
        assert (table.status, table.errors) == (0, "")
        assert not re.search(r"\b(nan|inf)\b", table.out)
        found.append(json.loads(answer.out))
    plan, candidates = found
    names = {item["name"] for item in source["servers"]}
    assert set(plan["allocations"]) | {item["server"] for item in plan["unserved"]} == names
    assert all(item["reason"] and item["detail"] for item in plan["unserved"])
    return plan, candidates


LINEAR = profile("m", "A")
LAWS = {
    "linear": LINEAR,
    "iteration": {"name": "m", "acc": "A", "maxBatchSize": 8}
    | {"perfParms": {"alpha": 7, "beta": 0.02, "gamma": 5e-5}},
}


def one_server(
    law: Json, rate: float, tokens: tuple[float, float], targets: Json | None = None, **more: Any
) -> Json:
    """Return one server on one accelerator of which there is any number."""
    load = {"arrivalRate": rate, "avgInTokens": tokens[0], "avgOutTokens": tokens[1]}
    return document(
        [{"name": "s", "class": "gold", "model": "m", "currentAlloc": {"load": load}} | more],
        [accelerator("A")],
        {"A": 10**9},
        classes=[service_class("gold", **targets or {"itl": 1e6, "ttft": 1e9})],
        models=[law],
    )


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("tokens", [(1, 1), (0, 1), (100_000, 1), (0, 100_000), (100_000, 100_000)])
@pytest.mark.parametrize("rate", [0, 1e-9, 1e9])
def test_loads_of_every_size_are_planned_or_rejected_with_reason(
    run: Run, tmp_path: Path, law: str, tokens: tuple[float, float], rate: float
) -> None:
    plan, candidates = both(run, tmp_path, one_server(LAWS[law], rate, tokens))
    if rate == 0:
        assert plan["allocations"] == {"s": []}
    elif law == "linear" and tokens == (0, 1):  # no prompt and no second token: there is nothing to do
        assert plan["unserved"][0]["reason"] == "no_work"
    elif rate == 1e-9:
        assert plan["allocations"]["s"][0]["numReplicas"] == 1
        assert candidates["candidates"][0]["loss"] < 1e-6
    else:
        assert plan["complete"] or plan["unserved"][0]["reason"] in {"replica_limit", "capacity"}


@pytest.mark.few(1)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("rate", [1e-9, 1e9])
def test_a_replica_at_any_rate_is_analyzed(run: Run, law: str, rate: float) -> None:
    flags = {
        "linear": ["--decode-base", 10, "--decode-per-request", 0.5],
        "iteration": ["--iteration-base", 7, "--compute-per-token", 0.02],
    }
    for out_tokens in (2, 100_000):
        for batch in (1, 100_000):
            shape = ["--in-tokens", 100_000, "--out-tokens", out_tokens, "--max-batch", batch, "--rate", rate]
            answer = run("analyze", *flags[law], *shape, "--json")
            assert answer.status == 0
            found = json.loads(answer.out)
            figures = [value for value in found.values() if not isinstance(value, dict)]
            percentiles = [value for value in found.values() if isinstance(value, dict)]
            figures += [value for part in percentiles for value in part.values()]
            assert all(0 <= value < float("inf") for value in figures)
            assert 0 <= found["loss"] <= 1
            assert found["throughput"] <= min(rate, found["stableRate"] * 1.01)


def test_a_truncated_replica_count_is_not_shown_as_the_need(run: Run, tmp_path: Path) -> None:
    """1e15 requests a minute take 1e12 replicas or more; a number that is shown must not be less."""
    plan, _ = both(run, tmp_path, one_server(LINEAR, 1e15, (100, 100)))
    detail = plan["unserved"][0]["detail"]
    assert plan["unserved"][0]["reason"] == "replica_limit"
    shown = re.search(r"needs (more than |over )?([\d,.e+]+) replicas", detail)
    assert shown
    assert shown[1] or float(shown[2].replace(",", "")) > 1e12


NO_TARGETS = [service_class("gold", models=[])]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "reason", "detail"),
    [
        (document([server("s")], [accelerator("A")], {"A": 0}), "capacity", "takes 1 card of A"),
        (document([server("s")], [accelerator("A")], {"A": 9}, classes=NO_TARGETS), "no_target", ""),
        (document([server("s", accelerators=[])], [accelerator("A")], {"A": 9}), "not_allowed", ""),
        (one_server({"name": "m", "acc": "A"}, 60, (100, 100)), "no_profile", ""),
        (
            one_server(LINEAR, 60, (100, 100), {"itl": 0.1}),
            "slo_unattainable",
            "best ITL at batch 1 is 10.5 ms, target 0.1 ms",
        ),
        (
            document([server("s", 0, replicas=10**9)], [accelerator("A")], {"A": 2}),
            "capacity",
            "1,000,000,000 cards of A; 2 of 2 are left",
        ),
    ],
)
def test_a_server_that_fits_nowhere_has_its_reason(
    run: Run, tmp_path: Path, source: Json, reason: str, detail: str
) -> None:
    plan, _ = both(run, tmp_path, source)
    assert plan["unserved"][0]["reason"] == reason
    assert detail in plan["unserved"][0]["detail"]


def test_the_largest_costs_and_counts_do_not_overflow(run: Run, tmp_path: Path) -> None:
    source = one_server(LINEAR | {"accCount": 10_000}, 1e9, (100, 100))
    source["accelerators"][0] |= {"cost": 1e15, "multiplicity": 10_000}
    plan, _ = both(run, tmp_path, source | {"optimizer": {"unlimited": True}})
    pool = plan["allocations"]["s"][0]
    assert pool["costCentsPerH"] == pytest.approx(1e15 * 10_000 * pool["numReplicas"])
    assert plan["capacity"][0]["used"] == 10**8 * pool["numReplicas"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["[bold]s[/bold]", "[/s]", "[red", ":smile:", "\\[x]", "a\nb", "\x1b[31mred", "s\x07"]
)
def test_names_are_shown_as_they_are_and_never_obeyed(run: Run, tmp_path: Path, name: str) -> None:
    """A name is text: no markup of tables, no command to the terminal."""
    source = document([server(name), server("t")], [accelerator(name, cost=1)], {name: 9})
    both(run, tmp_path, source)
    for command in ("solve", "candidates"):
        shown = run(command, tmp_path / "odd.json").out
        assert "\x1b" not in shown
        assert "\x07" not in shown
        if name.isprintable():
            assert shown.count(name) >= 2
    assert run("check", tmp_path / "odd.json").status == 0
