"""Finds all faults of documents in one run.

Faults concern the files, the schema, and duplicate or undefined names. A name is not reported as undefined if
an invalid part of a document might define it.
"""

import os
from dataclasses import dataclass

from optimizer.errors import SpecError
from optimizer.schema.faults import MAX_FAULTS, Fault, FaultyDocumentsError, sorted_faults
from optimizer.schema.files import SECTIONS, Part, Text, document_files, part_of, read_document, sound_spec
from optimizer.schema.yaml_format import YamlSyntaxError
from optimizer.spec.contradictions import contradictions

_ALL_SECTIONS = frozenset(SECTIONS.values())


@dataclass(frozen=True, slots=True)
class Examination:
    """The valid parts of documents, and the faults of the documents."""

    parts: tuple[Part, ...]
    """Documents without their invalid parts."""
    faults: tuple[Fault, ...]
    """Faults of the documents, sorted by file and line."""


def examine(path: str | os.PathLike[str]) -> Examination:
    """Read a file, all document files of a directory, or standard input, and find all faults.

    Raises:
        SpecError: the path does not exist, or the directory has no document file.
    """
    parts: list[Part] = []
    faults: list[Fault] = []
    incomplete: set[str] = set()
    files = document_files(path)
    for file in files:
        try:
            text = read_document(file)
        except SpecError as error:
            if len(files) == 1:
                raise
            faults.append(_whole(error))
            incomplete |= _ALL_SECTIONS
            continue
        examined, of_text, missing = _examined(text)
        parts += examined
        faults += of_text
        incomplete |= missing
    faults += contradictions(parts, incomplete)
    return Examination(tuple(parts), tuple(sorted_faults(faults)[:MAX_FAULTS]))


def examine_text(text: Text) -> Examination:
    """Find all faults of one document."""
    parts, faults, incomplete = _examined(text)
    findings = [*faults, *contradictions(parts, incomplete)]
    return Examination(tuple(parts), tuple(sorted_faults(findings)[:MAX_FAULTS]))


def _examined(text: Text) -> tuple[list[Part], list[Fault], frozenset[str]]:
    """Return the valid part of a document, its faults, and the names of its incomplete sections."""
    try:
        value = text.value()
    except SpecError as error:
        return [], [_whole(error)], _ALL_SECTIONS
    try:
        return [part_of(text, value)], [], frozenset()
    except FaultyDocumentsError as error:
        if error.others:  # there are too many faults to use any part of the document
            return [], list(error.faults), _ALL_SECTIONS
        sound = sound_spec(value, text.context)
        part = Part(sound.document, text, sound.kept, sound.repaired)
        return [part], list(error.faults), sound.incomplete
    except SpecError as error:
        return [], [_whole(error)], _ALL_SECTIONS


def _whole(error: SpecError) -> Fault:
    """Return a fault for an error that concerns a whole document; its message can include its location."""
    if isinstance(error, YamlSyntaxError):
        return Fault((), error.problem, error.source, error.position)
    return Fault((), str(error))
