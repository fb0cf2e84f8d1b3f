"""A system as arrays: the figures that the model takes, from definitions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from builders import accelerator, document, server, service_class

from optimizer import load_system
from optimizer.candidates.arrays import tabulate


def load_rps(tps: float, out_tokens: float, rate_rpm: float = 60.0) -> float:
    """Return the load that a server with a throughput target is sized for [requests/s]."""
    asked = server("s", rate_rpm)
    asked["currentAlloc"]["load"] = {
        "arrivalRate": rate_rpm,
        "avgInTokens": 640,
        "avgOutTokens": out_tokens,
    }
    source = document([asked], [accelerator("A")], classes=[service_class("gold", tps=tps)])
    return float(tabulate(load_system(source)).servers.load_rps[0])


@pytest.mark.parametrize("out_tokens", [1.0, 1.25, 2.0, 3.0, 7.5, 1000.0])
@pytest.mark.parametrize("tps", [0.5, 1000.0, 20_000.0])
def test_throughput_targets_are_divided_by_the_output_length(tps: float, out_tokens: float) -> None:
    """The reference: TPS/K_out in place of the arrival rate, K_out the mean output length."""
    assert load_rps(tps, out_tokens) == float(Fraction(tps) / Fraction(out_tokens))


def test_a_throughput_target_takes_the_place_of_the_arrival_rate() -> None:
    assert load_rps(128.0, 64.0, 1.0) == load_rps(128.0, 64.0, 9999.0) == 2.0
    assert load_rps(0.0, 64.0, 90.0) == 1.5  # without one: 90 requests/min


@pytest.mark.parametrize(("rate_rpm", "out_tokens"), [(0.0, 64.0), (0.0, 0.0)])
def test_what_is_idle_has_no_load_whatever_its_target(rate_rpm: float, out_tokens: float) -> None:
    with np.errstate(all="raise"):
        found = load_rps(1000.0, out_tokens, rate_rpm)
    assert found == 0
    assert not math.copysign(1, found) < 0


def test_a_system_without_servers_has_arrays_without_rows() -> None:
    arrays = tabulate(load_system(document([], [accelerator("A")], {"A": 3})))
    assert arrays.server_names == ()
    assert arrays.profile_of.shape == arrays.servers.allowed.shape == (0, 1)
