"""Loads from a CSV file in place of a document's: what it replaces, and how it is refused."""

import re
from pathlib import Path

import pytest
from builders import accelerator, document, refusal, server, system

from optimizer import SpecError, System, load_system, solve
from optimizer.cli.main import main
from optimizer.spec.load_traces import read_load_trace, with_step
from optimizer.spec.loads import with_loads


@pytest.fixture
def fleet() -> System:
    """Two servers with 60 requests/min of 16 and 64 tokens."""
    return system([server("a"), server("b", 60.0)], [accelerator("A")])


def load_of(source: System, name: str) -> tuple[float, float, float]:
    load = source.servers[name].current.load
    return load.arrival_rate_rpm, load.in_tokens, load.out_tokens


def write(folder: Path, text: str) -> Path:
    path = folder / "loads.csv"
    path.write_text(text, encoding="utf-8")
    return path


# --- what it replaces --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "loads"),
    [
        ("server,arrivalRate,avgInTokens,avgOutTokens\nb,7.5,100,200\n", {"b": (7.5, 100, 200)}),
        ("server,avgOutTokens\na,32\n", {"a": (60, 16, 32)}),
        ("server,arrivalRate,avgInTokens\na,,32\nb,1, \n", {"a": (60, 32, 64), "b": (1, 16, 64)}),
        ("AVGINTOKENS, arrivalrate ,Server\n8,9,a\n", {"a": (9, 8, 64)}),
        ('server,arrivalRate\r\n\r\n"a", 5 \r\n"b",6\r\n,\r\n', {"a": (5, 16, 64), "b": (6, 16, 64)}),
        ("server,arrivalRate\ra,1\rb,2", {"a": (1, 16, 64), "b": (2, 16, 64)}),
        ("server,arrivalRate\n", {}),
    ],
)
def test_a_row_replaces_what_it_states_of_its_server_alone(
    text: str, loads: dict[str, tuple[float, float, float]], fleet: System, tmp_path: Path
) -> None:
    path = tmp_path / "loads.csv"
    path.write_bytes(text.encode())
    changed = with_loads(fleet, path)
    for name, before in fleet.servers.items():
        assert load_of(changed, name) == loads.get(name, (60, 16, 64))
        assert load_of(fleet, name) == (60, 16, 64)
        load = changed.servers[name].current.load
        current = before.current.model_copy(update={"load": load})
        assert changed.servers[name] == before.model_copy(update={"current": current})


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e"])
def test_only_ends_of_lines_end_a_row(separator: str, tmp_path: Path) -> None:
    names = [f"a{separator}b", f"{separator}c", "d"]
    system_of_three = system([server(name) for name in names], [accelerator("A")])
    text = "server,arrivalRate\n" + "".join(f"{name},{i}\n" for i, name in enumerate(names))
    changed = with_loads(system_of_three, write(tmp_path, text))
    assert [load_of(changed, name)[0] for name in names] == [0, 1, 2]


# --- requests without a length -----------------------------------------------------------------------------


NO_INPUT = "avgInTokens: missing, but 60 requests/min arrive; give the mean input length (0 for requests"
NO_ANSWERS = "avgOutTokens: 0 or missing, but 60 requests/min arrive; give the mean output length"
NEITHER = (
    "avgOutTokens: 0 or missing, and avgInTokens is missing, but 60 requests/min arrive; give the mean input"
)


@pytest.mark.parametrize(
    ("load", "problem"),
    [
        ({"arrivalRate": 60}, NEITHER),
        ({"arrivalRate": "1/s", "avgInTokens": 0, "avgOutTokens": 0}, NO_ANSWERS),
        ({"arrivalRate": 60, "avgInTokens": 9}, NO_ANSWERS),
        ({"arrivalRate": 60, "avgOutTokens": 9}, NO_INPUT),
        ({"arrivalRate": 60, "AVGOUTTOKENS": 9, "inTokensCV": 1}, NO_INPUT),
    ],
)
def test_requests_without_a_length_are_a_fault(load: dict[str, object], problem: str) -> None:
    source = document([server("a"), server("b")], [accelerator("A")])
    source["servers"][1]["currentAlloc"]["load"] = load
    found = refusal(lambda: load_system(source))
    assert found.startswith(f"servers[1].currentAlloc.load.{problem}")


def test_empty_prompts_and_idle_servers_are_accepted() -> None:
    source = document([server("a"), server("b")], [accelerator("A")])
    source["servers"][0]["currentAlloc"]["load"] = {"arrivalRate": 60, "avgInTokens": 0, "avgOutTokens": 9}
    source["servers"][1]["currentAlloc"]["load"] = {"arrivalRate": 0, "avgInTokens": 5, "avgOutTokens": 0}
    plan = solve(load_system(source))
    assert (len(plan.allocations["a"]), plan.allocations["b"]) == (1, ())


