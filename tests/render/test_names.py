"""Long names in little room: short enough, recognisable, and never two alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.render.names import GAP, shortened

MODELS = [
    f"meta-llama/Llama-3.1-{size}B-Instruct-{kind}" for size in (8, 70, 405) for kind in ("FP8", "INT8")
]


@given(
    names=st.lists(
        st.one_of(
            st.text(max_size=60),
            st.text("ab-/", max_size=40),
            st.builds(lambda middle: "M" * 30 + middle + "N" * 30, st.text("xyz", max_size=3)),
        ),
        max_size=30,
    ),
    limit=st.integers(4, 40),
)
def test_different_names_stay_different_and_fit(names: list[str], limit: int) -> None:
    found = shortened(names, limit)
    assert set(found) == set(names)
    assert len(set(found.values())) == len(found)
    for name, shown in found.items():
        assert len(shown) <= limit
        assert shown == name or (GAP in shown and len(name) > limit)


@pytest.mark.parametrize("limit", [14, 20, 30])
def test_what_tells_names_apart_is_kept(limit: int) -> None:
    for name, shown in shortened(MODELS, limit).items():
        _, _, _, size, _, kind = name.split("-")
        assert size in shown
        assert shown.endswith(kind)
        assert shown.startswith("meta")


def test_a_single_name_keeps_its_begin_and_its_end() -> None:
    (shown,) = shortened(MODELS[:1], 20).values()
    assert shown == "meta-llama/Llama…FP8"


def test_a_name_that_fits_is_shown_whole_even_beside_its_like() -> None:
    names = ["a…z", "abcdefghijklmnopqrstuvwxyz"]
    found = shortened(names, 5)
    assert found[names[0]] == names[0]
    assert found[names[1]] != names[0]


def test_the_width_may_be_measured_in_any_way() -> None:
    found = shortened(MODELS, 40.0, lambda text: 2.5 * len(text))
    assert max(map(len, found.values())) <= 16
