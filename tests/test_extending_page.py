"""The page about extensions shows the code that the tests of extensions run."""

from extending_page import BLOCK, PAGE, filled


def test_the_blocks_are_those_of_the_tests() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert {block[1] for block in BLOCK.findall(page)} >= {
        "tests/test_a_new_kind.py",
        "tests/test_a_new_law.py",
        "tests/test_a_new_limit.py",
        "tests/test_a_new_study.py",
    }
    assert page == filled(page), "python tests/extending_page.py"
