"""Compare live fleets with simulations: ``live_fleets.py SYSTEM SHARE SPEED REQUESTS [PICTURES]``.

A system is a folder or a file of ``specs``; ``everything-but-batching`` is `specs/everything` without the
batching platform. It runs `emulate` with the router of the simulator, `--route random --retries 0`, and
`drive`, and prints each figure that was measured beside the simulated one. A mean is near if it differs by at
most 10 %, or by at most the half-width of its 95 % interval. With a folder as fifth argument, it writes the
picture of `drive` there. Nothing else may use the machine.
"""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NEAR = 0.1
ROUNDING = 0.05
"""Difference of shares that counts as none [%]."""


def document_of(system: str, folder: Path) -> Path:
    """Return the path of a system."""
    if system != "everything-but-batching":
        return ROOT / "specs" / system
    copied = folder / "everything"
    shutil.copytree(ROOT / "specs/everything", copied)
    (copied / "batching-platform.yaml").unlink()
    return copied


def is_near(row: dict[str, Any]) -> bool:
    """Return whether a measured figure is that of the simulator."""
    width = max(NEAR * abs(row["simulated"]), row["half_width"] or 0.0, ROUNDING * (row["unit"] == "%"))
    return bool(abs(row["measured"] - row["simulated"]) <= width)


def driven(
    document: Path, plan: Path, share: str, speed: str, requests: str, picture: Path | None
) -> list[dict[str, Any]]:
    """Return the rows of `drive` at the emulated fleet of a document, whose plan is written to a file."""
    program, planned = [sys.executable, "-m", "optimizer"], ["--plan", str(plan)]
    subprocess.run([*program, "solve", str(document), "-o", str(plan)], check=True, stdout=subprocess.DEVNULL)
    flags = [
        *planned,
        "--port",
        "0",
        "--share",
        share,
        "--speed",
        speed,
        "--route",
        "random",
        "--retries",
        "0",
    ]
    emulator = subprocess.Popen(
        [*program, "emulate", str(document), *flags], stdout=subprocess.PIPE, text=True
    )
    try:
        assert emulator.stdout is not None
        lines = (json.loads(line) for line in emulator.stdout)
        url = next(line["url"] for line in lines if "ready" in line)
        drawn = planned if picture is None else [*planned, "-o", str(picture)]
        command = [*program, "drive", str(document), url, "--requests", requests, "--json", *drawn]
        rows: list[dict[str, Any]] = json.loads(subprocess.check_output(command))
        return rows
    finally:
        emulator.send_signal(signal.SIGTERM)
        emulator.wait()


def main() -> None:
    """Print the figures, those that are not near marked."""
    system, share, speed, requests, *folder = sys.argv[1:]
    picture = Path(folder[0]) / f"live-{Path(system).stem}.svg" if folder else None
    with tempfile.TemporaryDirectory() as made:
        document, plan = document_of(system, Path(made)), Path(made) / "plan.json"
        rows = driven(document, plan, share, speed, requests, picture)
    compared = [row for row in rows if row["measured"] is not None and row["simulated"] is not None]
    for row in compared:
        width, mark = row["half_width"] or float("nan"), "" if is_near(row) else "  <--"
        figures = f"{row['measured']:12.3f} ±{width:9.3f} {row['simulated']:12.3f} {row['unit']}"
        print(f"{row['server']:28} {row['metric']:16} {figures}{mark}")
    print(f"{sum(map(is_near, compared))} of {len(compared)} figures are near")


if __name__ == "__main__":
    main()
