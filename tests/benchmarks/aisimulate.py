"""Cards per server beside AISimulate: ``python tests/benchmarks/aisimulate.py PYTHON [TYPE…]``.

``PYTHON`` is the interpreter of an environment with the package ``aisimulate``. Each server of
``specs/gpus.yaml`` is planned alone on one card type. For AISimulate the fewest cards are those of the first
replicas, fewest cards first, whose mean TTFT and ITL hold in its own replay with Poisson arrivals: what its
``min_gpus`` looks for. The answers of inferplan are replayed by AISimulate, too, and those of AISimulate are
simulated by inferplan, both with token times in the middle of their estimates.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from optimizer import load_system, solve

DOCUMENT = Path(__file__).parents[2] / "specs" / "gpus.yaml"
MODELS = {
    "llama-3.1-8b": "meta-llama/Meta-Llama-3.1-8B",
    "qwen3-32b": "Qwen/Qwen3-32B",
    "llama-3.1-70b": "meta-llama/Meta-Llama-3.1-70B",
    "gpt-oss-120b": "openai/gpt-oss-120b",
}
MIXTURES = {"gpt-oss-120b"}
SYSTEMS = {"H100": "h100_sxm", "H200": "h200_sxm", "A100": "a100_sxm"}
WIDTHS = 1, 2, 4
MAX_CARDS = 16
MIN_REQUESTS = 2000
MIN_TARGETS = 10
"""A replay lasts at least as many targets of the TTFT: in a shorter one an overload does not show."""
REPLAY = """
import json, os, sys
from aisimulate import predict, supervision
from aisimulate.config.cli import CorePredictionConfig
from aisimulate.runner import EngineReplayRunnerFactory

os.environ[supervision._CONTEXT] = "{}"  # replays run in this process
for line in sys.stdin:
    try:
        config = CorePredictionConfig.model_validate(json.loads(line))
        factory = EngineReplayRunnerFactory()
        found = predict.run_prediction(config, stack="engine", runner_factory=factory).summary
        print("means", json.dumps([found["mean_ttft_ms"], found["mean_tpot_ms"]]), flush=True)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        print("means null", flush=True)
"""
"""Program of the other environment: a line with means for each line with a configuration."""


class Server(NamedTuple):
    """A server of the document: its load and its targets."""

    name: str
    model: str
    rate_rps: float
    in_tokens: int
    out_tokens: int
    ttft_ms: float
    itl_ms: float

    @property
    def requests(self) -> int:
        """Number of requests of a replay."""
        return max(MIN_REQUESTS, round(MIN_TARGETS * self.ttft_ms / 1000 * self.rate_rps))


class Replicas(NamedTuple):
    """A number of replicas of some cards each."""

    cards: int
    number: int

    @property
    def total(self) -> int:
        """Number of cards of all replicas."""
        return self.cards * self.number

    def __str__(self) -> str:
        """Return for example ``4 (2 x 2 cards)``."""
        return f"{self.total} ({self.number} x {self.cards})"


def servers() -> list[Server]:
    """Return the servers of the document."""
    document = yaml.safe_load(DOCUMENT.read_text("utf-8"))
    targets = {
        (each["name"], target["model"]): target
        for each in document["serviceClasses"]
        for target in each["modelTargets"]
    }
    found = []
    for each in document["servers"]:
        load, target = each["currentAlloc"]["load"], targets[each["class"], each["model"]]
        rate_rps = float(load["arrivalRate"].removesuffix("/s"))
        ttft_ms = 1000 * float(target["slo-ttft"].removesuffix("s"))
        itl_ms = float(target["slo-itl"].removesuffix("ms"))
        tokens = load["avgInTokens"], load["avgOutTokens"]
        found.append(Server(each["name"], each["model"], rate_rps, *tokens, ttft_ms, itl_ms))
    return found


def planned(kind: str, estimates: str) -> dict[str, Replicas]:
    """Return the replicas of each server in the plan of the document with any number of one card type."""
    document = yaml.safe_load(DOCUMENT.read_text("utf-8"))
    document["count"] = [{"type": each["type"], "count": 0} for each in document["count"]]
    for each in document["count"]:
        each["count"] = 10_000 * (each["type"] == kind)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(document, file)
        file.flush()
        system = load_system(file.name).with_options(estimates=estimates)
    cards = {each["name"]: each.get("multiplicity", 1) for each in document["accelerators"]}
    return {
        name: Replicas(cards[pool.accelerator], pool.num_replicas)
        for name, pools in solve(system).allocations.items()
        for pool in pools
    }


class AISimulate:
    """A process of the other environment that replays configurations."""

    def __init__(self, python: str) -> None:
        """Start the process."""
        self._process = subprocess.Popen(
            [python, "-c", REPLAY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._known: dict[Any, tuple[float, float] | None] = {}

    def replayed(self, server: Server, kind: str, replicas: Replicas) -> tuple[float, float] | None:
        """Return the mean TTFT and ITL of a server [ms]; None where the model does not fit."""
        key = server, kind, replicas
        if key not in self._known:
            assert self._process.stdin
            assert self._process.stdout
            self._process.stdin.write(json.dumps(prediction(server, kind, replicas)) + "\n")
            self._process.stdin.flush()
            answer = next(line for line in self._process.stdout if line.startswith("means "))
            means = json.loads(answer.removeprefix("means "))
            self._known[key] = None if means is None else (means[0], means[1])
        return self._known[key]


def prediction(server: Server, kind: str, replicas: Replicas) -> dict[str, Any]:
    """Return the configuration that replays a server on some replicas."""
    tokens = {"input_tokens": server.in_tokens, "output_tokens": server.out_tokens}
    widths = {"tensor": replicas.cards} | ({"moe_tensor": replicas.cards} if server.model in MIXTURES else {})
    return {
        "traffic": {
            "source": {"type": "synthetic", **tokens},
            "load": {"type": "poisson", "requests_per_second": server.rate_rps},
            "stop": {"requests": server.requests},
        },
        "engine": {
            "mode": "aggregated", "model": MODELS[server.model], "hardware": SYSTEMS[kind], "backend": "vllm",
            "context_length": sum(tokens.values()),
            "workers": {"aggregated": {"parallelism": {"replicas": replicas.number, **widths}}},
        },
    }  # fmt: skip


def simulated(server: Server, kind: str, replicas: Replicas) -> tuple[float, float] | None:
    """Return the mean TTFT and ITL of a server in inferplan's simulation [ms]; None if its queue grows."""
    cards = f"{replicas.cards}x{kind}" if replicas.cards > 1 else kind
    options = {
        "--model": server.model, "--accelerator": cards, "--tp": replicas.cards,
        "--rate": server.rate_rps / replicas.number, "--in-tokens": server.in_tokens,
        "--out-tokens": server.out_tokens, "--max-batch": 256, "--estimates": "middle",
    }  # fmt: skip
    command = [sys.executable, "-m", "optimizer", "analyze", "--simulate", "--json"]
    command += [str(each) for pair in options.items() for each in pair]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(run.stdout)["simulated"] if run.returncode == 0 else {}
    return (found["avgTTFT"], found["avgITL"]) if "avgTTFT" in found else None


