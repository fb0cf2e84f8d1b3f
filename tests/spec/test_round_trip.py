"""Documents survive JSON, YAML and Python: what is written is what was read."""

import json
from pathlib import Path

import pytest
import strategies
import yaml
from builders import Json, accelerator, document, server
from hypothesis import example, given
from hypothesis import strategies as st

from optimizer import load_system
from optimizer.schema.files import parse_part, read_parts
from optimizer.spec.system import join_parts, joined_document
from optimizer.spec.writing import write_document

MISREAD = (
    "no", "yes", "on", "Off", "true", "null", "~", "", "1", "1e5", "1_000", "0o7", "0x1F", "007", "12:30:45",
    "2001-01-01", ".inf", ".nan", "-", "- a", "a: b", "a #b", "#a", "&a", "*a", "!a", "%a", "@a", "`a", "|",
    ">", "[a", "{a", "'a", '"a', "<<", "=", "...", "---", " a", "a ", "a\nb", "a\tb", "\u2028", "\x85",
    "\ufeffa", "é", "模型", "😀", "\x7f", "a" * 200 + " " + "b" * 50,
)  # fmt: skip
"""Text that a careless writer or reader of YAML takes for something else."""

names = st.one_of(
    st.sampled_from([text for text in MISREAD if text]),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
)
quantities = st.one_of(
    st.integers(0, 10**9).map(float),
    st.floats(0, 1e15, allow_nan=False, allow_subnormal=False),
    st.sampled_from([1e-9, 1e15, 5e-324, 0.1, 1 / 3]),
)


@st.composite
def documents(draw: st.DrawFn) -> Json:
    """Return a system with two models and hostile names, some keys given and some not."""
    accelerators = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    models = draw(st.lists(names, min_size=1, max_size=2, unique=True))
    gold = draw(names)
    servers = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    return {
        "accelerators": [
            {"name": name, "type": draw(names), "cost": draw(quantities)} for name in accelerators
        ],
        "models": [
            {"name": model, "acc": name, "decodeParms": {"alpha": draw(quantities)}}
            for model in models
            for name in accelerators
        ],
        "serviceClasses": [
            {"name": gold, "modelTargets": [{"model": models[0], "slo-itl": draw(quantities)}]}
        ],
        "servers": [
            {"name": name, "class": gold, "model": draw(st.sampled_from(models)), "keepAccelerator": False}
            | draw(st.sampled_from([{}, {"maxQueueSize": 0}, {"accelerators": accelerators[:1]}]))
            for name in servers
        ],
        "optimizer": draw(
            st.sampled_from([{}, {"unlimited": True}, {"gap": 0.0, "saturationPolicy": "None"}])
        ),
    }


@pytest.mark.slow
@given(documents())
@example({"servers": [{"name": text or "x", "model": text or "x"} for text in MISREAD]})
def test_a_document_survives_json_to_yaml_to_json(
    tmp_path_factory: pytest.TempPathFactory, source: Json
) -> None:
    folder = tmp_path_factory.mktemp("trip")
    first = joined_document([parse_part(json.dumps(source))])
    write_document(first, folder / "a.yaml")
    second = joined_document(read_parts(folder / "a.yaml"))
    write_document(second, folder / "b.json")
    third = joined_document(read_parts(folder / "b.json"))
    assert first == second == third
    assert json.loads((folder / "b.json").read_text(encoding="utf-8")) == third


@given(documents())
def test_another_yaml_reader_reads_the_same_text(
    tmp_path_factory: pytest.TempPathFactory, source: Json
) -> None:
    """Numbers apart (YAML 1.1 has its own idea of ``1e+16``), readers of YAML 1.1 see the same names."""
    path = tmp_path_factory.mktemp("other") / "a.yaml"
    write_document(source, path)
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    for section in ("accelerators", "models", "serviceClasses", "servers"):
        assert [item["name"] for item in found[section]] == [item["name"] for item in source[section]]


@given(documents() | strategies.documents)
def test_a_system_survives_its_own_document(source: Json) -> None:
    system = load_system(source)
    spec = system.to_spec()
    assert load_system(spec.model_dump(mode="json", by_alias=True)) == system
    assert load_system(spec.model_dump(mode="json", by_alias=True, exclude_unset=True)) == system
    assert load_system(json.loads(spec.model_dump_json(by_alias=True))) == system


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["small", "large"])
@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_the_sample_systems_survive_conversion(tmp_path: Path, specs: Path, name: str, suffix: str) -> None:
    parts = read_parts(specs / name)
    write_document(joined_document(parts), tmp_path / f"whole{suffix}")
    assert load_system(tmp_path / f"whole{suffix}") == join_parts(parts)


def test_the_joined_document_holds_only_what_was_given() -> None:
    part = parse_part("servers: [{name: s, model: m, currentalloc: {LOAD: {arrivalrate: 1}}, class: null}]")
    assert joined_document([part]) == {
        "servers": [{"name": "s", "model": "m", "currentAlloc": {"load": {"arrivalRate": 1.0}}}]
    }


def test_sections_of_a_system_are_sorted_by_name() -> None:
    source = document([server("b"), server("a")], [accelerator("B"), accelerator("A")], {"B": 1, "A": 2})
    spec = load_system(source).to_spec()
    assert [item.name for item in spec.servers] == ["a", "b"]
    assert [item.name for item in spec.accelerators] == ["A", "B"]
    assert [item.type for item in spec.count] == ["A", "B"]