def test_rows_without_an_output_length_are_rejected(tmp_path: Path) -> None:
    source = document([server("a"), server("b", 0.0)], [accelerator("A")])
    del source["servers"][1]["currentAlloc"]["load"]["avgOutTokens"]
    fleet = load_system(source)
    path = write(tmp_path, "server,arrivalRate\na,1\nb,60\n")
    with pytest.raises(SpecError, match=re.escape(f"{path}:3: {NO_ANSWERS}")):
        with_loads(fleet, path)
    with pytest.raises(SpecError, match=re.escape(f"servers.b.load.{NO_ANSWERS}")):
        fleet.with_load("b", arrival_rate_rpm=60)
    text = "time,server,arrivalRate\n0,b,0\n60,b,60\n"
    with pytest.raises(SpecError, match=re.escape(f"{path}:3: {NO_ANSWERS}")):
        read_load_trace(fleet, write(tmp_path, text))
    both = with_loads(fleet, write(tmp_path, "server,arrivalRate,avgOutTokens\nb,60,64\n"))
    assert load_of(both, "b") == (60, 16, 64)


def test_an_input_length_must_be_stated_before_requests_arrive(tmp_path: Path) -> None:
    source = document([server("a"), server("b", 0.0)], [accelerator("A")])
    del source["servers"][1]["currentAlloc"]["load"]["avgInTokens"]
    fleet = load_system(source)
    path = write(tmp_path, "server,arrivalRate\na,1\nb,60\n")
    with pytest.raises(SpecError, match=re.escape(f"{path}:3: {NO_INPUT}")):
        with_loads(fleet, path)
    with pytest.raises(SpecError, match=re.escape(f"servers.b.load.{NO_INPUT}")):
        fleet.with_load("b", arrival_rate_rpm=60)
    with pytest.raises(SpecError, match=re.escape(f"{path}:3: {NO_INPUT}")):
        read_load_trace(fleet, write(tmp_path, "time,server,arrivalRate\n0,b,0\n60,b,60\n"))
    both = with_loads(fleet, write(tmp_path, "server,arrivalRate,avgInTokens\nb,60,0\n"))
    assert load_of(both, "b") == (60, 0, 64)
    again = both.with_load("b", arrival_rate_rpm=90)  # stated once, it stays stated
    assert load_of(again, "b") == (90, 0, 64)
    assert load_system(again.to_spec().model_dump(mode="json", by_alias=True, exclude_unset=True))


def test_offline_work_and_versions_need_an_input_length() -> None:
    offline = server("a", 0.0) | {"deadline": {"requests": 600, "hours": 1}}
    split = server("b") | {"split": [{"model": "m", "weight": 1}]}
    for item in (offline, split):
        source = document([item], [accelerator("A")])
        del source["servers"][0]["currentAlloc"]["load"]["avgInTokens"]
        with pytest.raises(SpecError, match="avgInTokens: missing, but"):
            load_system(source)


