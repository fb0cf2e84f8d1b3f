"""Estimates: what fits, what does not and what would; memory, points and accuracy against measurements."""

from pathlib import Path

import pytest
from estimate_accuracy import (
    ROOFLINE,
    accuracy,
    decode,
    is_dense,
    long_prompts,
    memory_errors,
    order_of_accelerators,
    read_points,
)

from optimizer import SpecError
from optimizer.profiles.catalogue import load_catalogue
from optimizer.profiles.deployment import Deployment
from optimizer.profiles.estimate import estimate_profile
from optimizer.profiles.formats import weight_format
from optimizer.profiles.points import estimate_points

DATA = Path(__file__).resolve().parent.parent / "data"
STEPS, MEMORY = DATA / "estimate_steps.csv", DATA / "estimate_kv.csv"
OLD_ENGINES = ("vllm#2031", "vllm#10511", "vllm#12569")
"""Reports of vLLM from 2023 to January 2025, which held back more memory."""


def test_a_batch_is_what_the_memory_holds() -> None:
    found = estimate_profile("llama-3.1-8b", "L4", Deployment(in_tokens=1000, out_tokens=200))
    per_token = 2 * 32 * 8 * 128 * 2  # keys and values, layers, heads, dimension, bytes
    assert found.memory.request_bytes(1200) == 1200 * per_token
    assert found.max_batch == found.memory.free_bytes[1] // (1200 * per_token)
    assert found.kv_tokens.value == pytest.approx(found.memory.free_bytes[1] / per_token)
    assert found.max_batch_low <= found.max_batch
    assert found.at_batch == found.max_batch // 2


def test_a_window_holds_no_more_than_itself() -> None:
    found = estimate_profile("gpt-oss-20b", "H100")
    layer = 2 * 8 * 64 * 2
    assert found.memory.request_bytes(5000) == 12 * layer * 5000 + 12 * layer * 128


@pytest.mark.slow
def test_a_model_that_does_not_fit_is_refused_with_what_would() -> None:
    with pytest.raises(SpecError) as refused:
        estimate_profile("llama-3.1-70b", "h100")
    text = str(refused.value)
    assert "does not fit H100" in text
    assert "--tp 4, or on B200" in text
    assert estimate_profile("llama-3.1-70b", "h100", Deployment(tp=4)).max_batch >= 1
    fitting = [
        accelerator.name
        for accelerator in load_catalogue().accelerators.values()
        if accelerator.device_memory_gib < load_catalogue().accelerator("B200").device_memory_gib
    ]
    for name in fitting:  # B200 is the smallest
        with pytest.raises(SpecError, match="does not fit"):
            estimate_profile("llama-3.1-70b", name)


def test_alpha_of_a_mixture_is_given_at_the_batch_asked_for() -> None:
    found = estimate_profile("qwen3-30b-a3b", "H100", at_batch=4)
    assert found.alpha_ms == found.alpha_at(4)
    assert found.alpha_at(1).value < found.alpha_at(64).value
    assert found.batches[0] == 1
    assert found.batches[-1] == found.max_batch


