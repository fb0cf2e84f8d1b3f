"""Numbers in sentences: singular and plural, thousands, and no powers of ten."""

import re
from pathlib import Path

import pytest
from builders import accelerator, document, server, service_class
from hypothesis import given
from hypothesis import strategies as st

from optimizer.cli.main import main
from optimizer.quantities import be, counted, counted_of, parts_text, percent, quantity, share_text
from optimizer.spec.writing import write_document

EXPONENT = re.compile(r"\d[eE][+-]?\d")
NOUNS = (
    "cards replicas servers requests pools accelerators plans hours runs tokens types models profiles "
    "classes targets changes candidates columns stages seconds minutes"
)
ONE_OF_MANY = re.compile(rf"(?<![\d.,/:x-])\b1 (?:{'|'.join(NOUNS.split())})\b[^\n]*")
"""The number one before a plural, such as ``1 cards``."""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-1_200_000.0, "-1,200,000"),
        (1234.5, "1,234"),
        (999.96, "1,000"),
        (12.3456, "12.35"),
        (0.00012, "0.00012"),
        (1e-7, "0.0000001"),
        (1e-30, "1e-30"),
        (2e15, "2e+15"),
    ],
)
def test_quantities_have_four_digits_and_no_power_of_ten(value: float, text: str) -> None:
    assert quantity(value) == text


@given(st.floats(1e-9, 1e14), st.integers(2, 10))
def test_a_quantity_reads_back_as_the_number_to_so_many_digits(value: float, digits: int) -> None:
    text = quantity(value, digits)
    assert not EXPONENT.search(text)
    assert float(text.replace(",", "")) == pytest.approx(value, rel=0.5000001 * 10.0 ** (1 - digits))
    assert quantity(-value, digits, sign=True) == f"-{text}"
    assert quantity(value, digits, sign=True) == f"+{text}"


def test_counts_agree_with_their_noun_and_verb() -> None:
    assert [counted(n, "card") for n in (0, 1, 2000)] == ["0 cards", "1 card", "2,000 cards"]
    assert counted(1, "capacity", "capacities") == "1 capacity"
    assert counted(2, "capacity", "capacities") == "2 capacities"
    assert [counted(x, "hour") for x in (1.0, 0.5)] == ["1 hour", "0.5 hours"]
    assert [be(n) for n in (0, 1, 2)] == ["are", "is", "are"]


def test_shares_do_not_read_as_nothing_or_all() -> None:
    assert [share_text(x) for x in (0.0, 0.001, 0.5, 0.999, 1.0)] == ["0%", "<1%", "50%", ">99%", "100%"]
    assert [percent(x) for x in (0.0, 0.5, 1e-4, 5e-5, 1.234e-8)] == [
        "0.00%", "50.00%", "0.01%", "0.005%", "0.0000012%",
    ]  # fmt: skip


# --- at the command line ---------------------------------------------------------------------------------


def printed(source: Path, capsys: pytest.CaptureFixture[str], *commands: str) -> str:
    for command in commands:
        assert main([*command.split(), str(source)]) in {0, 3}
    shown = capsys.readouterr()
    return shown.out + shown.err


@pytest.mark.slow
@pytest.mark.parametrize("rate", [4e6, 1e-5], ids=["large", "small"])
def test_loads_and_changes_of_loads_have_no_power_of_ten(
    rate: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = document(
        [server("s", rate), server("t", rate / 2, service="free")],
        [accelerator("A")],
        {"A": 8000 if rate > 1 else 1},
        classes=[service_class("gold", ttft=1e6), service_class("free", 2)],
        saturationPolicy="PriorityExhaustive",
    )
    write_document(source, tmp_path / "s.json")
    text = printed(
        tmp_path / "s.json", capsys,
        "solve --wide", "explain", "explain --server s", "compare --scale 2 --wide", "report",
        "candidates --wide",
    )  # fmt: skip
    assert "requests/min" in text
    assert not EXPONENT.search(text), EXPONENT.search(text)


@pytest.mark.slow
def test_one_of_a_thing_is_singular(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = document(
        [server("s", replicas=1)], [accelerator("A")], {"A": 1}, classes=[service_class("gold", itl=50)]
    )
    none = document([server("s", replicas=2)], [accelerator("A")], {"A": 1})
    for name, made in (("one", source), ("none", none)):
        write_document(made, tmp_path / f"{name}.json")
    loads = tmp_path / "loads.csv"
    loads.write_text("time,s\n0,60\n3600,60\n")
    text = "".join(
        printed(
            tmp_path / f"{name}.json", capsys,
            "check", "solve", "explain", "explain --server s", "compare", "compare --scale 3", "report",
            "candidates", f"replay {loads}",
        )
        for name in ("one", "none")
    )  # fmt: skip
    assert "1 card" in text
    assert not ONE_OF_MANY.findall(text)


def test_a_part_is_counted_with_its_whole() -> None:
    texts = [counted_of(number, total, "server") for number, total in ((5, 10), (10, 10), (1, 1), (0, 0))]
    assert texts == ["5 of 10 servers", "all 10 servers", "1 server", "0 servers"]


@pytest.mark.parametrize(
    ("part", "total", "texts"),
    [
        (206.84, 248.79, ("206.8", "42.0", "248.8")),  # the rest is 41.95
        (5.0, 20.0, ("5", "15", "20")),
        (0.0, 2.5, ("0", "2.5", "2.5")),
        (1234.5, 23456.7, ("1,234", "22,223", "23,457")),
        (0.001, 100.0, ("0.001", "100", "100")),
        (0.0, 0.0, ("0", "0", "0")),
    ],
)
def test_parts_add_up_as_shown(part: float, total: float, texts: tuple[str, str, str]) -> None:
    assert parts_text(part, total) == texts
