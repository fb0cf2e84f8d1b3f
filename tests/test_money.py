"""Prices with a currency: read as cents, and shown as they were written wherever a cost is shown."""

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import builders
import pytest
from builders import accelerator, server, service_class
from slow_cases import mostly_slow

from optimizer import compare, explain, load_system, make_report, solve
from optimizer.cli.main import main
from optimizer.errors import SpecError
from optimizer.money import Price, currency_of, read_price
from optimizer.plan.files import plan_from_value
from optimizer.render.money import Money
from optimizer.render.pages import render_report
from optimizer.schema import Accelerator
from optimizer.section import FormattedValue
from optimizer.studies.figures.making import make_figure
from optimizer.units import UnitError


@pytest.mark.parametrize(
    ("text", "cents", "currency"),
    [
        ("$2.50/h", 250, "USD"),
        ("2.50 EUR/h", 250, "EUR"),
        ("€2.50/h", 250, "EUR"),
        ("2.50€/hour", 250, "EUR"),
        ("usd 0.29 / hr", 29, "USD"),
        ("250 cents/h", 250, None),
        ("730 CHF/month", 100, "CHF"),
        ("$48/day", 200, "USD"),
        ("£0.01/min", 60, "GBP"),
        ("300 JPY/h", 30_000, "JPY"),
    ],
)
def test_a_price_is_read_as_cents_per_hour_with_its_currency(
    text: str, cents: float, currency: str | None
) -> None:
    price = read_price(text)
    assert price == cents
    assert currency_of(price) == currency
    if isinstance(price, Price):
        assert read_price(str(price)) == price


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("$2.50", "the time is missing"),
        ("2,50 EUR/h", "give a number in cents/h"),
        ("¥3/h", "JPY or CNY"),
        ("3 XYZ/h", "currency 'XYZ' is not known"),
        ("2.50/h", "the currency is missing"),
        ("$2.50 EUR/h", "two currencies"),
        ("$2.50/fortnight", "the time 'fortnight' is not known"),
    ],
)
def test_what_is_no_price_is_refused_with_what_to_write(text: str, problem: str) -> None:
    with pytest.raises(SpecError, match="accelerators") as refused:
        load_system(document(text, 510))
    assert problem in str(refused.value)
    with pytest.raises(UnitError):
        read_price(text)


def document(first: object, second: object, **current: Any) -> dict[str, Any]:
    times = {"alpha": 10, "beta": 0.06, "gamma": 0.00007}
    load = {"arrivalRate": 600, "avgInTokens": 1024, "avgOutTokens": 256}
    return builders.document(
        [server("s", service="c") | {"currentAlloc": {"load": load, **current}}],
        [accelerator("A") | {"cost": first}, accelerator("B") | {"cost": second}],
        {"A": 2, "B": 8},
        classes=[service_class("c", ttft=500, itl=40)],
        models=[{"name": "m", "acc": acc, "maxBatchSize": 32, "perfParms": times} for acc in "AB"],
    )


PLAIN, DOLLARS = document(250, 510), document("$2.50/h", 510)


def test_a_price_keeps_its_currency_in_copies_and_in_files() -> None:
    item = Accelerator.model_validate({"name": "A", "type": "A", "cost": "2.50 EUR/h"})
    copies = [pickle.loads(pickle.dumps(item)), copy.deepcopy(item), Accelerator(**item.model_dump())]  # noqa: S301
    copies.append(Accelerator.model_validate_json(item.model_dump_json(by_alias=True)))
    assert {currency_of(each.cost_cents_per_h) for each in copies} == {"EUR"}
    assert item.model_dump(mode="json", by_alias=True)["cost"] == "2.50 EUR/h"


def test_two_currencies_are_rejected_with_both_places() -> None:
    with pytest.raises(SpecError) as refused:
        load_system(document("$2.50/h", "5.10 EUR/h"))
    assert str(refused.value) == (
        "accelerators[1].cost: a price in EUR; give all prices in one currency: there is one in USD at "
        "accelerators[0].cost"
    )
    running = {"accelerator": "A", "numReplicas": 1, "cost": "1 CHF/h"}
    with pytest.raises(SpecError, match=r"servers\[0\].currentAlloc.cost: a price in CHF"):
        load_system(document("$2.50/h", 510, **running))


def test_plan_contains_currency_only_if_stated() -> None:
    plain, dollars = solve(load_system(PLAIN)), solve(load_system(DOLLARS))
    assert "currency" not in plain.to_json()
    told = json.loads(dollars.to_json())
    assert told.pop("currency") == "USD"
    del told["warnings"]  # amounts without a unit beside a currency
    assert told | {"documentHash": plain.document_hash} == json.loads(plain.to_json())
    assert plan_from_value(json.loads(dollars.to_json())).currency == "USD"


def test_a_currency_of_what_runs_alone_counts_for_all() -> None:
    system = load_system(document(250, 510, accelerator="A", numReplicas=1, cost="$2.50/h"))
    assert system.currency == "USD"
    assert system.servers["s"].current.cost_cents_per_h == 250


@pytest.mark.slow
@pytest.mark.parametrize("command", mostly_slow(["solve", "candidates", "explain", "compare", "report"], 3))
def test_every_output_shows_the_currency(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = {}
    for name, raw in (("plain", PLAIN), ("dollars", DOLLARS)):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(raw))
        assert main([command, str(path)]) == 0
        shown[name] = capsys.readouterr().out
    assert "cents/h" in shown["plain"]
    assert "USD" not in shown["plain"]
    assert "USD/h" in shown["dollars"]
    assert "cents" not in shown["dollars"]


@pytest.mark.slow
def test_the_page_and_the_pictures_show_the_currency() -> None:
    system = load_system(DOLLARS)
    page = render_report(make_report(system), system, "html")
    assert "costs in USD/h" in page
    assert "cents" not in page
    for kind in ("plan", "servers", "types", "cost"):
        plain, dollars = (
            make_figure(load_system(raw), kind, server=None, accelerator=None).to_json()
            for raw in (PLAIN, DOLLARS)
        )
        assert "[cents/h]" in plain
        assert "USD/h" in dollars
        assert "cents" not in dollars


@pytest.mark.slow
def test_costs_in_two_currencies_are_not_compared() -> None:
    dollars, euros = (solve(load_system(document(price, 510))) for price in ("$2.50/h", "€2.50/h"))
    with pytest.raises(SpecError, match="first has costs in USD, second in EUR"):
        compare(dollars, euros)
    assert compare(dollars, solve(load_system(PLAIN))).same


@pytest.mark.slow
def test_an_explanation_keeps_cents_in_its_numbers() -> None:
    plain, dollars = explain(load_system(PLAIN)), explain(load_system(DOLLARS))
    assert [item.next_best for item in plain.servers] == [item.next_best for item in dollars.servers]


def test_amounts_are_written_in_one_way() -> None:
    assert Money().text(123456.789) == "123,456.79 cents/h"
    assert Money("USD").text(123456.789) == "1,234.57 USD/h"
    assert Money("USD").change(-250) == FormattedValue("-2.50", -2.5)
    assert Money("USD").change(0.1) == FormattedValue("0.00", 0.001)
