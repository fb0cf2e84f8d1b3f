"""A rejection by a percentile names the spread of lengths that was assumed, and the fields that state it."""

from pathlib import Path

from optimizer.candidates.finder import find_candidates
from optimizer.spec.system import load_system

DOCUMENT = Path(__file__).parents[1] / "data" / "benchmarks" / "14-cv-message" / "f.yaml"


def details(path: Path) -> list[str]:
    system = load_system(path).with_options(estimates="middle")
    return [rejection.detail for rejection in find_candidates(system).rejections()]


def test_the_assumed_spread_of_lengths_is_named(tmp_path: Path) -> None:
    found = [detail for detail in details(DOCUMENT) if "does not fit" not in detail]
    assert len(found) == 3
    for detail in found:
        assert detail.endswith(
            "; the p95 rests on lengths with an assumed coefficient of variation of 1: state inTokensCV and "
            "outTokensCV"
        ), detail
    stated = tmp_path / "stated.yaml"
    text = DOCUMENT.read_text(encoding="utf-8")
    lengths = "avgOutTokens: 200, inTokensCV: 0.96, outTokensCV: 0.77"
    stated.write_text(text.replace("avgOutTokens: 200", lengths), encoding="utf-8")
    assert not any("assumed" in detail for detail in details(stated))
    means = tmp_path / "means.yaml"
    means.write_text(text.replace(", percentile: 95", "").replace("4s", "1s"), encoding="utf-8")
    assert not any("assumed" in detail for detail in details(means))
