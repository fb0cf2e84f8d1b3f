"""Power: what draws it, beside published measurements, and its limits."""

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from builders import accelerator, document, server

from optimizer import load_system, solve
from optimizer.candidates import find_candidates
from optimizer.candidates.pairs import Pairs, arrays_of
from optimizer.candidates.replica_power import WEIGHTS_ACTIVITY, activity, power_at_rates_w, power_of_rows
from optimizer.profiles.catalogue import load_catalogue
from optimizer.queueing.performance import Performance
from optimizer.schema.accelerators import Power
from optimizer.studies.overview import describe

DECODE = Path(__file__).parent.parent / "data/power/decode.csv"
CURVE = {"idle": 99, "full": 700}


def performance(service_ms: float, p_empty: float) -> Performance:
    one = np.ones(1)
    values = dict.fromkeys(Performance.__dataclass_fields__, one)
    return Performance(**{**values, "service_ms": service_ms * one, "p_empty": p_empty * one})


def relative_errors(kind: str) -> np.ndarray:
    """Return the error of each measured run: the replica is always busy, and only decodes.

    The time of an iteration without a batch is the line through the two smallest batches.
    """
    runs: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    with DECODE.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["accelerator"] == kind:
                runs[row["model"], row["cards"]].append(row)
    facts, errors = load_catalogue().accelerator(kind), []
    curve = Power(idle_w=facts.idle_w or 0.0, full_w=facts.power_w or 0.0)
    for mine in runs.values():
        (b1, t1), (b2, t2) = sorted((float(row["batch"]), float(row["itl_ms"])) for row in mine)[:2]
        alone_ms = t1 - (t2 - t1) / (b2 - b1) * b1
        for row in mine:
            share = activity(performance(float(row["itl_ms"]), 0.0), np.array([alone_ms]))
            measured_w = float(row["power_w"]) / int(row["cards"])
            errors.append(float(curve.at(share)[0]) / measured_w - 1)
    return np.array(errors)


def test_the_errors_are_those_of_the_page_about_accuracy() -> None:
    page = (DECODE.parent.parent.parent.parent / "docs/fidelity.md").read_text(encoding="utf-8")
    h100, b200 = relative_errors("H100"), relative_errors("B200")
    for name, errors in (("H100", h100), ("B200", b200), ("all", np.array([*h100, *b200]))):
        size = np.abs(errors)
        row = (
            f"| {name} | {len(errors)} | {np.median(size):.1%} | {np.quantile(size, 0.8):.1%} | "
            f"{np.median(errors):+.1%} |"
        )
        assert row in page, row
    assert np.median(np.abs(h100)) < 0.10
    assert np.median(np.abs([*h100, *b200])) < 0.12


def test_batch_over_batch_limit_is_far_from_the_measurements() -> None:
    """A batch of 8 of 256 draws 443 W of 700, not 118."""
    curve = Power(idle_w=99, full_w=700)
    assert curve.at(np.array([8 / 256]))[0] == pytest.approx(118, abs=1)
    assert curve.at(activity(performance(12.54, 0.0), np.array([11.7])))[0] == pytest.approx(443, rel=0.05)


def test_activity_is_zero_when_idle_and_full_for_prompts_only() -> None:
    assert activity(performance(100.0, 1.0), np.array([50.0]))[0] == 0
    assert activity(performance(100.0, 0.0), np.array([0.0]))[0] == 1
    assert activity(performance(100.0, 0.0), np.array([100.0]))[0] == pytest.approx(WEIGHTS_ACTIVITY)
    assert activity(performance(100.0, 0.5), np.array([100.0]))[0] == pytest.approx(WEIGHTS_ACTIVITY / 2)


@pytest.mark.few(1)
@pytest.mark.parametrize("path", ["specs/small", "specs/batching-platform", "specs/long-prompts.yaml"])
def test_power_grows_with_the_rate_from_idle_to_at_most_full(path: str) -> None:
    system = load_system(path)
    candidates = find_candidates(system)
    arrays, table = arrays_of(system), candidates.table
    loaded = np.flatnonzero(arrays.servers.load_rps[table.server] > 0)[:40]
    powers = [Power(idle_w=100, full_w=700)] * len(arrays.accelerator_names)
    pairs = Pairs.of_rows(arrays, table.take(loaded))
    count = arrays.profiles.accelerators_per_replica[pairs.profile]
    before = 100.0 * count
    assert (power_at_rates_w(arrays, powers, pairs, np.zeros(len(loaded))) == before).all()
    for share in (0.2, 0.5, 0.8, 1.0):
        now = power_at_rates_w(arrays, powers, pairs, share * table.max_rate_rps[loaded])
        assert (now >= before * (1 - 1e-6)).all()
        assert (now <= 700 * count * (1 + 1e-9)).all()
        before = now


def test_reports_show_power_at_load_and_limits_at_max_rate() -> None:
    cards = [accelerator("H100") | {"power": CURVE}]
    system = load_system(document([server("chat", 300.0), server("idle", 0.0, replicas=1)], cards))
    row = {row.server: row for row in describe(system, solve(system)).pools}
    candidates = find_candidates(system)
    most = dict(
        zip(candidates.table.server.tolist(), power_of_rows(candidates, candidates.table), strict=True)
    )
    assert row["idle"].power_w == 99
    assert 99 + 601 * WEIGHTS_ACTIVITY / 2 < (row["chat"].power_w or 0) < most[0] <= 700
    assert most[1] == 700
    without = load_system(document([server("chat", 300.0)], [accelerator("H100")]))
    assert '"power"' not in describe(without, solve(without)).to_json()


def test_the_catalogue_knows_the_power_of_every_accelerator() -> None:
    for name in load_catalogue().accelerators:
        facts = load_catalogue().accelerator(name)
        assert facts.power_w is not None, name
        assert facts.idle_w is not None, name
        assert 0.02 * facts.power_w < facts.idle_w < 0.25 * facts.power_w, name
