"""The picture of the architecture is drawn from the imports in the code."""

from architecture_picture import essential, picture, reached
from test_architecture import ROOT


def test_the_picture_is_that_of_the_imports() -> None:
    shown = (ROOT / "docs" / "architecture.svg").read_text(encoding="utf-8")
    assert shown == picture(), "python tests/tools/architecture_picture.py > docs/architecture.svg"
    assert "(architecture.svg)" in (ROOT / "docs" / "design.md").read_text(encoding="utf-8")


def test_imports_that_follow_from_others_are_not_drawn() -> None:
    imports = {"a": {"b", "c", "d"}, "b": {"c"}, "c": set(), "d": {"c"}}
    assert essential(imports) == [("a", "b"), ("a", "d"), ("b", "c"), ("d", "c")]
    assert reached(imports, "a") == {"b", "c", "d"}
