"""Published sizes of models, caches and states, and what a change of any key of their config.json does."""

import copy
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from slow_cases import mostly_slow

from optimizer import SpecError
from optimizer.profiles.capacity import CacheCapacity, CacheSettings
from optimizer.profiles.catalogue import load_catalogue
from optimizer.profiles.config_keys import is_harmless, parts_table
from optimizer.profiles.deployment import Deployment
from optimizer.profiles.estimate import find_slice
from optimizer.profiles.intervals import tokens_in_memory
from optimizer.profiles.iterations import Iterations
from optimizer.profiles.layers import ModelFacts
from optimizer.profiles.memory import Memory
from optimizer.profiles.model_config import model_of_config

_FILE = Path(__file__).parents[1] / "data" / "model_figures.json.gz"
FIGURES: list[dict[str, Any]] = json.loads(gzip.decompress(_FILE.read_bytes()))
"""Figures with their source, tolerance and config.json, which docs/memory.md sums up."""


def computed(figure: dict[str, Any]) -> float:
    """Return the figure that the package computes."""
    settings, kind = figure["settings"], figure["figure_kind"]
    model = model_of_config(figure["config"], beside=figure.get("files"))
    accelerator, tp = find_slice(settings.get("acc", "H200"), None)
    deployment = Deployment(tp=settings.get("tp", tp), cache=settings.get("cache"))
    memory = Memory(Iterations(model, accelerator, deployment))
    if kind == "parameters":
        return model.parameters
    if kind.startswith("weights_bytes"):
        return memory.weight_bytes * (1 if kind.endswith("per_device") else deployment.tp)
    if kind == "cache_bytes_per_token_per_device":
        return _token_bytes(memory, settings.get("part"))
    if kind == "state_bytes_per_layer_per_device":
        states = sum(
            layer.count for layer in model.layers if any(item.type == "state" for item in layer.caches)
        )
        return memory.iterations.state_bytes / states
    if kind == "kv_tokens_in_pool":
        return tokens_in_memory(memory).value
    assert kind == "request_bytes_per_device"
    # Prefix caching keeps two states of a request; the figure of Qwen3.6 was measured with it.
    prefix = 16.0 if figure["name"].startswith("Qwen3.6-35B") else 0.0
    return CacheCapacity(memory, CacheSettings(prefix_tokens=prefix)).held_bytes(settings["tokens"])


def _token_bytes(memory: Memory, part: str | None) -> float:
    """Return the cache of one more token of a long request; of a part, or of a request within all windows."""
    if part == "latent":
        layers = memory.iterations.model.layers
        rows = ((layer.count, cache) for layer in layers for cache in layer.caches if cache.type == "latent")
        return sum(count * memory.iterations.row_bytes(cache) for count, cache in rows)
    if part == "all layers":
        return memory.request_bytes(100) / 100
    return memory.request_bytes(500_001) - memory.request_bytes(500_000)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure["name"])
def test_published_figures_are_within_their_tolerance(figure: dict[str, Any]) -> None:
    assert computed(figure) == pytest.approx(figure["value"], rel=max(figure["tolerance"], 1e-9))


def text() -> str:
    """Return the summary of docs/memory.md, with the figures that differ by more than 3%."""
    found = [(figure, computed(figure)) for figure in FIGURES]
    differences = [abs(value / figure["value"] - 1) for figure, value in found]
    close, near = (sum(item <= limit for item in differences) for limit in (0.01, 0.03))
    sentence = (
        f"Of {len(found)} published sizes of parameters, weights, caches and states, {close} differ by at "
        f"most 1% from those computed from the same config.json, and {near} by at most 3%. These differ more:"
    )
    lines = [
        sentence,
        "",
        "| model and figure | published | computed | difference |",
        "|---|---:|---:|---:|",
    ]
    for (figure, value), difference in zip(found, differences, strict=True):
        if difference > 0.03:
            numbers = " | ".join(
                f"{item:,.0f}" if item < 1e7 else f"{item / 1e9:.4g}e9" for item in (figure["value"], value)
            )
            lines.append(f"| {figure['name']} | {numbers} | {value / figure['value'] - 1:+.1%} |")
    return "\n".join(lines)


@pytest.mark.slow
def test_the_page_states_how_near_the_figures_are() -> None:
    page = (Path(__file__).parents[2] / "docs" / "memory.md").read_text(encoding="utf-8")
    assert " ".join(text().split()) in " ".join(page.split())


# --- every key of every family -----------------------------------------------------------------------------

