"""Measure how late tokens reach a client: ``python tests/benchmarks/client_lag.py [SECONDS [RATE]]``.

100 emulated replicas get RATE (200) requests/s of 64 streamed tokens through the router. The emulator runs
with a hook that notes when each token was due by the engine's clock; both processes read the same monotonic
clock. The lag is the arrival of a token's event at the client minus that time, so it includes the router,
HTTP and the client. The first tenth of the answers, when caches are cold, does not count.
"""

import asyncio
import atexit
import contextvars
import json
import os
import random
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "rest_server")]
PLANNED = "CLIENT_LAG_FILE"
"""Environment variable with the file that the emulator writes the times of its tokens to."""
ANSWER = 64
START = b'data: {"id":"'


def emulate() -> None:
    """Run `inferplan emulate`, and write when each token of each answer was due, by the id of the answer."""
    from rest_server.emulator import completions, replica

    due: dict[str, list[float]] = {}
    current: contextvars.ContextVar[Any] = contextvars.ContextVar("current")
    stream, token, begin = (
        replica.TokenReplicaApp._stream,
        replica.TokenCall.token,
        completions.Writer.__init__,
    )

    async def noted_stream(self: Any, call: Any, *rest: Any) -> None:
        current.set(call)
        await stream(self, call, *rest)

    def noted_token(self: Any, at_ms: float, *, ended: bool) -> None:
        late_s = (self._replica.engine.now_ms() - at_ms) / 1000
        vars(self).setdefault("due", []).append(time.monotonic() - late_s)
        token(self, at_ms, ended=ended)

    def noted_writer(self: Any, *rest: Any) -> None:
        begin(self, *rest)
        due[self._id] = vars(current.get()).setdefault("due", [])

    replica.TokenReplicaApp._stream = noted_stream  # type: ignore[method-assign, assignment]
    replica.TokenCall.token = noted_token  # type: ignore[method-assign]
    completions.Writer.__init__ = noted_writer  # type: ignore[method-assign, assignment]
    atexit.register(lambda: Path(os.environ[PLANNED]).write_text(json.dumps(due)))
    runpy.run_module("optimizer", run_name="__main__", alter_sys=True)


async def send(url: str, rate_rps: float, seconds: float) -> dict[str, list[float]]:
    """Send requests at random times, and return when each token of each answer arrived, by its id."""
    rng, arrived, tasks = random.Random(1), dict[str, list[float]](), []
    address = urlsplit(url)
    body = json.dumps({
        "model": "chat", "prompt": [1] * 40, "max_tokens": ANSWER, "ignore_eos": True, "stream": True
    })  # fmt: skip
    head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"

    async def ask() -> None:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write((head + body).encode())
        while line := await reader.readline():
            if line.startswith(START):
                now_s, name = time.monotonic(), line[len(START) : line.index(b'"', len(START))].decode()
                arrived.setdefault(name, []).append(now_s)
        writer.close()

    due_s = time.monotonic()
    end_s = due_s + seconds
    while (due_s := due_s + rng.expovariate(rate_rps)) < end_s:
        await asyncio.sleep(max(due_s - time.monotonic(), 0))
        tasks.append(asyncio.create_task(ask()))
    await asyncio.gather(*tasks)
    return arrived


def main() -> None:
    """Run the command line."""
    if sys.argv[1:2] == ["emulate"]:
        emulate()
        return
    from test_emulator_at_length import HUNDRED

    seconds, rate_rps = (*map(float, sys.argv[1:]), *(60.0, 200.0)[len(sys.argv) - 1 :])
    with tempfile.TemporaryDirectory() as scratch:
        document, planned = Path(scratch) / "hundred.yaml", Path(scratch) / "due.json"
        document.write_text(HUNDRED)
        command = [sys.executable, __file__, "emulate", str(document), "--port", "0"]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ | {PLANNED: str(planned)}
        )
        assert process.stdout is not None
        ready = next(line for line in map(json.loads, process.stdout) if "ready" in line)
        try:
            arrived = asyncio.run(send(ready["url"], rate_rps, seconds))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
        due = json.loads(planned.read_text())
    lost = [name for name, times in arrived.items() if not len(times) == len(due[name]) == ANSWER]
    kept = [name for name in list(arrived)[len(arrived) // 10 :] if name not in lost]
    late_ms = 1000 * np.concatenate([np.subtract(arrived[name], due[name]) for name in kept])
    shown = ", ".join(f"p{rank} {np.percentile(late_ms, rank):.1f}" for rank in (50, 90, 99, 100))
    print(f"{len(arrived)} answers, {len(lost)} of them incomplete; lag at the client [ms]: {shown}")


if __name__ == "__main__":
    main()
