"""Compare other emulated servers with ours and with recorded runs of a real engine, by number of users.

    fakeai server --port 8000 --ttft 41 --itl 7.2
    python tests/benchmarks/other_emulators.py fakeai=http://127.0.0.1:8000

Each address answers completions of the model `chat`. All get the same requests from the same client, 64
tokens of prompt and 128 of answer on average. Ours has the token times that `fit` finds in the recorded runs.
"""

import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / part) for part in (".", "rest_server", "tools")]
from emulated import emulated  # noqa: E402
from real_engine import METRICS, document_of, driven, fitted_times, recorded  # noqa: E402

RECORDED = ROOT / "tests" / "data" / "cpu_vllm"
SHAPE = (64, 128)
USERS = (1, 4, 8, 16)


def main() -> None:
    """Run the command line."""
    others = dict(argument.split("=", 1) for argument in sys.argv[1:])
    print(f"{'server':14}" + "".join(f"{f'{users} users':>16}" for users in USERS) + "   (TTFT / ITL, ms)")
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "document.yaml"
        path.write_text(yaml.safe_dump(document_of(SHAPE, fitted_times(RECORDED))))
        show("recorded", [recorded(RECORDED, SHAPE, users) for users in USERS])
        with emulated(path) as fleet:
            show("emulated", [driven(path, fleet.url, users) for users in USERS])
        for name, url in others.items():
            show(name, [driven(path, url, users) for users in USERS])


def show(name: str, reports: list[dict[str, float]]) -> None:
    """Print the mean latencies of a server."""
    cells = (" / ".join(f"{report[metric]:.1f}" for metric in METRICS) for report in reports)
    print(f"{name:14}" + "".join(f"{cell:>16}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