def test_the_command_line_plans_the_loads_of_the_file(
    tmp_path: Path, specs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = load_system(specs / "small")
    path = write(tmp_path, "server,arrivalRate\n" + "".join(f"{name},0\n" for name in small.servers))
    assert not main(["solve", str(specs / "small"), "--load", str(path), "--json"])
    assert '"totalCostCentsPerH": 0.0' in capsys.readouterr().out


# --- how it is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("server,arrivalRate\na,1\nc,1\n", 3, "server 'c' does not exist in the system"),
        ("server,arrivalRate\nA,1\n", 2, "server 'A' does not exist in the system; did you mean 'a'?"),
        ("server,arrivalRate\na,1\nb,1\na,2\n", 4, "server 'a' occurs twice"),
        ("server,arrivalRate\na,fast\n", 2, "arrivalRate: must be a number, not 'fast'"),
        ("server,arrivalRate\na,1.2.3\n", 2, "arrivalRate: must be a number, not '1.2.3'"),
        ("server,arrivalRate\n\na,1,2\n", 3, "3 fields, the header has 2"),
        ("server,arrivalRate,avgInTokens\na,1\n", 2, "2 fields, the header has 3"),
        ("server,arrivalRate\na,nan\n", 2, "arrivalRate: "),
        ("server,arrivalRate\na,inf\n", 2, "arrivalRate: "),
        ("server,arrivalRate\na,-1\n", 2, "arrivalRate: "),
        ("server,avgInTokens\na,-1\n", 2, "avgInTokens: "),
        ("server,avgOutTokens\na,NaN\n", 2, "avgOutTokens: "),
        ("server,rate\na,1\n", 1, "unknown column 'rate'; known: server, arrivalRate"),
        ("arrivalRate\n1\n", 1, "the header must name the column 'server'"),
        ("", 1, "the header must name the column 'server'"),
        ("server,server\na,b\n", 1, "server"),
        ("server,arrivalRate,arrivalrate\na,1,2\n", 1, "arrivalRate"),
        ("server,,arrivalRate\na,,2\n", 1, "unknown column ''"),
        ('server,arrivalRate\n"a,1\n', 2, "not valid CSV"),
        ('server,arrivalRate\n"a"x,1\n', 2, "not valid CSV"),
        ("server,avgOutTokens\na,0.5\n", 2, "avgOutTokens: must be 0 (idle) or at least 1"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line_with_its_place(
    text: str, line: int, message: str, fleet: System, tmp_path: Path
) -> None:
    path = write(tmp_path, text)
    found = refusal(lambda: with_loads(fleet, path))
    assert found.startswith(f"{path}:{line}: ")
    assert message in found


# --- routes ------------------------------------------------------------------------------------------------


def routed(name: str = "r") -> System:
    """Two servers with direct requests, and a route to `small` and `large` with 100 requests/min."""
    found = document([server("a"), server("b"), server("small", 0), server("large", 0)], [accelerator("A")])
    kind = {"share": 1, "inTokens": 16, "outTokens": 64}
    route = {"name": name, "small": "small", "large": "large", "arrivalRate": 100, "kinds": [kind]}
    return load_system({**found, "routes": [route]})


def test_a_row_of_a_route_replaces_its_rate(tmp_path: Path) -> None:
    changed = with_loads(routed(), write(tmp_path, "server,arrivalRate,avgInTokens\nr,2/s,\na,7,\n"))
    assert changed.routes["r"].arrival_rate_rpm == 120
    assert [load_of(changed, name)[0] for name in ("a", "b", "small", "large")] == [7, 60, 120, 120]


@pytest.mark.parametrize(
    "text",
    [
        "time,server,arrivalRate,avgOutTokens\n0,r,30,\n0,a,7,\n60,a,8,9\n120,r,5,\n",
        "time,r,a\n0,30,7\n60,,8\n120,5,\n",
    ],
)
def test_traces_name_routes_like_servers(text: str, tmp_path: Path) -> None:
    fleet = routed()
    steps = read_load_trace(fleet, write(tmp_path, text))
    assert [[item.name for item in step.items] for step in steps] == [["a", "r"], ["a"], ["r"]]
    systems = [with_step(fleet, step) for step in steps]
    assert [system.routes["r"].arrival_rate_rpm for system in systems] == [30, 100, 5]
    assert [load_of(system, "large")[0] for system in systems] == [30, 100, 5]
    assert [load_of(system, "a")[0] for system in systems] == [7, 8, 60]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("server,arrivalRate\nlarge,1\n", "2: server 'large' gets its load from route 'r'; give the load of"),
        ("server,arrivalRate\nr,1\nr,1\n", "3: route 'r' occurs twice"),
        ("server,arrivalRate\nr,-1\n", "2: arrivalRate: must be at least 0"),
        ("server,arrivalRate,avgInTokens\nr,1,2\n", "2: avgInTokens: the lengths of route 'r' are those of"),
        ("time,server,arrivalRate\n0,small,1\n", "2: server 'small' gets its load from route 'r'; give"),
        ("time,server,arrivalRate\n0,r,1\n0,r,1\n", "3: route 'r' occurs twice at this time"),
        ("time,server,avgOutTokens\n0,r,1\n", "2: avgOutTokens: the lengths of route 'r' are those of"),
        ("time,small\n0,1\n", "1: server 'small' gets its load from route 'r'; give the load of that route"),
    ],
)
def test_wrong_loads_of_routes_are_refused(text: str, message: str, tmp_path: Path) -> None:
    read = read_load_trace if text.startswith("time") else with_loads
    with pytest.raises(SpecError, match=re.escape(f"loads.csv:{message}")):
        read(routed(), write(tmp_path, text))


def test_a_name_of_a_server_and_a_route_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "server,arrivalRate\na,1\n")
    with pytest.raises(SpecError, match="2: 'a' is the name of a server and of a route; rename one of them"):
        with_loads(routed("a"), path)
    changed = with_loads(routed("large"), write(tmp_path, "server,arrivalRate\nlarge,1\n"))
    assert changed.routes["large"].arrival_rate_rpm == 1
