"""Questions about single replicas, about names of the catalogue, and about the program itself."""

import json
import random

from builders import Json

from recorder.kinds import CARDS, ESTIMATED_MODELS, KINDS, Workload
from recorder.questions import Command, Conversation, Question, Request

_FLAGS = {
    "maxBatchSize": "--max-batch", "maxQueueSize": "--max-queue", "batching": "--batching",
    "avgInTokens": "--in-tokens", "avgOutTokens": "--out-tokens", "kvCapacity": "--kv-capacity",
    "maxNumTokens": "--max-num-tokens", "scheduler": "--scheduler", "queueModel": "--queue-model",
    "arrivalCV": "--arrival-cv", "inTokensCV": "--in-tokens-cv", "outTokensCV": "--out-tokens-cv",
    "batchTrigger": "--trigger", "batchTimeout": "--window", "queueCounts": "--queue-counts",
    "jobs": "--jobs",
}  # fmt: skip
"""Flags of fields of profiles, servers and loads."""
_LAWS = {
    "decodeParms": {"alpha": "--decode-base", "beta": "--decode-per-request"},
    "prefillParms": {"gamma": "--prefill-base", "delta": "--prefill-per-token"},
    "batchParms": {"base": "--service-base", "slope": "--service-slope"},
    "perfParms": {
        "alpha": "--iteration-base", "beta": "--compute-per-token", "gamma": "--kv-read-per-token",
        "perSequence": "--per-sequence", "promptAttention": "--prompt-attention",
        "promptBase": "--prompt-base", "weightRead": "--weight-read", "batchBase": "--batch-base",
        "perPrompt": "--per-prompt", "expertRead": "--expert-read", "expertShare": "--expert-share",
        "clientOffset": "--client-offset", "pipelineDepth": "--pipeline-depth",
        "frontEndLag": "--front-end-lag", "pauseOffset": "--pause-offset",
        "idleOffset": "--idle-offset",
    },
}  # fmt: skip
_TARGETS = {"slo-ttft": "--target-ttft", "slo-itl": "--target-itl", "slo-e2e": "--target-e2e"}


def replica_questions(kind: str, rng: random.Random) -> dict[str, Question]:
    """Return what is asked of replicas of a kind; of estimates, what their coefficients are."""
    if kind == "estimate":
        return _estimates()
    workload = KINDS[kind](rng)
    profile = workload.profile(rng.choice(CARDS)[-1])
    server = {name: value for name, value in workload.server().items() if value}
    load = server.pop("load")
    flags = _flags(profile | server | load)
    rate, limits = load["arrivalRate"] / 120, _target_flags(workload)
    found: dict[str, Question] = {
        f"analyze {name}": Command(f"analyze {flags} --rate {factor * rate:.4g} {more}")
        for name, factor, more in (
            ("tables", 1, ""),
            ("json", 1, "--json"),
            ("low", 0.1, "--json"),
            ("high", 20, "--json"),
            ("csv", 2, "--csv"),
            ("simulated", 1, "--simulate --requests 500 --json"),
        )
    }
    found |= {
        "size": Command(f"size {flags} {limits}"),
        "size json": Command(f"size {flags} {limits} --json"),
        "size any": Command(f"size {flags} --json"),
    }
    return found | _rows(profile, server, load, rate)


def _flags(fields: Json) -> str:
    found: list[str] = []
    for name, value in fields.items():
        if name in _LAWS:
            for term, given in value.items():
                found += [_LAWS[name][term], str(given)]
        elif name == "stages":
            for stage in value:
                parts = (stage["name"], stage["where"], stage["time"], stage.get("cv", 1), stage["workers"])
                found += ["--stage", ",".join(map(str, parts))]
        elif name in _FLAGS:
            found += [_FLAGS[name], str(value)]
    return " ".join(found)


def _target_flags(workload: Workload) -> str:
    target = workload.target
    found = [part for name, flag in _TARGETS.items() if name in target for part in (flag, str(target[name]))]
    for limit in target.get("latency", ())[-1:]:
        found += ["--target-e2e", str(limit["ms"])]
        found += ["--percentile", str(limit["percentile"])] if "percentile" in limit else []
    if "percentile" in target:
        found += ["--percentile", str(target["percentile"])]
    return " ".join(found)


