"""Numbers with units, where documents, flags and files of loads take them."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from optimizer import load_system, units
from optimizer.cli.main import main
from optimizer.errors import SpecError
from optimizer.schema import SystemSpec
from optimizer.spec.loads import with_loads
from optimizer.units import Scale, UnitError


@pytest.mark.parametrize(
    ("scale", "text", "number"),
    [
        (units.MILLISECONDS, "500ms", 500),
        (units.MILLISECONDS, "1.5s", 1500),
        (units.MILLISECONDS, "250 µs", 0.25),
        (units.MILLISECONDS, "2 MIN", 120_000),
        (units.REQUESTS_PER_MINUTE, "10/s", 600),
        (units.REQUESTS_PER_MINUTE, "10 / min", 10),
        (units.REQUESTS_PER_MINUTE, "600 rpm", 600),
        (units.REQUESTS_PER_MINUTE, "10 req/s", 600),
        (units.REQUESTS_PER_MINUTE, "90 requests/h", 1.5),
        (units.REQUESTS_PER_SECOND, "90 rpm", 1.5),
        (units.TOKENS_PER_SECOND, "20 tokens/s", 20),
        (units.TOKENS_PER_SECOND, "1.2e3 tokens/min", 20),
        (units.GIGABYTES, "80 GiB", 85.89934592),
        (units.GIGABYTES_PER_SECOND, "3.35 TB/s", 3350),
        (units.WATTS, "0.7kW", 700),
        (units.SHARE, "0.1%", 0.001),
        (units.MILLISECONDS_PER_TOKEN, "20us/token", 0.02),
        (units.MILLISECONDS_PER_REQUEST, "0.5 ms/request", 0.5),
        (units.SECONDS, "2min", 120),
    ],
)
def test_numbers_with_units_are_converted(scale: Scale, text: str, number: float) -> None:
    assert scale.read(text) == number
    assert scale.read(repr(float(number))) == number


@pytest.mark.parametrize(
    "text", ["", "ms", "5 parsecs", "1,5s", "5 ms s", "1e999999999s", "0x5 ms", "٣ms", "5" * 99]
)
def test_invalid_quantities_are_rejected_with_valid_units(text: str) -> None:
    with pytest.raises(UnitError):
        units.MILLISECONDS.number(text)


@given(st.floats(0, 1e12, allow_nan=False), st.sampled_from(["ms", "s", "us", "min"]))
def test_a_unit_scales_to_the_nearest_float(number: float, unit: str) -> None:
    factor = {"ms": 1, "s": 1000, "us": 0.001, "min": 60_000}[unit]
    assert units.MILLISECONDS.number(f"{number!r}{unit}") == pytest.approx(number * factor, rel=1e-15)


def document(**server_load: object) -> dict[str, Any]:
    return {
        "accelerators": [
            {"name": "A", "type": "A", "cost": 250, "memSize": "80GB", "power": {"full": "0.7kW"}}
        ],
        "models": [
            {"name": "m", "acc": "A", "maxBatchSize": 8, "perfParms": {"alpha": "10ms", "beta": "60us/token"}}
        ],
        "serviceClasses": [
            {"name": "c", "modelTargets": [{"model": "m", "slo-ttft": "1.5s", "maxLoss": "0.5%"}]}
        ],
        "servers": [{"name": "s", "class": "c", "model": "m", "currentAlloc": {"load": server_load}}],
        "optimizer": {"timeLimit": "1min", "gap": "0.1%", "unlimited": True},
    }


def test_every_number_of_a_document_may_have_its_unit() -> None:
    system = load_system(document(arrivalRate="10/s", avgInTokens="1024 tokens", avgOutTokens=256))
    load = system.servers["s"].current.load
    assert (load.arrival_rate_rpm, load.in_tokens) == (600, 1024)
    assert system.accelerators["A"].memory_gb == 80
    assert system.accelerators["A"].power.full_w == 700
    profile = system.profiles["m", "A"].iteration
    assert profile is not None
    assert (profile.base_ms, profile.compute_per_token_ms) == (10, 0.06)
    target = system.targets["c", "m"]
    assert (target.ttft_ms, target.max_loss) == (1500, 0.005)
    assert (system.options.time_limit_s, system.options.gap) == (60, 0.001)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("10 parsecs", "'10 parsecs': give a number, or one with a unit: /s, /min, rps or rpm"),
        ("ten", 'must be a number, not "ten"'),
        ("600", 'must be a number, not "600"'),
        ("-1/s", "must be at least 0, not -1/s"),
        ("1e300/s", "must be at most 16,666,666,666,667/s, not 1e300/s"),
    ],
)
def test_a_wrong_quantity_is_refused_at_its_place(value: str, problem: str) -> None:
    with pytest.raises(SpecError) as refused:
        load_system(document(arrivalRate=value))
    assert str(refused.value) == f"servers[0].currentAlloc.load.arrivalRate: {problem}"


def test_the_schema_says_how_a_quantity_may_be_written() -> None:
    rate = SystemSpec.model_json_schema(by_alias=True)["$defs"]["Load"]["properties"]["arrivalRate"]
    assert rate["anyOf"][0] == {"type": "number", "minimum": 0, "maximum": 1e15}
    assert rate["anyOf"][1]["pattern"].endswith("(/s|/min|rps|rpm)$")
    assert rate["default"] == 0


def test_the_wire_of_the_reference_has_plain_numbers_only() -> None:
    from optimizer.documents import NUMBERS_ONLY

    with pytest.raises(ValidationError):
        SystemSpec.model_validate(document(arrivalRate="10/s"), context=NUMBERS_ONLY)


def test_loads_from_a_file_may_have_units(tmp_path: Path) -> None:
    path = tmp_path / "loads.csv"
    path.write_text("server,arrivalRate,avgInTokens\ns,2/s,512 tokens\n")
    stated = load_system(document(arrivalRate=1, avgInTokens=0, avgOutTokens=9))
    load = with_loads(stated, path).servers["s"].current.load
    assert (load.arrival_rate_rpm, load.in_tokens) == (120, 512)


def test_flags_take_units(capsys: pytest.CaptureFixture[str]) -> None:
    replica = ["--max-batch", "8", "--in-tokens", "128 tokens", "--out-tokens", "64", "--json"]
    plain = ["--iteration-base", "10", "--compute-per-token", "0.06", "--kv-read-per-token", "0.0001"]
    told = ["--iteration-base", "10ms", "--compute-per-token", "60us/token", "--kv-read-per-token", "0.1 us"]
    assert main(["analyze", "--rate", "2", *plain, *replica]) == 0
    first = json.loads(capsys.readouterr().out)
    assert main(["analyze", "--rate", "120 rpm", *told, *replica]) == 0
    assert json.loads(capsys.readouterr().out) == first
    with pytest.raises(SystemExit):
        main(["size", "--target-ttft", "1 parsec", *plain, *replica])
    assert "ms, s, us or min" in capsys.readouterr().err
