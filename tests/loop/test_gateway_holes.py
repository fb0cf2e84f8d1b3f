"""Arrivals that a gateway counts, with holes in its samples or in those of the replicas."""

from collections.abc import Callable

import numpy as np
import pytest
from recorded_samples import COUNTED, Series, answering, sampled, without
from simulated_fleet import chat_system

from rest_server.loop.config import LoopConfig, PrometheusSource
from rest_server.loop.estimators import offered_rps
from rest_server.loop.loads import LoadMemory, with_reading
from rest_server.loop.prometheus import PrometheusReader
from rest_server.loop.window import Counts, Hold, Reading, Window

SYSTEM = chat_system()
GATEWAYS, REPLICAS = ("gateway-0", "gateway-1"), ("a", "b")
ARRIVED = "llm_d_epp_request_total"
RATE_RPS, END_S, WINDOW_S = 4.0, 400.0, 60.0
SOURCE = {"kind": "prometheus", "url": "http://prometheus", "gatewayLabel": "server"}


def recorded() -> Series:
    """Return samples of two gateways with half of the arrivals each, and of replicas that complete half."""
    times = np.arange(0.0, END_S, 2 / RATE_RPS).tolist()
    gateways = sampled(dict.fromkeys(GATEWAYS, times), 0.0, END_S, 5.0)
    counted = {(name, ARRIVED): samples for (name, metric), samples in gateways.items() if metric == COUNTED}
    return counted | sampled(dict.fromkeys(REPLICAS, times[::2]), 0.0, END_S, 5.0)


def read(lost: Callable[[str, float], bool], now_s: float) -> Reading:
    source = PrometheusSource.model_validate(SOURCE)
    series = without(recorded(), lost)
    return PrometheusReader(answering(series), source, WINDOW_S).read(SYSTEM, now_s)["talk"]


@pytest.mark.slow
def test_a_gateway_counts_the_arrivals() -> None:
    for now_s in range(70, 401, 15):
        reading = read(lambda *_: False, float(now_s))
        assert isinstance(reading, Window)
        assert offered_rps(reading) == pytest.approx(RATE_RPS, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [GATEWAYS, GATEWAYS[:1], (*GATEWAYS, *REPLICAS)])
def test_a_hole_in_the_counts_of_a_gateway_gives_no_low_rate(lost: tuple[str, ...]) -> None:
    """One of two gateways, both, or an outage of Prometheus, for 45 s."""
    for now_s in range(150, 301, 5):
        reading = read(lambda name, at_s: name in lost and 150 < at_s <= 195, float(now_s))
        if 170 <= now_s < 195 + 0.9 * WINDOW_S - 5:
            assert isinstance(reading, Hold), now_s
        if isinstance(reading, Window):
            assert offered_rps(reading) >= 0.9 * RATE_RPS, now_s
            assert offered_rps(reading) <= 1.1 * RATE_RPS, now_s


@pytest.mark.slow
def test_a_hole_in_the_samples_of_replicas_changes_no_arrivals() -> None:
    for now_s in range(150, 301, 5):
        reading = read(lambda name, at_s: name in REPLICAS and 150 < at_s <= 195, float(now_s))
        if isinstance(reading, Window):
            assert offered_rps(reading) == pytest.approx(RATE_RPS, rel=0.02), now_s


def test_a_gateway_that_never_reports_is_named() -> None:
    reading = read(lambda name, _: name in GATEWAYS, 200.0)
    assert isinstance(reading, Hold)
    assert (reading.reason.value, reading.detail) == ("NoSeries", f"no metric {ARRIVED} for this server")


def test_a_gateway_that_leaves_holds_for_a_window() -> None:
    for now_s in range(180, 301, 5):
        reading = read(lambda name, at_s: name == GATEWAYS[0] and at_s > 150, float(now_s))
        assert isinstance(reading, Hold) == (now_s < 150 + WINDOW_S), now_s
        if isinstance(reading, Window):
            assert offered_rps(reading) == pytest.approx(RATE_RPS / 2, rel=0.02)


def test_replicas_that_do_not_report_change_no_counted_arrivals() -> None:
    """One of ten replicas does not report: the gateway still counts every request."""
    counts = Counts(span_s=60.0, arrived=240.0, first_tokens=216.0, completed=216.0)
    reading = Window(counts, waiting=9.0, running=1.0, reporting=9, expected=10)
    config = LoopConfig.model_validate({"system": "fleet", "source": SOURCE, "forecast": "none"})
    memory, hold = with_reading(reading, LoadMemory(), config, 1000.0)
    assert hold is None
    assert memory.load is not None
    assert memory.load.offered_rps == pytest.approx(4.0)
    assert memory.load.completions_rps == pytest.approx(4.0)
