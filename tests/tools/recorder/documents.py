"""The 360 documents, each made from a seed when it is recorded."""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from builders import Json, random_document
from feature_fleets import random_with_routes
from mixed_oracles import random_mixed_document

from recorder import commands, oddities
from recorder.fleets import mixed_fleet
from recorder.kinds import KINDS
from recorder.program import Program
from recorder.questions import Question
from recorder.replicas import program_questions, replica_questions

TIME_LIMIT_S = 100
"""Many times what a proof takes, so that no busy machine stops one [s]."""
STOPPED_AFTER_S = 5
"""Time limit of fleets that no time proves [s]."""
Source = Callable[[Program], Json]


@dataclass(frozen=True, slots=True)
class Document:
    """A document and what it is asked."""

    name: str
    source: Source
    questions: Mapping[str, Question]
    options: Mapping[str, Any]
    """Options of the ``optimizer`` section that replace its own."""

    def make(self, program: Program) -> Json:
        """Return the document; proofs are exact, as others do not single out one plan."""
        document = self.source(program)
        if self.options:
            document["optimizer"] = document.get("optimizer", {}) | self.options
        return document


def all_documents(tree: Path) -> dict[str, Document]:
    """Return the documents by name.

    Args:
        tree: where ``specs`` lies.
    """
    found = [
        *_samples(tree),
        *_generated(),
        *_random(),
        *_of_kinds(),
        *_mixtures(),
        *_features(),
        *_policies(),
        *_with_options(),
        *_odd(),
        *_replicas(),
    ]
    return {document.name: document for document in found}


def _document(
    name: str, source: Source, questions: Mapping[str, Question] = commands.SMALL, **options: object
) -> Document:
    return Document(name, source, questions, {"gap": 0, "timeLimit": TIME_LIMIT_S} | options)


def _samples(tree: Path) -> Iterator[Document]:
    def converted(path: Path, program: Program) -> Json:
        program.run("convert", str(path), "-o", "sample.json")
        sample: Json = json.loads(program.read("sample.json"))
        return sample

    for path in sorted((tree / "specs").iterdir()):
        yield _document(f"sample-{path.stem}", partial(converted, path))


# --- generated fleets ---------------------------------------------------------------------------------------

SMALL_SIZES = ((3, 4, 2), (6, 5, 2), (10, 8, 3), (16, 9, 3))
MIDDLE_SIZES = ((24, 10, 4), (40, 10, 4))
TIGHTNESSES = (0.8, 1.2, 1.6, 2.2)
PROVED = (
    (60, 12, 4, 0.8), (60, 12, 4, 1.6), (100, 16, 5, 0.8), (100, 20, 6, 1.4), (100, 20, 6, 2.0),
    (150, 16, 5, 1.0), (150, 16, 5, 1.8), (200, 20, 6, 0.8), (300, 20, 6, 2.0),
)  # fmt: skip
"""Servers, accelerators, types and tightness of larger fleets, whose plans are proved in seconds."""
UNPROVED = (
    (36, 14, 14, 1.5, 95), (40, 10, 10, 1.8, 62), (200, 20, 6, 1.4, 5), (300, 20, 6, 1.2, 5),
    (400, 24, 8, 1.6, 5), (500, 30, 8, 1.4, 5), (600, 30, 10, 2.0, 5),
)  # fmt: skip
"""The same and the seed of fleets whose mixed plan, single plan or both the clock stops."""
Size = tuple[int, int, int]


def _fleet(size: Size, tightness: float, seed: int, program: Program) -> Json:
    servers, accelerators, types = map(str, size)
    made: Json = program.json(
        "generate", "--servers", servers, "--accelerators", accelerators, "--types", types,
        "--tightness", str(tightness), "--seed", str(seed),
    )  # fmt: skip
    return made


def _generated() -> Iterator[Document]:
    for size in SMALL_SIZES:
        for tightness in TIGHTNESSES:
            for seed in (1, 2):
                name = f"generated-{size[0]}-{tightness}-{seed}"
                yield _document(name, partial(_fleet, size, tightness, seed))
    for size in MIDDLE_SIZES:
        for tightness in TIGHTNESSES:
            questions = commands.PLANS | commands.MORE_PLANS
            name = f"generated-{size[0]}-{tightness}"
            yield _document(name, partial(_fleet, size, tightness, 3), questions)
    for servers, accelerators, types, tightness in PROVED:
        made = partial(_fleet, (servers, accelerators, types), tightness, 5)
        yield _document(f"generated-{servers}-{tightness}", made, commands.FEW_SOLVES)
    for servers, accelerators, types, tightness, seed in UNPROVED:
        made = partial(_fleet, (servers, accelerators, types), tightness, seed)
        yield _document(f"stopped-{servers}", made, commands.STOPPED, timeLimit=STOPPED_AFTER_S)


