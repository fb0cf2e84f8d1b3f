"""Serving engines: names and versions as people write them, and the engines' own defaults."""

from typing import Any

import pytest

from optimizer import SpecError
from optimizer.profiles.catalogue import load_catalogue
from optimizer.profiles.deployment import Deployment
from optimizer.profiles.engines import read_engine
from optimizer.profiles.estimate import estimate_profile, find_model
from optimizer.profiles.iterations import Iterations
from optimizer.profiles.memory import GIB, Memory
from optimizer.profiles.points import estimate_points


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vllm:0.11", "vllm:0.11"),
        ("vLLM 0.11.0", "vllm:0.11.0"),
        ("vllm==0.11.0", "vllm:0.11.0"),
        ("vllm/vllm-openai:v0.11.0", "vllm:0.11.0"),
        ("vllm 0.29.1rc1.dev339+gda9888462", "vllm:0.29.1"),
        ("TensorRT-LLM 1.0.0rc3", "tensorrt-llm:1.0.0"),
        ("trtllm:1.1", "tensorrt-llm:1.1"),
        ("sglang", "sglang:0.5"),
        ("llama.cpp", "llama.cpp:0"),
        ("vllm-second-runner", "vllm-second-runner:0.29"),
        (None, "vllm:0.29"),
    ],
)
def test_engines_as_people_write_them(text: str | None, expected: str) -> None:
    assert str(read_engine(text)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vlm:0.11", "engine: 'vlm' does not exist; did you mean 'vllm'"),
        ("0.11", "'0.11': must be a name and a version, such as vllm:0.11"),
        ("", "must be a name"),
        ("triton", "name one of vllm"),
    ],
)
def test_other_texts_are_errors(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        read_engine(text or " ")


@pytest.mark.parametrize(
    ("engine", "accelerator", "expected"),
    [  # vllm/engine/arg_utils.py, get_batch_defaults; V0 had 256, V1 before pull request 16158 had 1,024
        ("vllm:0.11", "H100", 1024),
        ("vllm:0.11", "MI300X", 1024),
        ("vllm:0.11", "A100-80", 256),
        ("vllm:0.11", "L40S", 256),
        ("vllm:0.7.3", "H100", 256),
        ("vllm:0.8.1", "L40S", 1024),
        ("vllm:0.8", "L40S", 256),
        ("vllm:0.8.5", "L40S", 256),
        ("vllm-second-runner:0.28", "H100", 1024),
        ("vllm-second-runner:0.28", "L40S", 256),
        ("sglang:0.5", "L4", 2048),
        ("tgi", "H100", None),
    ],
)
def test_the_default_limit_of_requests(engine: str, accelerator: str, expected: int | None) -> None:
    assert read_engine(engine).max_requests(load_catalogue().accelerator(accelerator)) == expected


def test_captured_graphs_as_in_start_logs() -> None:
    """vLLM logs `PIECEWISE=51 (largest=512), FULL=35 (largest=256)` for 256 requests."""
    engine = read_engine("vllm:0.29")
    assert [engine.graphs(limit) for limit in (256, 128, 4)] == [51 + 35, 35 + 19, 4 + 3]


@pytest.mark.parametrize(
    ("accelerator", "tp", "expected"),
    [  # sglang/srt/server_args.py: MiB kept for a chunk, graphs and devices; at least 10 GiB from 60 on
        ("L4", 1, 1 - (512 + 1.5 * 2048 + 2 * 24 + 128) / 1024 / 22),
        ("L40S", 4, 1 - (512 + 1.5 * 4096 + 2 * 160 + 4 * 128) / 1024 / 44.4),
        ("H100", 1, 1 - (512 + 1.5 * 8192 + 2 * 256 + 128) / 1024 / 79.2),
        ("B200", 8, 1 - (512 + 1.5 * 16384 + 2 * 512 + 8 * 128) / 1024 / 178.4),
    ],
)
def test_the_default_share_of_sglang(accelerator: str, tp: int, expected: float) -> None:
    found = read_engine("sglang").utilization(load_catalogue().accelerator(accelerator), tp)
    assert found == pytest.approx(expected, abs=0.002)


@pytest.mark.parametrize(
    ("model", "accelerator", "settings", "free_gib"),
    [  # llm-d-benchmark, empirical-vllm-memory-results.md; akamaslabs study 30; vllm#21348
        ("gpt-oss-20b", "H100", {"engine": "vllm:0.11", "memory_gib": 79.18}, 50.28),
        ("qwen3-235b-a22b", "H100", {"engine": "vllm:0.9", "tp": 4, "weights": "fp8"}, 8.11),
        ("qwen3-235b-a22b", "H100",
         {"engine": "sglang:0.4", "tp": 4, "weights": "fp8", "memory_utilization": 0.93}, 16.47),
        ("qwen3-235b-a22b", "H100", {"tp": 4, "weights": "fp8"}, 8.11),
        ("gpt-oss-20b", "H100", {"memory_gib": 79.18}, 50.28),
        ("gpt-oss-120b", "H100",
         {"engine": "vllm:0.11", "memory_gib": 79.18, "memory_utilization": 0.95}, 3.33),
        ("gemma-4-26b-a4b", "L40S",
         {"weights": "fp8", "memory_utilization": 0.92, "max_num_tokens": 2048}, 13.47),
        ("gemma-4-26b-a4b", "L40S",
         {"engine": "vllm-second-runner:0.29", "weights": "fp8", "memory_utilization": 0.92,
          "max_num_tokens": 2048}, 13.47),
        ("gemma-4-26b-a4b", "L40S",
         {"engine": "vllm-second-runner:0.29", "weights": "fp8", "memory_utilization": 0.94,
          "max_num_tokens": 16384, "max_requests": 512}, 13.29),
    ],
)  # fmt: skip
def test_pools_of_mixtures(model: str, accelerator: str, settings: dict[str, Any], free_gib: float) -> None:
    card = load_catalogue().accelerator(accelerator)
    memory = Memory(Iterations(find_model(model), card, Deployment(**settings)))
    low, free, high = (size / GIB for size in memory.free_bytes)
    assert free == pytest.approx(free_gib, rel=0.1)
    assert low <= free_gib <= high
    assert sum(memory.parts.values()) + memory.free_bytes[1] == pytest.approx(memory.total_bytes)


def test_without_an_engine_either_model_runner_may_run() -> None:
    """The mean of both is expected, and the interval holds both, with the other parts of the engine."""
    card, model = load_catalogue().accelerator("H100"), find_model("qwen3-8b")
    unstated, first, second = (
        Memory(Iterations(model, card, Deployment(engine=engine)))
        for engine in (None, "vllm:0.29", "vllm-second-runner:0.29")
    )
    assert first.parts["sampler"] == pytest.approx(1024 * 151_936 * 38.4)
    assert second.parts["sampler"] == pytest.approx(1024 * 151_936 * 10.1)
    assert unstated.free_bytes[1] == pytest.approx((first.free_bytes[1] + second.free_bytes[1]) / 2)
    assert unstated.free_bytes[0] == pytest.approx(first.free_bytes[0])
    assert unstated.free_bytes[2] == pytest.approx(second.free_bytes[2])
    assert first.free_bytes[2] == pytest.approx(second.free_bytes[2])


EARLY = """\
model,acc,tp,w,kind,c,isl,osl,measured
gpt-oss-20b,H200,1,mxfp4,loop,16,1000,929,9.03
gpt-oss-20b,MI300X,1,mxfp4,loop,1,1000,988,7.28
gpt-oss-20b,MI300X,1,mxfp4,loop,32,1000,964,17.77
gpt-oss-20b,B200,1,mxfp4,loop,16,1000,930,10.5
glm-5,MI300X,8,fp8,loop,64,1000,1000,87.27
"""
"""Token times of gpt-oss in August 2025 (sariekr/gpu_conc), and of GLM-5 (sglang pull request 30812)."""


@pytest.mark.parametrize(
    ("engine", "is_early"),
    [
        (None, False),
        ("vllm:0.29", False),
        ("vllm:early", True),
        ("sglang:early", True),
        ("vllm:0.10.1", True),
    ],
)
def test_engines_of_first_weeks_widen_the_interval(engine: str | None, *, is_early: bool) -> None:
    for row in estimate_points(EARLY, engine=engine):
        assert row.estimated is not None
        assert row.measured is not None
        assert (row.measured <= row.estimated.high) == is_early
        assert ("first weeks" in row.note) != is_early


def test_only_mixtures_of_the_time_of_the_engine_are_early() -> None:
    def reasons(model: str, engine: str | None) -> tuple[str, ...]:
        return estimate_profile(model, "H200", Deployment(engine=engine)).spread.reasons

    assert len(reasons("gpt-oss-20b", "vllm:0.10.1")) == 2
    assert len(reasons("gpt-oss-20b", "vllm:0.11")) == 1
    assert len(reasons("gpt-oss-20b", None)) == 1
    assert len(reasons("llama-3.1-8b", "vllm:early")) == 1
