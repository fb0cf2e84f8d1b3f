"""The picture of the architecture names every package of the program."""

from architecture_picture import READERS, STEPS, picture
from test_architecture import LAYERS, ROOT


def test_the_picture_is_current() -> None:
    shown = (ROOT / "docs" / "architecture.svg").read_text(encoding="utf-8")
    assert shown == picture(), "python tests/tools/architecture_picture.py > docs/architecture.svg"
    assert "(architecture.svg)" in (ROOT / "docs" / "design.md").read_text(encoding="utf-8")


def test_every_package_is_in_one_box() -> None:
    named = [name for packages in (*STEPS.values(), *READERS.values()) for name in packages]
    packages = {name.removeprefix("optimizer.") for layer in LAYERS for name in layer}
    folders = {name for name in packages if (ROOT / "optimizer" / name).is_dir()} | {"rest_server"}
    assert sorted(name for name in named if name in folders) == sorted(folders)
    assert packages >= set(named)
