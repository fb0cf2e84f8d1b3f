"""An emulated fleet in a process of its own."""

import http.client
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from forked import Forked, forked
from patience import PATIENCE_S

FLEET = """
accelerators: [{name: GPU, type: GPU, cost: 50, memSize: 80}]
count: [{type: GPU, count: 8}]
models:
  - {name: chat, acc: GPU, queueModel: continuous, maxBatchSize: 2, kvCapacity: 4000,
     perfParms: {alpha: 10.0, beta: 0.02, gamma: 0.0001}}
  - {name: vision, acc: GPU, maxBatchSize: 2, batchParms: {base: 200 ms}}
serviceClasses:
  - name: Interactive
    priority: 1
    modelTargets:
      - {model: chat, slo-itl: 60, slo-ttft: 2000}
      - {model: vision, latency: [{percentile: 99, ms: 4 s}], maxRejected: 20 %}
servers:
  - {name: talk, class: Interactive, model: chat, minNumReplicas: 2, maxQueueSize: 1,
     currentAlloc: {load: {arrivalRate: 0.1/s, avgInTokens: 40, avgOutTokens: 20}}}
  - {name: eyes, class: Interactive, model: vision, batchTrigger: gap, batchTimeout: 50 ms, maxQueueSize: 2,
     currentAlloc: {load: {arrivalRate: 0.1/s}}}
"""
"""Two replicas of two slots each and a place to wait, and a batch server; figures made for these tests."""


class Answer(NamedTuple):
    status: int
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def events(self) -> list[Any]:
        """Return the events of a stream; the mark of its end is the last."""
        parts = [part.removeprefix("data: ") for part in self.text.split("\n\n") if part]
        assert parts[-1] == "[DONE]"
        return [json.loads(part) for part in parts[:-1]]


class Emulator(NamedTuple):
    process: Forked
    replicas: list[dict[str, str]]
    url: str

    def replicas_of(self, server: str) -> list[dict[str, str]]:
        return [one for one in self.replicas if one["server"] == server]

    def ask(
        self, path: str, body: Any = None, url: str | None = None, method: str | None = None, key: str = ""
    ) -> Answer:
        address = urlsplit(url or self.url)
        connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=PATIENCE_S)
        content = None if body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        connection.request(method or ("GET" if body is None else "POST"), path, content, headers)
        reply = connection.getresponse()
        answer = Answer(reply.status, reply.read().decode())
        connection.close()
        return answer


@contextmanager
def emulated(document: str | Path, *flags: str) -> Iterator[Emulator]:
    """Run an emulator of a document; it ends by itself after a stop signal, and closes its ports."""
    with forked("emulate", document, "--port", "0", *flags) as process:
        lines = []
        for line in process.stdout:
            lines.append(json.loads(line))
            if "ready" in lines[-1]:
                break
        else:
            raise AssertionError(process.communicate()[1])
        yield Emulator(process, lines[:-1], lines[-1]["url"])
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate()
        assert (process.returncode, errors.replace("\r", "").strip("\n")) == (
            0,
            "",
        ) or "compiling" in errors, errors