def fewest(other: AISimulate, server: Server, kind: str) -> Replicas | None:
    """Return the fewest cards of AISimulate on which the mean TTFT and ITL hold."""
    tries = [Replicas(cards, number) for cards, number in product(WIDTHS, range(1, MAX_CARDS + 1))]
    for replicas in sorted(tries, key=lambda each: (each.total, -each.cards)):
        if replicas.total <= MAX_CARDS and holds(server, other.replayed(server, kind, replicas)):
            return replicas
    return None


def holds(server: Server, means: tuple[float, float] | None) -> bool:
    """Return whether mean TTFT and ITL are within the targets of a server."""
    return means is not None and means[0] <= server.ttft_ms and means[1] <= server.itl_ms


def told(server: Server, means: tuple[float, float] | None) -> str:
    """Return mean TTFT and ITL as text, with whether they hold."""
    if means is None:
        return "overload or too large"
    return f"{means[0]:,.0f} / {means[1]:.1f} ms {'held' if holds(server, means) else 'missed'}"


def main() -> None:
    """Print a row for each server and card type."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python", metavar="PYTHON")
    parser.add_argument("--only", default="", metavar="TEXT", help="servers whose names have this text")
    parser.add_argument("types", nargs="*", default=["H100", "H200"], metavar="TYPE")
    given: Any = parser.parse_args()
    other = AISimulate(given.python)
    for kind in given.types:
        middle, upper = planned(kind, "middle"), planned(kind, "upper")
        for server in (each for each in servers() if given.only in each.name):
            began = time.perf_counter()
            theirs, ours = fewest(other, server, kind), middle[server.name]
            replay = told(server, other.replayed(server, kind, ours))
            ours_of_theirs = told(server, simulated(server, kind, theirs)) if theirs else "-"
            print(
                f"{kind} {server.name}: AISimulate {theirs}, inferplan {ours}, slow end "
                f"{upper[server.name].total}; inferplan's in AISimulate: {replay}; "
                f"AISimulate's in inferplan: {ours_of_theirs} ({time.perf_counter() - began:.0f} s)",
                flush=True,
            )


if __name__ == "__main__":
    main()