def _rows(profile: Json, server: Json, load: Json, rate_rps: float) -> dict[str, Question]:
    """Return questions about rows of JSON, in a file and over HTTP."""
    given = profile | server | load
    names = {"avgInTokens": "avgInputTokens", "avgOutTokens": "avgOutputTokens", "batchTrigger": "trigger"}
    names |= {"batchTimeout": "window"}
    left_out = {"atTokens", "arrivalRate", "batchWindow", "perfParms", "maxBatchSize"}
    row: Json = {names.get(name, name): value for name, value in given.items() if name not in left_out}
    row |= given.get("perfParms", {}) | {"maxBatchSize": profile["maxBatchSize"]}
    rows = [row | {"RPS": round(rate_rps * factor, 4)} for factor in (0.05, 0.5, 1.0, 4.0)]
    sized = [row | {"targetTTFT": 900 * factor, "targetITL": 40 * factor} for factor in (0.1, 1, 4)]
    text = "\n".join(map(json.dumps, rows)) + "\n"
    requests = [Request("POST", "/queue/solve", item) for item in rows]
    requests += [Request("POST", "/queue/target", item) for item in sized]
    replica = {"inTokens": load.get("avgInTokens"), "outTokens": load.get("avgOutTokens")}
    replica |= {"maxBatch": profile["maxBatchSize"]}
    replica |= {name: value for name, value in profile.items() if name not in {"maxBatchSize", "atTokens"}}
    requests += [
        Request("POST", "/v1/analyze", {"replica": replica, "rate": rate_rps}),
        Request("POST", "/v1/size", {"replica": replica, "targets": {"ttft": 2000, "itl": 60}}),
    ]
    items = [{"replica": replica, "rate": rate_rps * factor} for factor in (0.1, 3)]
    requests.append(Request("POST", "/v1/analyze", {"items": items}))
    file = {"rows.jsonl": text}
    return {
        "analyze rows": Command("analyze --batch rows.jsonl", given=file),
        "analyze rows simulated": Command("analyze --batch rows.jsonl --simulate --requests 500", given=file),
        "size rows": Command("size --batch rows.jsonl", given=file),
        "wire": Conversation(tuple(requests)),
    }


def _estimates() -> dict[str, Question]:
    found: dict[str, Question] = {
        f"estimate {model} {card}": Command(f"estimate {model} {card} --json")
        for model in ESTIMATED_MODELS
        for card in ("L40S", "H100", "MI300X")
    }
    return found | {
        "estimate tables": Command("estimate llama-3.1-70b H100 --tp 4 --at-batch 32"),
        "estimate fp8": Command("estimate llama-3.1-70b H100 --weights fp8 --cache fp8"),
        "estimate no room": Command("estimate llama-3.1-70b L4"),
        "estimate unknown": Command("estimate llama-9 H100"),
    }


_COMMANDS = (
    "init", "prices", "solve", "check", "candidates", "verify", "compare", "explain", "simulate", "replay",
    "report", "plot", "analyze", "size", "estimate", "fit", "predict", "profiles", "catalogue", "convert",
    "generate", "schema", "serve", "manifests", "samples", "completion",
)  # fmt: skip


def program_questions() -> dict[str, Question]:
    """Return what is asked of the program without a document: help, schemas, lists."""
    helps: dict[str, Question] = {f"help {name}": Command(f"{name} --help") for name in _COMMANDS}
    return helps | {
        "help": Command("--help"),
        "schema": Command("schema"),
        "catalogue": Command("catalogue --json"),
        "catalogue tables": Command("catalogue"),
        "samples": Command("samples"),
        "completion": Command("completion bash"),
        "init": Command(
            "init new.yaml --model llama-3.1-8b --accelerator L40S:8:0.90EUR/h --rate chat=3/s",
            writes="new.yaml",
        ),
        "use cases": Command("init --use-cases"),
        "openapi": Conversation((Request("GET", "/openapi.json"), Request("GET", "/"))),
        "openapi fleet": Conversation((Request("GET", "/openapi.json"), Request("GET", "/")), stateful=True),
    }