_MEANINGS = {
    "no shared experts": "n_shared_experts num_shared_experts num_shared_expert shared_intermediate_size "
    "shared_expert_intermediate_size moe_shared_expert_intermediate_size share_expert_dim",
    "every layer has experts": "first_k_dense_replace moe_layer_freq interleave_moe_layer_step",
    "no layers for speculative decoding": "num_nextn_predict_layers num_mtp_modules mtp_num_hidden_layers",
    "only token times need it, and they ask for it": "num_experts_per_tok num_experts_per_token moe_topk",
    "one KV head for each query head, or as for other layers": "num_key_value_heads num_kv_heads "
    "num_global_key_value_heads swa_num_key_value_heads",
    "the model has no such part": "hidden_size_per_layer_input attention_k_eq_v use_cla cla_share_factor "
    "mla_use_output_gate moe_latent_size routed_expert_hidden_size q_lora_rank",
    "the default of the class": "intermediate_size intermediate_size_mlp sliding_window head_dim hc_mult "
    "tie_word_embeddings num_attention_heads multi_query new_decoder_architecture max_position_embeddings "
    "model_max_length max_seq_len",
    "16-bit weights, or those of all others": "quantization_config expert_dtype",
    "read as ordinary layers, which is said": "model_type",
}
ABSENT = {key: meaning for meaning, keys in _MEANINGS.items() for key in keys.split()}
"""Keys whose absence changes the layers, and what it means."""
SUPERSEDED: dict[str, str] = {
    "attention_chunk_size": "MiMo has no chunks",
    "intermediate_size": "all layers have experts, or another key states the width",
    "num_key_value_heads": "latent attention has no KV heads",
    "num_mtp_modules": "num_nextn_predict_layers states it",
    "no_rope_layers": "an empty list means the default of the class",
}
"""Keys that have no effect beside others."""
STRANGE: tuple[object, ...] = ("banana", -7, 2.5, [], {}, 10**13, [1, 2, 3])
QUICK = {"mimo_v2_flash", "nemotron_h", "deepseek_v2", "mixtral"}
"""Model types that the default tests check; .ci/slow checks all."""


def elsewhere() -> set[str]:
    """Return the keys about layers that a model may lack."""
    tables = parts_table()
    facts = {**tables["facts"], **tables["first"]}
    return {key for fact in tables["elsewhere"] for key in facts.get(fact, [fact])}


def families() -> Iterator[Any]:
    """Yield a config of each model type: of the catalogue, or of a published figure."""
    configs = [entry.config for entry in load_catalogue().models.values()]
    found: dict[str, dict[str, Any]] = {}
    for config in (*configs, *(figure["config"] for figure in FIGURES)):
        found.setdefault(config.get("text_config", config)["model_type"], config)
    for kind, config in found.items():
        yield pytest.param(config, id=kind, marks=() if kind in QUICK else pytest.mark.slow)


def read(config: dict[str, Any]) -> ModelFacts | str:
    """Return the facts, or the error message."""
    try:
        return model_of_config(config)
    except SpecError as error:
        return str(error)


def changed(config: dict[str, Any], key: str, value: object = None, new: str = "") -> dict[str, Any]:
    """Return a config with another value of a key of the decoder, or another name of it, or without it."""
    config = copy.deepcopy(config)
    text = config.get("text_config", config)
    old = text.pop(key)
    if new:
        text[new] = old
    elif value is not None:
        text[key] = value
    return config


def understood(model: ModelFacts) -> object:
    """Return everything that memory and times depend on."""
    return model.layers, model.others, model.vocab, model.cache, model.context


@pytest.mark.parametrize("config", mostly_slow(tuple(families()), 2))
def test_no_key_can_be_removed_renamed_or_mistyped_in_silence(config: dict[str, Any]) -> None:
    base = read(config)
    assert isinstance(base, ModelFacts)
    for key, old in config.get("text_config", config).items():
        if old is None:
            continue
        without = read(changed(config, key))
        if isinstance(without, str):
            assert key in without or "model_type" in without
        elif understood(without) != understood(base):
            assert key in ABSENT
        renamed = read(changed(config, key, new=f"{key}_2"))
        assert isinstance(renamed, str)
        assert key in renamed or "model_type" in renamed
        for value in STRANGE:
            _check_strange(config, key, value, base)


def _check_strange(config: dict[str, Any], key: str, value: object, base: ModelFacts) -> None:
    """Check that a value of a wrong type is an error that names the key, unless the key has no effect."""
    strange = read(changed(config, key, value))
    if isinstance(strange, str):
        assert key in strange or "model_type" in strange
    elif key == "model_type":
        assert strange.assumed
    elif key in strange.unknown_weights:
        assert key in {"quantization_config", "expert_dtype"}
    else:
        assert understood(strange) == understood(base), (key, value)
        assert is_harmless(key) or key in SUPERSEDED or key in elsewhere()