# --- small fleets at random ---------------------------------------------------------------------------------


def _made(document: Callable[[], Json]) -> Source:
    return lambda _: document()


def _random() -> Iterator[Document]:
    def any_one(seed: int) -> Json:
        return random_document(random.Random(seed))

    for seed in range(30):
        yield _document(f"random-{seed:02d}", _made(partial(any_one, seed)))
    for seed in range(13):
        yield _document(f"random-mixed-{seed:02d}", _made(partial(random_mixed_document, seed)))


COUNTS = {
    "linear": 8,
    "static": 12,
    "iteration": 8,
    "continuous": 14,
    "terms": 8,
    "experts": 8,
    "estimate": 10,
    "batch": 24,
}
"""Fleets of each kind."""
ROOM = ((8, 30), (4, 12), None)
"""Units of each type, in turn."""


def _of_kinds() -> Iterator[Document]:
    for kind, count in COUNTS.items():
        for i in range(count):
            made = partial(mixed_fleet, f"{kind} {i}", [kind], 2 + i % 4, ROOM[i % 3])
            slow = kind in {"static", "continuous", "terms", "batch"}
            questions = commands.GIVEN_BATCHES if slow else commands.SMALL
            yield _document(f"{kind}-{i:02d}", _made(made), questions)


PAIRS = (
    ("batch", "continuous"),
    ("batch", "linear"),
    ("static", "linear"),
    ("static", "batch"),
    ("estimate", "continuous"),
    ("estimate", "batch"),
    ("linear", "iteration"),
    ("experts", "terms"),
)


def _mixtures() -> Iterator[Document]:
    for i, pair in enumerate(PAIRS):
        made = partial(mixed_fleet, f"pair {i}", pair, 5, ROOM[i % 2])
        yield _document(f"mixture-{'-'.join(pair)}", _made(made), commands.GIVEN_BATCHES)
    for i in range(8):
        made = partial(mixed_fleet, f"all {i}", list(KINDS), 8, ROOM[i % 3])
        yield _document(f"mixture-{i}", _made(made), commands.GIVEN_BATCHES)


# --- features that plan servers together --------------------------------------------------------------------


def _features() -> Iterator[Document]:
    for seed in range(60):
        yield _document(f"feature-{seed:02d}", _made(partial(random_with_routes, seed)))


# --- policies and options -----------------------------------------------------------------------------------


def _policies() -> Iterator[Document]:
    for policy in ("None", "PriorityExhaustive", "PriorityRoundRobin", "RoundRobin"):
        for delayed in (False, True):
            for mixed in (False, True):
                yield _document(
                    f"policy-{policy}{'-delayed' * delayed}{'-mixed' * mixed}",
                    partial(_fleet, (8, 6, 3), 2.5, 6),
                    commands.SMALL,
                    saturationPolicy=policy,
                    delayedBestEffort=delayed,
                    heterogeneous=mixed,
                )


def _with_options() -> Iterator[Document]:
    def fleet(seed: str) -> Source:
        return _made(partial(mixed_fleet, seed, ["linear", "iteration"], 5, (5, 16)))

    for i in range(4):
        yield _document(f"sized-{i}", fleet(f"sized {i}"), batchSizing="optimal")
        yield _document(f"greedy-{i}", fleet(f"greedy {i}"), milpSolver=False)
        yield _document(f"penalty-{i}", fleet(f"penalty {i}"), transitionPenalty=(0, 0.02, 1, 10)[i])
    for value in (0.0001, 0.01, "none"):
        yield _document(f"loss-{value}", fleet("loss"), maxLoss=value)
    for end in ("lower", "middle"):
        for i in range(2):
            made = partial(mixed_fleet, f"end {i}", ["estimate"], 4, (8, 30))
            yield _document(f"estimates-{end}-{i}", _made(made), estimates=end)
    for i, kinds in enumerate((["linear"], ["batch"], ["continuous", "batch"], ["estimate"])):
        made = partial(mixed_fleet, f"units {i}", kinds, 4, (6, 20))
        yield _document(f"units-{i}", _made(partial(oddities.with_units, made, i)))


def _odd() -> Iterator[Document]:
    for name, made in oddities.ODD.items():
        yield _document(f"odd-{name}", _made(made))
    for name, made in oddities.WRONG.items():
        yield _document(f"wrong-{name}", _made(made), commands.REFUSED)


def _replicas() -> Iterator[Document]:
    """Yield documents that are no systems: replicas, and the program itself."""
    for kind in KINDS:
        for i in range({"estimate": 1, "batch": 8}.get(kind, 2)):
            rng = random.Random(f"replica {kind} {i}")
            yield Document(f"replica-{kind}-{i}", lambda _: {}, replica_questions(kind, rng), {})
    yield Document("program", lambda _: {}, program_questions(), {})
