"""The 48 documents of the tests, each with some of its questions; every question is asked of one."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from recorder.cleaning import portable
from recorder.comparing import Difference, Rules, differences
from recorder.recording import (
    SUFFIX,
    Recorded,
    documents_of,
    names_in,
    read_recorded,
    recorded,
    write_recorded,
)

ROOT = Path(__file__).resolve().parents[3]
STORED = ROOT / "tests" / "data" / "recorded"
"""The recording that they are compared with."""
RULES = Rules(tolerance=3e-8)
"""Stored numbers have nine digits, of which other processors and libraries may change the last."""
_ASKED = {
    "sample-small": "solve, candidates json, solve tables, compare, solve mixed",
    "sample-large": "solve, candidates json, solve wide, solve unlimited",
    "sample-chat": "solve, report, plot distribution, plot latency",
    "sample-long-prompts": "solve, candidates sized, solve sized, compare json, plot batch",
    "sample-queue-servers": "solve, check, plot latency, plot batch, wire",
    "sample-batching-platform": "solve",
    "generated-3-1.2-1": "solve, candidates json, explain json, report json, v1 fleet",
    "generated-10-1.6-1": "solve, candidates json, verify proof, manifests keda, plot types, plot targets",
    "generated-24-1.2": "solve, solve csv, solve mixed",
    "generated-40-0.8": "solve, candidates json, verify",
    "linear-00": "solve, candidates json, explain server, simulate json, plot latency, plot batch",
    "linear-07": "solve, candidates, plot cost, convert",
    "static-00": "solve, candidates json, check json, simulate, solve tables",
    "iteration-02": "solve, candidates json, plot latency, wire fleet",
    "continuous-12": "solve, candidates csv, solve tables",
    "terms-02": "solve, candidates json, simulate json, compare load",
    "experts-01": "solve, plot targets",
    "estimate-01": "solve, candidates json, solve middle, solve tables, candidates",
    "batch-08": "solve, candidates, simulate json, explain",
    "batch-13": "solve, solve tables, report, simulate",
    "mixture-batch-continuous": "solve, candidates json, solve wide, report",
    "mixture-static-linear": "solve, compare json, plot load, plot assignment",
    "policy-RoundRobin-delayed": "solve, solve tables, compare options",
    "policy-PriorityExhaustive-mixed": "solve, candidates json, solve both",
    "policy-PriorityRoundRobin": "solve, solve greedy, check",
    "greedy-0": "solve, solve tables, repair",
    "penalty-2": "solve, solve tables, verify",
    "loss-0.01": "solve, candidates json, explain",
    "units-0": "solve, solve tables, report, compare",
    "odd-names": "solve, solve tables, report, manifests, wire",
    "odd-moving": "solve, explain, solve mixed, report files",
    "odd-unattainable": "solve, candidates json, candidates, explain, check",
    "replica-batch-4": "analyze tables, analyze rows, size json, wire",
    "replica-continuous-0": "analyze json, size, wire",
    "replica-static-0": "analyze high, analyze simulated, size rows",
    "replica-estimate-0": "estimate llama-3.1-8b H100, estimate tables",
    "feature-27": "solve, verify, explain",
    "feature-32": "solve, solve tables, report, check",
    "feature-39": "solve, verify, solve tables, manifests, compare json",
    "feature-43": "solve, verify, solve tables, compare options",
    "feature-46": "solve, solve mixed, manifests keda",
    "random-00": "solve, solve mixed, explain, v1 studies",
    "continuous-01": "solve, candidates json, simulate csv, report simulated",
    "batch-18": "solve, candidates json, compare, plot latency, manifests prometheus",
    "generated-6-2.2-1": "solve, explain, solve greedy, manifests, compare random, v1",
    "feature-40": "solve, candidates json, explain json",
    "feature-55": "solve, verify, solve greedy, report json",
    "feature-56": "solve, verify, solve tables, compare json",
}
BRIEF: dict[str, tuple[str, ...]] = {name: tuple(asked.split(", ")) for name, asked in _ASKED.items()}
"""Names of the questions of each document."""


def answered(name: str, folder: Path) -> Recorded:
    """Return what the program answers for one of the documents, as other machines give it.

    Args:
        name: the document.
        folder: an empty folder to work in.
    """
    found: Recorded = portable(recorded(documents_of(ROOT)[name], folder, BRIEF[name]))
    return found


def changed(name: str, found: Recorded) -> list[Difference]:
    """Return what differs from the stored recording, to which a document may be new."""
    path = STORED / f"{name}{SUFFIX}"
    before = read_recorded(path) if path.exists() else {"document": {}, "answers": {}}
    return list(differences(name, before, found, RULES))


def store() -> Iterator[str]:
    """Store what the program answers now; yield the names of the documents whose answers have changed."""
    STORED.mkdir(exist_ok=True)
    for name in {*names_in(STORED)} - {*BRIEF}:
        (STORED / f"{name}{SUFFIX}").unlink()
    for name in BRIEF:
        with tempfile.TemporaryDirectory() as place:
            found = answered(name, Path(place))
        if changed(name, found):
            write_recorded(found, STORED / f"{name}{SUFFIX}")
            yield name
