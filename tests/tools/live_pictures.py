"""Draw docs/pictures/live-NAME.svg, live systems: ``python tests/tools/live_pictures.py [NAME ...]``.

Each fleet is emulated and driven for about half a minute, and each request is a point beside the means of the
plan and of the simulator. Nothing else should use the machine.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"


class Live(NamedTuple):
    """A fleet and the requests to it."""

    system: str
    share: float
    requests: int
    server: str | None = None
    speed: float = 1.0


LIVE = {
    "versions": Live("versions.yaml", 0.2, 130, "chat"),
    "shared-queue": Live("shared-queue.yaml", 0.3, 80),
    "routes": Live("routes.yaml", 0.1, 420, "chat"),
    "queue-servers": Live("queue-servers", 1.0, 300),
    "batching-platform": Live("batching-platform", 0.05, 12_000, speed=0.25),
    "multi-model": Live("multi-model-service", 0.1, 3000, "embed"),
    "serving-fleet": Live("serving-fleet", 0.05, 180, "us-assistant"),
}


def draw(name: str) -> None:
    """Emulate and drive a fleet, and print what was measured."""
    live, program = LIVE[name], [sys.executable, "-m", "optimizer"]
    path = str(ROOT / "specs" / live.system)
    emulating = [*program, "emulate", path, "--port", "0", "--share", str(live.share)]
    emulating += ["--speed", str(live.speed)]
    emulator = subprocess.Popen(emulating, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert emulator.stdout is not None
        url = next(line["url"] for line in map(json.loads, emulator.stdout) if "ready" in line)
        chosen = [] if live.server is None else ["--server", live.server]
        driving = ["drive", path, url, "--requests", str(live.requests), *chosen]
        subprocess.run([*program, *driving, "-o", PICTURES / f"live-{name}.svg"], check=True, cwd=ROOT)
    finally:
        emulator.send_signal(signal.SIGTERM)
        emulator.wait()


if __name__ == "__main__":
    for wanted in sys.argv[1:] or LIVE:
        draw(wanted)
