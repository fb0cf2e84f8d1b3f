"""The page about shared queues says what the program says."""

from shared_queue_page import PAGE, written


def test_the_figures_of_the_page_are_those_of_the_program() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert written(page) == page