def test_formats_of_mixtures_concern_the_experts_only() -> None:
    catalogue = load_catalogue()
    assert weight_format(catalogue.model("gpt-oss-20b"), "fp4").name == "mxfp4"
    kimi = weight_format(catalogue.model("kimi-k2.5"))
    assert (kimi.form("dense"), kimi.form("routed")) == ("bf16", "int4")
    assert weight_format(catalogue.model("llama-3.1-8b"), "AWQ").form("dense") == "int4"
    with pytest.raises(SpecError, match="format of the weights: 'fp7' does not exist; did you mean 'fp"):
        weight_format(catalogue.model("llama-3.1-8b"), "fp7")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tp": 0}, "tp: must be between 1 and"),
        ({"memory_utilization": 1.5}, "memory-utilization: .* and 1, not"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Deployment(**settings)  # type: ignore[arg-type]


def test_warnings_say_what_is_not_counted() -> None:
    def warnings(model: str, accelerator: str, **settings: int | str) -> str:
        return " | ".join(estimate_profile(model, accelerator, Deployment(**settings)).warnings)  # type: ignore[arg-type]

    assert "over PCIe" in warnings("llama-3.1-8b", "L40S", tp=4)
    assert "attention heads do not split by 3" in warnings("llama-3.1-8b", "H100", tp=3)
    assert "exceeds one node" in warnings("llama-3.1-8b", "H100", tp=16)
    assert "computes no faster in fp8" in warnings("llama-3.1-8b", "A100", weights="fp8")
    assert "exceed the context" in warnings("llama-2-7b", "H100", in_tokens=5000)
    assert warnings("mistral-7b", "H200") == ""


# --- against measurements: each row of tests/data/estimate_*.csv names its source ---------------------------


def test_points_are_answered_row_by_row_in_order() -> None:
    rows = estimate_points(STEPS.read_text(encoding="utf-8"), "steps")
    assert [row.number for row in rows] == list(range(1, len(rows) + 1))
    for row in rows:
        document = row.document()
        assert document["low"] < document["ms"] < document["high"]
        assert row.measured is not None
    off = sorted(
        abs(row.estimated.value / row.measured - 1) for row in rows if row.estimated and row.measured
    )
    assert off[len(off) // 2] < 0.20
    inside = [
        row.estimated.low <= row.measured <= row.estimated.high
        for row in rows
        if row.estimated and row.measured
    ]
    assert sum(inside) >= 0.8 * len(rows)


def test_memory_of_dense_models_is_what_engines_of_today_report() -> None:
    text = MEMORY.read_text(encoding="utf-8")
    sources = [line.split(",", 8)[8] for line in text.splitlines()[1:]]
    errors = [
        (abs(row.estimated.value / row.measured - 1), "study 28" in source)
        for row, source in zip(estimate_points(text, "kv"), sources, strict=True)
        if is_dense(row) and row.estimated and row.measured and not source.strip('"').startswith(OLD_ENGINES)
    ]
    assert len(errors) >= 9
    assert sorted(errors)[len(errors) // 2][0] <= 0.02
    assert max(error for error, by_kernel in errors if not by_kernel) <= 0.05
    by_kernels = [error for error, by_kernel in errors if by_kernel]
    assert len(by_kernels) == 2, "one engine with two attention kernels, whose pools differ by 13 %"
    assert max(by_kernels) <= 0.07


def test_rows_that_cannot_be_estimated_say_why() -> None:
    text = (
        "Model,ACC,tp,w,kind,b,tok,ctx\n"
        "llama-3.1-8b,H100,1,bf16,decode,8,8,512\n"
        "llama-9,H100,1,bf16,decode,8,8,512\n"
        "llama-3.1-8b,H100,1,bf16,decode,,8,512\n"
        "llama-3.1-8b,H100,1,bf16,sleep,8,8,512\n"
        "llama-3.1-405b,H100,1,bf16,decode,8,8,512\n"
        "llama-3.1-8b,H100,x,bf16,decode,8,8,512\n"
        "llama-3.1-8b,H100,,,,,,\n"
    )
    first, *wrong, last = [row.document() for row in estimate_points(text)]
    assert first["ms"] > 0
    for document, message in zip(
        wrong,
        ("not in the catalogue", "b: missing", "kind: must be", "weights alone", "tp: must be"),
        strict=True,
    ):
        assert message in document["error"]
        assert "ms" not in document
    assert last["kvTokens"] > 0
    with pytest.raises(SpecError, match="a column 'accelerator' is required"):
        estimate_points("model,gpus\n")


@pytest.mark.slow
def test_the_figures_on_all_measurements(reference: Path) -> None:
    """What docs/estimate.md states; the naive roofline is far behind on every one of them."""
    folder = reference / "measured"
    points, naive = read_points(folder), read_points(folder, ROOFLINE)
    steps = accuracy(decode(points))
    assert steps.pairs >= 25
    assert steps.median <= 20
    assert steps.p90 <= 45
    assert accuracy(long_prompts(points)).median <= 20
    assert steps.covered >= 0.8
    right, total = order_of_accelerators(points)
    assert right >= 0.95 * total > 200
    assert accuracy(decode(naive)).median > 2 * steps.median
    today = [
        abs(error)
        for (row, error), line in zip(
            memory_errors(folder),
            (folder / "kv.csv").read_text(encoding="utf-8").splitlines()[1:],
            strict=True,
        )
        if is_dense(row) and not any(old in line for old in OLD_ENGINES)
    ]
    assert sorted(today)[len(today) // 2] <= 2
    assert max(today) <= 5
