"""Benchmark clients that others wrote, against an emulated fleet; each runs where it is installed."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from emulated import Emulator

from rest_server.emulator.words import UNKNOWN, write_tokenizer

REQUESTS, PROMPT, ANSWER = 20, 50, 16


def test_tokenizer_counts_unknown_words_as_plain_ones(tmp_path: Path) -> None:
    """GuideLLM decodes cut texts without special tokens, so unknown words must not become one."""
    write_tokenizer(tmp_path / "tok")
    found = json.loads((tmp_path / "tok" / "tokenizer.json").read_text())
    special = {one["content"] for one in found["added_tokens"] if one["special"]}
    assert special == {UNKNOWN}
    assert found["model"]["unk_token"] in found["model"]["vocab"].keys() - special


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("guidellm") is None, reason="guidellm is not installed")
def test_guidellm_counts_the_same_tokens(fleet: Emulator, tmp_path: Path) -> None:
    write_tokenizer(tmp_path / "tok")
    settings = {
        "backend": f"kind=openai_http,target={fleet.url},model=chat",
        "profile": "kind=concurrent,streams=2",
        "constraint": f"kind=max_requests,count={REQUESTS}",
        "tokenizer": "kind=hf_auto,model=tok",
        "data": f"kind=synthetic_text,prompt_tokens={PROMPT},output_tokens={ANSWER}",
        "output": "kind=json,path=found.json",
    }
    flags = [part for name, value in settings.items() for part in (f"--{name}", value)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    command = ["guidellm", "run", *flags, "--disable-progress"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    (benchmark,) = json.loads((tmp_path / "found.json").read_text())["benchmarks"]
    found = benchmark["metrics"]
    assert found["request_totals"]["successful"] == found["request_totals"]["total"] == REQUESTS
    assert found["prompt_token_count"]["successful"]["mean"] == PROMPT
    assert found["output_token_count"]["successful"]["mean"] == ANSWER
    assert found["inter_token_latency_ms"]["successful"]["mean"] > 8  # 10 ms an iteration
