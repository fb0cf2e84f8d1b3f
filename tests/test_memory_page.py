"""docs/memory.md states what the program computes: every table and figure in its text."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from doc_pages import one_line, read_page, table

from optimizer.jobs.memory import MemoryQuestion, memory_of
from optimizer.profiles.memory_document import MemoryAnswer
from optimizer.quantities import quantity

PAGE = read_page("memory.md")
TEXT = one_line(PAGE)
LONG = {"in_tokens": 1024, "out_tokens": 1024}
TEXTBOOK: dict[str, Any] = {
    "weight_size": 340, "workspace": 0, "device_memory": 80, "memory_utilization": 1
}  # fmt: skip


@pytest.fixture(scope="module", name="config")
def written_config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page's config.json."""
    found = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    path = tmp_path_factory.mktemp("model") / "config.json"
    path.write_text(found[1], encoding="utf-8")
    return path


def asked(config: Path, *accelerators: str, **settings: Any) -> MemoryAnswer:
    question = MemoryQuestion(model="x", accelerators=accelerators or ("A100-80",), **settings)
    return memory_of(question, config)


def test_the_cache_of_a_request(config: Path, tmp_path: Path) -> None:
    grouped = tmp_path / "config.json"
    facts = json.loads(config.read_text(encoding="utf-8")) | {"num_key_value_heads": 8}
    grouped.write_text(json.dumps(facts), encoding="utf-8")
    found = [asked(config), asked(config, cache="fp8"), asked(grouped)]
    assert found[0].token_bytes == 2 * 96 * 96 * 128 * 2 == 4_718_592
    assert [row[1:] for row in table(PAGE, "cache")] == [
        [quantity(item.token_bytes / 1e6, 3), quantity(item.reserved_gb, 3)] for item in found
    ]
    assert [item.attention for item in found] == ["MHA", "MHA", "GQA"]


def test_requests_by_cards(config: Path) -> None:
    rows = table(PAGE, "A100-80")
    names = [f"{row[0]}xA100-80" for row in rows]
    ways = [TEXTBOOK, TEXTBOOK | {"memory_utilization": 0.9}, {}]
    for column, settings in enumerate(ways, 1):
        found = asked(config, *names, **LONG, **settings)
        assert [row[column] for row in rows] == [str(item.requests.reserved) for item in found.devices]
        assert {item.least_cards for item in found.devices} == {6}
    four, five = asked(config, *names[:2], **LONG, **TEXTBOOK).devices
    assert (four.weights_gb, five.problem) == (85, "96 attention heads do not split by 5")
    assert "exceed the usable 80.0 GB" in (four.problem or "")
    together = TEXTBOOK | {"weight_size": 0, "device_memory": 60}
    assert asked(config, **LONG, **together).devices[0].requests.reserved == 6
    estimated = asked(config, "8xA100-80", **LONG)
    assert (round(estimated.weights_gb), round(estimated.devices[0].usable_gb / 0.9)) == (349, 85)


def test_gains_of_pages(config: Path) -> None:
    for lengths, average, paged in table(PAGE, "tokens in, out"):
        taken, given = map(int, lengths.split(", "))
        found = asked(config, in_tokens=taken, out_tokens=given)
        assert (average, paged) == (f"{found.average_gain:.1f}", f"{found.paged_gain:.1f}")


def test_gains_of_shared_prefixes(config: Path) -> None:
    shared = {"in_tokens": 300, "out_tokens": 200, "prefix_tokens": 75, "prefix_requests": 100}
    single = asked(config, **shared, block_tokens=1)
    blocks = asked(config, **shared, prefix_hit_rate=0.9)
    assert f"{single.sharing_gain:.2f} times as many fit" in TEXT
    assert f"{blocks.shared_tokens:.0f} tokens are shared, and it is {blocks.sharing_gain:.2f} times" in TEXT
    assert f"{quantity(blocks.prefill_tokens)} of the 300 input tokens" in TEXT


def test_quantised_weights_and_caches(config: Path) -> None:
    found = asked(config, weights="int4", cache="fp8", **LONG)
    (item,) = found.devices
    assert item.least_requests is not None
    assert f"({found.weights_gb:.1f} GB)" in TEXT
    assert f"{item.least_cards} cards are enough, and hold {item.least_requests.paged} requests" in TEXT


@pytest.mark.slow
def test_requests_with_a_shared_prefix_fill_the_memory(config: Path) -> None:
    """One more request would not fit, counted prefix by prefix."""
    for sharing in (None, 1, 3, 100):
        settings = {"prefix_tokens": 480, "prefix_requests": sharing, "in_tokens": 500, "out_tokens": 200}
        found = asked(config, "8xA100-80", **settings)
        (item,) = found.devices
        token, count = found.token_bytes / 8, item.requests.paged

        def taken(requests: int, sharing: int | None = sharing, token: float = token) -> float:
            prefixes = -(-requests // sharing) if sharing else 1
            return token * (prefixes * 480 + requests * (704 - 480))

        assert taken(count) <= item.free_gb * 1e9 * (1 + 1e-9) < taken(count + 1)


ENGINE_ROWS: dict[str, tuple[str, str, dict[str, Any], float]] = {
    "Llama-3.1-8B, H100, vLLM 0.11": ("llama-3.1-8b", "H100", {"engine": "vllm:0.11"}, 79.18),
    "Qwen3-32B, H100, vLLM 0.11": ("qwen3-32b", "H100", {"engine": "vllm:0.11"}, 79.18),
    "Qwen3-32B, 2xH100, vLLM 0.11": ("qwen3-32b", "2xH100", {"engine": "vllm:0.11"}, 79.18),
    "Llama-3.1-70B fp8, 2xH100, vLLM 0.11": (
        "llama-3.1-70b", "2xH100", {"engine": "vllm:0.11", "weights": "fp8"}, 79.18,
    ),
    "Qwen3-8B fp8, 15.66 GiB of a card, vLLM 0.29": (
        "qwen3-8b", "RTX-PRO-6000",
        {"engine": "vllm:0.29", "weights": "fp8", "max_num_tokens": 2048, "max_requests": 256}, 15.66,
    ),
    "Qwen3-8B fp8, L4, vLLM 0.29": (
        "qwen3-8b", "L4", {"engine": "vllm:0.29", "weights": "fp8", "max_requests": 128}, 22.03,
    ),
}  # fmt: skip
"""Settings of the published pools of the page."""


def test_published_pools_of_engines() -> None:
    rows = {row[0]: row[1:] for row in table(PAGE, "model, cards, engine")}
    assert rows.keys() == ENGINE_ROWS.keys()
    for name, (model, cards, settings, gib) in ENGINE_ROWS.items():
        published, computed, change = rows[name]
        question = MemoryQuestion(
            model=model, accelerators=(cards,), device_memory=gib * 2**30 / 1e9, **settings
        )
        (item,) = memory_of(question).devices
        tokens = int(published.replace(",", ""))
        assert f"{item.kv_tokens:,}" == computed
        assert f"{item.kv_tokens / tokens - 1:+.1%}" == change
        assert abs(item.kv_tokens / tokens - 1) <= 0.1
        used = item.kv_tokens * item.token_bytes
        assert item.free_low_gb * 1e9 <= used * tokens / item.kv_tokens <= item.free_high_gb * 1e9
