"""Recorded requests in the public Azure format."""

from pathlib import Path

import numpy as np
import pytest

from optimizer.errors import SpecError
from optimizer.simulation.trace import read_trace

# the first lines of AzureLLMInferenceTrace_conv.csv, two of them swapped
AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:51.8132830,879,55
2023-11-16 18:15:50.9951690,396,109
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_trace_is_sorted_by_time(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, AZURE))
    assert trace.in_tokens.tolist() == [374, 396, 879]
    assert trace.out_tokens.tolist() == [44, 109, 55]
    assert trace.arrival_ms is not None
    np.testing.assert_allclose(trace.arrival_ms, [0.0, 4314.579, 5132.693], atol=0.01)


@pytest.mark.parametrize(
    "text",
    [
        "generatedtokens,timestamp,extra,contexttokens\n7,0.5,x,3\n9,2.0,x,4\n",
        (
            "\ufeffTIMESTAMP,ContextTokens,GeneratedTokens\r\n"
            "2024-05-10 00:00:00.5+00:00,3,7\r\n2024-05-10T00:00:02Z,4,9\r\n\r\n"
        ),
    ],
)
def test_any_column_order_and_times_in_seconds(tmp_path: Path, text: str) -> None:
    trace = read_trace(written(tmp_path, text))
    assert trace.arrival_ms is not None
    assert trace.arrival_ms.tolist() == [0.0, 1500.0]
    assert trace.in_tokens.tolist() == [3, 4]
    assert trace.out_tokens.tolist() == [7, 9]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no column 'timestamp'"),
        ("TIMESTAMP,ContextTokens\n", "no column 'generatedtokens'"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "no requests"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n1,2\n", "line 2: 2 values"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,2,3\n", "line 2: TIMESTAMP: 'noon' is neither"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\ninf,2,3\n", "line 2: TIMESTAMP: 'inf' is not finite"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n1,-2,3\n", "line 2: ContextTokens: must be an integer"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n1,2,0\n", "line 2: GeneratedTokens: must be an integer"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n1,2,9999999999999999\n", "GeneratedTokens: must be"),
    ],
)
def test_invalid_traces_are_rejected_with_their_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_trace(written(tmp_path, text))
    assert said in str(caught.value)
    assert "trace.csv" in str(caught.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"nowhere\.csv: cannot be read"):
        read_trace(tmp_path / "nowhere.csv")
