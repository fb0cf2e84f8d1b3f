"""The catalogue: every entry has its sources, its sizes add up, and people find it."""

import json
from importlib import resources

import pytest

from optimizer import SpecError
from optimizer.profiles.catalogue import load_catalogue, read_entries
from optimizer.profiles.facts import AcceleratorFacts, ModelEntry

CATALOGUE = load_catalogue()
ENTRIES = {**CATALOGUE.accelerators, **CATALOGUE.models}

STORED = {
    "llama-3.1-8b": 8_030_261_248,  # model.safetensors.index.json of the repository: bytes / 2
    "qwen2.5-7b": 7_615_616_512,
    "mixtral-8x7b": 46_702_792_704,
    "llama-3.1-70b": 70_553_706_496,
}
"""Parameters that the published weights hold, norms and biases too."""


@pytest.mark.few(26)
@pytest.mark.parametrize("name", ENTRIES)
def test_every_entry_names_its_source_and_its_day(name: str) -> None:
    entry = ENTRIES[name]
    assert entry.source.startswith("http")
    assert entry.as_of.startswith("20")
    assert entry.checked_against
    assert entry.other_sources.keys() <= type(entry).model_json_schema()["properties"].keys()


@pytest.mark.parametrize("name", CATALOGUE.models)
def test_the_sizes_of_every_model_give_its_declared_parameters(name: str) -> None:
    counted = CATALOGUE.model(name).parameters / 1e9
    assert counted == pytest.approx(CATALOGUE.models[name].parameters_b, rel=0.01)


@pytest.mark.parametrize("name", CATALOGUE.models)
def test_every_model_is_of_a_known_type_and_understood(name: str) -> None:
    facts = CATALOGUE.model(name)
    assert (facts.assumed, facts.unknown_weights) == (False, "")
    assert facts.count == CATALOGUE.models[name].facts.count > 0


@pytest.mark.parametrize("name", STORED)
def test_counts_agree_with_published_weights(name: str) -> None:
    assert CATALOGUE.model(name).parameters == pytest.approx(STORED[name], rel=1e-3)


def test_sizes_must_match_declared_parameters() -> None:
    text = resources.files("optimizer.profiles").joinpath("models.yaml").read_text(encoding="utf-8")
    assert "layers: 80" in text
    entries = read_entries(text.replace("layers: 80", "layers: 79", 1), "models.yaml", ModelEntry)
    with pytest.raises(SpecError, match=r"llama-2-70b: the sizes give 68.12 billion .* is 68.98"):
        _ = entries["llama-2-70b"].facts


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bandwidthGBPerS": 0}, r"X: bandwidthGBPerS: must be more than 0, not 0"),
        ({"source": None}, r"X: source: missing"),
        ({"price": 2}, r"X: price: unknown key"),
    ],
)
def test_a_faulty_entry_is_refused_with_its_place(change: dict[str, object], message: str) -> None:
    entry = CATALOGUE.accelerator("T4").model_dump(mode="json", by_alias=True, exclude_defaults=True)
    text = json.dumps({"X": entry | change})
    with pytest.raises(SpecError, match=message):
        read_entries(text, "accelerators.yaml", AcceleratorFacts)


def test_ambiguous_spellings_are_rejected() -> None:
    entry = CATALOGUE.accelerator("T4").model_dump(mode="json", by_alias=True, exclude_defaults=True)
    entry = {key: value for key, value in entry.items() if key not in {"name", "aliases"}}
    body = "".join(f"  {key}: {value!r}\n" for key, value in entry.items())
    with pytest.raises(SpecError, match=r"'t-4' and 'T4' share the spelling 't4'"):
        read_entries(f"T4:\n{body}t-4:\n{body}", "accelerators.yaml", AcceleratorFacts)


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("h100", "H100"), ("H100-SXM", "H100"), ("a100", "A100-80"), ("A100-80GB", "A100-80"), ("rtx 4090",
        "RTX4090"),
        ("h100_pcie", "H100-PCIe"), ("v5e", "TPU-v5e"), ("LLAMA-3.1-8B", "llama-3.1-8b"), ("llama-3-8b",
        "llama-3.1-8b"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"), ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"), ("Qwen/Qwen2.5-7B", "qwen2.5-7b"), ("gemma-3-27b-it",
        "gemma-3-27b"),
    ],
)  # fmt: skip
def test_names_are_found_however_people_write_them(asked: str, name: str) -> None:
    assert CATALOGUE.entry(asked).name == name


@pytest.mark.few(19)
@pytest.mark.parametrize("name", ENTRIES)
def test_every_name_and_alias_finds_its_entry(name: str) -> None:
    for word in (name, name.upper(), *ENTRIES[name].aliases):
        assert CATALOGUE.entry(word) is ENTRIES[name]


def test_a_near_miss_gets_a_suggestion() -> None:
    with pytest.raises(SpecError, match=r"model: 'lama-3.1-8b' is not .* did you mean 'llama-3.1-8b'"):
        CATALOGUE.model("lama-3.1-8b")
    with pytest.raises(SpecError, match=r"accelerator: 'H101' .* did you mean 'H100'"):
        CATALOGUE.accelerator("H101")
    with pytest.raises(SpecError, match=r"'inferplan catalogue' lists the names; .* path of its config.json"):
        CATALOGUE.model("xyz")
