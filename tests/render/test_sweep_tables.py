"""A sweep on the screen and in its picture."""

import pytest
from builders import accelerator, server, system
from shown_text import row, text_of

from optimizer.jobs.sweeping import SweepOptions, sweep_system
from optimizer.render.sweep_sections import sweep_sections
from optimizer.studies.figures.figure_document import CurvePanel
from optimizer.studies.sweep.sweep_figure import sweep_figure


@pytest.mark.parametrize(
    ("option", "label"),
    [
        ({"maxPower": 300}, "power"),
        ({"budget": 45}, "budget"),
        ({"rollout": "all"}, "L4 during a roll-out"),
        ({}, "L4"),
    ],
)
def test_the_limit_that_binds_is_named(option: dict[str, object], label: str) -> None:
    card = accelerator("L4", cost=10.0)
    card["power"] = {"idle": 20, "full": 70, "midPower": 60, "midUtil": 0.5}
    source = system(
        [server("chat", replicas=6, surge=1.0 if "rollout" in option else 0.0)],
        [card],
        {"L4": 9 if option else 5},
        **option,
    )
    found = sweep_system(source, SweepOptions(vary=("load=1",)))
    table = text_of(sweep_sections(found)).partition("Plans")[2]
    words = row(table, "1")
    assert " ".join(words[4:]) == label
    panel = sweep_figure(found).panels[-1]
    assert isinstance(panel, CurvePanel)
    assert [item.name for item in panel.series] == [label]
