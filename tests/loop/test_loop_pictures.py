"""The pictures of docs/loop.md are those of the simulated fleet."""

import pytest
from loop_pictures import FOLDER, PICTURES

from optimizer.render.plots import draw


@pytest.mark.slow
@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_of_the_page_are_current(name: str) -> None:
    assert (FOLDER / f"{name}.svg").read_bytes() == draw(PICTURES[name](), "svg"), (
        "run tests/tools/loop_pictures.py"
    )


def test_the_page_shows_them() -> None:
    page = (FOLDER / "loop.md").read_text(encoding="utf-8")
    assert all(f"({name}.svg)" in page for name in PICTURES)
