"""The page about routes says what the program says."""

from route_page import PAGE, written


def test_the_figures_of_the_page_are_those_of_the_program() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert written(page) == page
