"""Recordings: a folder with a file for each document, which holds it and its answers."""

import gzip
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any

from recorder.documents import Document, all_documents
from recorder.program import Program, check_tree
from recorder.questions import FLEET, answers

Recorded = dict[str, Any]
SUFFIX = ".json.gz"


def recorded(document: Document, folder: Path, questions: Collection[str] | None = None) -> Recorded:
    """Return a document and its answers.

    Args:
        document: what to record.
        folder: an empty folder to work in.
        questions: names of those to ask; None means all.
    """
    program = Program(folder)
    made = document.make(program)
    program.write(FLEET, made)
    asked = {name: one for name, one in document.questions.items() if questions is None or name in questions}
    return {"document": made, "answers": answers(program, made, asked)}


def write_recorded(found: Recorded, path: Path) -> None:
    """Write one document's recording; the same one gives the same bytes."""
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def read_recorded(path: Path) -> Recorded:
    """Return one document's recording."""
    found: Recorded = json.loads(gzip.decompress(path.read_bytes()))
    return found


def names_in(folder: Path) -> list[str]:
    """Return the names of the documents in a recording."""
    return sorted(path.name.removesuffix(SUFFIX) for path in folder.glob(f"*{SUFFIX}"))


@cache
def documents_of(tree: Path) -> dict[str, Document]:
    """Return the documents by name; made once, as processes record many."""
    return all_documents(tree)


def _record_one(tree: Path, folder: Path, name: str) -> float:
    """Record a document in a process that does it for several; return how long it took [s]."""
    check_tree(tree)
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        write_recorded(recorded(documents_of(tree)[name], Path(place)), folder / f"{name}{SUFFIX}")
    return time.perf_counter() - begin


def record(tree: Path, folder: Path, names: Sequence[str], jobs: int) -> dict[str, float]:
    """Record documents in several processes; return how long each took [s].

    Args:
        tree: the checkout whose program answers, the first place where modules are looked for.
        folder: where the recording is written.
        names: documents.
        jobs: processes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")  # a core for each process
    taken: dict[str, float] = {}
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        running = {pool.submit(_record_one, tree, folder, name): name for name in names}
        for done in as_completed(running):
            name = running[done]
            taken[name] = done.result()
            print(f"{len(taken):4d}/{len(names)}  {taken[name]:6.1f} s  {name}", file=sys.stderr, flush=True)
    return taken
