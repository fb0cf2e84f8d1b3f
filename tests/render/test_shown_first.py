"""Figures are never empty, types never share a colour, and numbers of estimates equal those of `size`."""

from pathlib import Path

import pytest

from optimizer import load_system
from optimizer.cli.main import main
from optimizer.kinds.replicas import LatencyTargets, size_replicas
from optimizer.profiles.deployment import Deployment
from optimizer.profiles.estimate import estimate_profile
from optimizer.profiles.numbers import ITL_MS, TTFT_MS, EstimateNumbers
from optimizer.profiles.replicas import estimate_replica
from optimizer.render.colours import type_colours
from optimizer.studies.figures.figure_document import CurvePanel
from optimizer.studies.figures.making import make_figure


def test_a_cost_figure_compares_costs_in_one_unit(specs: Path) -> None:
    figure = make_figure(load_system(specs / "gpus.yaml"), "cost", server="chat-llama-3.1-8b")
    (panel,) = figure.panels
    assert isinstance(panel, CurvePanel)
    assert {series.name for series in panel.series} == {"A100", "H100", "H200"}


@pytest.mark.slow
def test_an_empty_figure_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], specs: Path) -> None:
    path = tmp_path / "x.svg"
    words = ["plot", "nodes", str(specs / "queue-servers"), "-o", str(path)]
    assert main(words) == 2
    assert "the plan has no nodes" in capsys.readouterr().err
    assert not path.exists()


def test_types_never_share_a_colour() -> None:
    names = [f"{place}-{card}" for place in ("eu", "us", "ap") for card in ("H100", "A100", "L4")]
    names += [f"T{number}" for number in range(30)]
    colours = type_colours(names)
    assert len(set(colours.values())) == len(names)
    assert type_colours(names[:3])["eu-H100"] == colours["eu-H100"]


@pytest.mark.slow
def test_largest_load_of_an_estimate_is_that_of_size() -> None:
    numbers = EstimateNumbers(estimate_profile("llama-3.1-8b", "H100"))
    replica = estimate_replica("llama-3.1-8b", "H100", Deployment(), {}, end="upper").replica
    (sized,) = size_replicas([replica], [LatencyTargets.model_validate({"itl": ITL_MS, "ttft": TTFT_MS})])
    assert numbers.largest_load_rps is not None
    assert numbers.largest_load_rps.low == pytest.approx(sized.max_rate_rps)  # type: ignore[union-attr]
    first, last = numbers.users[0], numbers.users[-1]
    assert first.per_user_tps > last.per_user_tps
    assert first.per_card_tps < last.per_card_tps
