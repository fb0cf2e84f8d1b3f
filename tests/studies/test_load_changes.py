"""Load changes: every rate by one factor, or each at random, exactly as documented."""

from pathlib import Path

import numpy as np
import pytest
from builders import accelerator, server, system

from optimizer import SpecError, System, load_system, scale_loads, solve, vary_loads


def loads(source: System) -> dict[str, tuple[float, float, float]]:
    found = {name: item.current.load for name, item in source.servers.items()}
    return {name: (load.arrival_rate_rpm, load.in_tokens, load.out_tokens) for name, load in found.items()}


def test_scaling_multiplies_every_rate_and_nothing_else(specs: Path) -> None:
    sample = load_system(specs / "large")
    before, after = loads(sample), loads(scale_loads(sample, 1.5))
    assert {name: (1.5 * rate, *tokens) for name, (rate, *tokens) in before.items()} == after


def test_random_loads_are_drawn_as_documented(specs: Path) -> None:
    """One draw after the other: rate, prompt, answer, server by server in the order of the names."""
    sample = load_system(specs / "large")
    rng = np.random.default_rng(11)
    expected = {}
    for name, (rate, prompt, answer) in sorted(loads(sample).items()):
        factors = [float(rng.uniform(*ends)) for ends in ((0.5, 1.5), (0.8, 1.2), (0.8, 1.2))]
        expected[name] = (rate * factors[0], prompt * factors[1], answer * factors[2])
    assert loads(vary_loads(sample, np.random.default_rng(11))) == expected


def test_random_loads_depend_on_the_seed_only(specs: Path) -> None:
    sample = load_system(specs / "small")
    one, same, other = (vary_loads(sample, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert loads(one) == loads(same)
    assert loads(one) != loads(other)
    assert solve(one).to_json() == solve(same).to_json()


def test_idle_servers_stay_idle_and_outputs_keep_one_token() -> None:
    def with_tokens(name: str, rate: float, answer: float) -> dict[str, object]:
        load = {"arrivalRate": rate, "avgInTokens": 0, "avgOutTokens": answer}
        return server(name) | {"currentAlloc": {"load": load}}

    source = system(
        [with_tokens("idle", 0.0, 64), with_tokens("mute", 0.0, 0), with_tokens("short", 60.0, 1)],
        [accelerator("A")],
    )
    for seed in range(20):
        found = loads(vary_loads(source, np.random.default_rng(seed)))
        assert found["idle"][0] == 0
        assert found["mute"][2] == 0
        assert 1 <= found["short"][2] < 1.2
        assert found["short"][1] == 0


def test_a_rate_beyond_the_limit_is_refused_with_its_path() -> None:
    with pytest.raises(SpecError, match=r"servers\.a\.load\.arrivalRate: must be at most 1e\+15, not 6"):
        scale_loads(system([server("a", rate=60.0)], [accelerator("A")]), 1e14)
