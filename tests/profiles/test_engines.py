"""Serving engines: names and versions as people write them, and the engines' own defaults."""

import pytest

from optimizer import SpecError
from optimizer.profiles.catalogue import load_catalogue
from optimizer.profiles.engines import read_engine


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
        ("sglang:0.5", "L4", 2048),
        ("tgi", "H100", None),
    ],
)
def test_the_default_limit_of_requests(engine: str, accelerator: str, expected: int | None) -> None:
    assert read_engine(engine).max_requests(load_catalogue().accelerator(accelerator)) == expected
