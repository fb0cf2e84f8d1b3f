"""Loads from a CSV file in place of a document's: what it replaces, and how it is refused."""

import re
from pathlib import Path

import pytest
from builders import accelerator, document, server, system

from optimizer import SpecError, System, load_system, solve
from optimizer.cli.main import main
from optimizer.spec.load_traces import read_load_trace
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


def test_a_row_replaces_the_load_of_its_server_and_of_no_other(fleet: System, tmp_path: Path) -> None:
    path = write(tmp_path, "server,arrivalRate,avgInTokens,avgOutTokens\nb,7.5,100,200\n")
    changed = with_loads(fleet, path)
    assert load_of(changed, "b") == (7.5, 100, 200)
    assert load_of(changed, "a") == (60, 16, 64)
    assert load_of(fleet, "b") == (60, 16, 64)  # the system itself stays as it was


def test_columns_that_are_not_there_stay_as_in_the_document(fleet: System, tmp_path: Path) -> None:
    changed = with_loads(fleet, write(tmp_path, "server,avgOutTokens\na,32\n"))
    assert load_of(changed, "a") == (60, 16, 32)


def test_fields_that_are_empty_stay_as_in_the_document(fleet: System, tmp_path: Path) -> None:
    text = "server,arrivalRate,avgInTokens,avgOutTokens\na,,32,\nb,1, ,\n"
    changed = with_loads(fleet, write(tmp_path, text))
    assert load_of(changed, "a") == (60, 32, 64)
    assert load_of(changed, "b") == (1, 16, 64)


def test_columns_come_in_any_order_and_any_case(fleet: System, tmp_path: Path) -> None:
    changed = with_loads(fleet, write(tmp_path, "AVGINTOKENS, arrivalrate ,Server\n8,9,a\n"))
    assert load_of(changed, "a") == (9, 8, 64)


def test_csv_whitespace_quotes_and_line_ends_are_ignored(fleet: System, tmp_path: Path) -> None:
    changed = with_loads(
        fleet,
        write(tmp_path, 'server,arrivalRate\r\n\r\n "a" , 5 \r\n"b",6\r\n,\r\n'.replace(' "a" ', '"a"')),
    )
    assert (load_of(changed, "a")[0], load_of(changed, "b")[0]) == (5, 6)


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e"])
def test_only_ends_of_lines_end_a_row(separator: str, tmp_path: Path) -> None:
    names = [f"a{separator}b", f"{separator}c", "d"]
    system_of_three = system([server(name) for name in names], [accelerator("A")])
    text = "server,arrivalRate\n" + "".join(f"{name},{i}\n" for i, name in enumerate(names))
    changed = with_loads(system_of_three, write(tmp_path, text))
    assert [load_of(changed, name)[0] for name in names] == [0, 1, 2]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_rows_end_as_on_any_machine(end: str, fleet: System, tmp_path: Path) -> None:
    path = tmp_path / "loads.csv"
    path.write_bytes(end.join(["server,arrivalRate", "a,1", "b,2"]).encode())
    changed = with_loads(fleet, path)
    assert [load_of(changed, name)[0] for name in "ab"] == [1, 2]


def test_a_load_of_zero_makes_a_server_idle(fleet: System, tmp_path: Path) -> None:
    changed = with_loads(fleet, write(tmp_path, "server,arrivalRate\na,0\n"))
    assert solve(changed).allocations["a"] == ()


# --- requests without an output length ---------------------------------------------------------------------


NO_ANSWERS = "avgOutTokens: 0 or missing, but 60 requests/min arrive; give the mean output length"


@pytest.mark.parametrize("load", [{"arrivalRate": 60}, {"arrivalRate": "1/s", "avgOutTokens": 0}])
def test_requests_without_an_output_length_are_a_fault(load: dict[str, object]) -> None:
    source = document([server("a"), server("b")], [accelerator("A")])
    source["servers"][1]["currentAlloc"]["load"] = load
    with pytest.raises(SpecError) as caught:
        load_system(source)
    assert str(caught.value).startswith(f"servers[1].currentAlloc.load.{NO_ANSWERS}")


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


def test_a_header_alone_changes_nothing(fleet: System, tmp_path: Path) -> None:
    assert with_loads(fleet, write(tmp_path, "server,arrivalRate\n")) == fleet


def test_everything_else_about_a_server_stays(fleet: System, tmp_path: Path) -> None:
    changed = with_loads(fleet, write(tmp_path, "server,arrivalRate\na,5\n"))
    before, after = fleet.servers["a"], changed.servers["a"]
    assert after.model_copy(update={"current": before.current}) == before
    assert after.current.model_copy(update={"load": before.current.load}) == before.current


def test_the_command_line_plans_the_loads_of_the_file(
    tmp_path: Path, specs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = load_system(specs / "small")
    path = write(tmp_path, "server,arrivalRate\n" + "".join(f"{name},0\n" for name in small.servers))
    assert not main(["solve", str(specs / "small"), "--load", str(path), "--json"])
    assert '"totalCost": 0.0' in capsys.readouterr().out


# --- how it is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("server,arrivalRate\na,1\nc,1\n", 3, "server 'c' does not exist in the system"),
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
    with pytest.raises(SpecError) as caught:
        with_loads(fleet, path)
    said = str(caught.value)
    assert said.startswith(f"{path}:{line}: ")
    assert message in said
    assert "\n" not in said
