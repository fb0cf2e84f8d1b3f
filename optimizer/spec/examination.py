"""Everything that is wrong in documents, in one go.

Takes a path, gives the sound parts of its documents and all faults: of the files, of the schema, and of names
that occur twice or refer to nothing. Where a document is broken, what may stand in it is given the benefit of
the doubt.
"""

import os
from dataclasses import dataclass

from optimizer.errors import SpecError
from optimizer.spec.faults import MAX_FAULTS, Fault, FaultyDocumentsError, in_order
from optimizer.spec.files import Part, Text, document_files, part_of, read_document, sound_spec
from optimizer.spec.schema import SystemSpec
from optimizer.spec.system import contradictions

_ALL_SECTIONS = frozenset(field.alias or name for name, field in SystemSpec.model_fields.items())


@dataclass(frozen=True, slots=True)
class Examination:
    """What documents hold, and what is wrong in them."""

    parts: tuple[Part, ...]
    """Without what is wrong in them."""
    faults: tuple[Fault, ...]
    """In the order of the files and lines."""


def examine(path: str | os.PathLike[str]) -> Examination:
    """Read a file, every document file of a directory, or standard input, and find all that is wrong.

    Raises:
        SpecError: the path does not exist, or the directory holds no document.
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
        found, mine, missing = _examined(text)
        parts += found
        faults += mine
        incomplete |= missing
    faults += contradictions(parts, incomplete)
    return Examination(tuple(parts), tuple(in_order(faults)[:MAX_FAULTS]))


def _examined(text: Text) -> tuple[list[Part], list[Fault], frozenset[str]]:
    """Return the sound part of a document, its faults, and the sections that may hold more than the part."""
    try:
        value = text.value()
    except SpecError as error:
        return [], [_whole(error)], _ALL_SECTIONS
    try:
        return [part_of(text, value)], [], frozenset()
    except FaultyDocumentsError as error:
        if error.others:  # rubbish
            return [], list(error.faults), _ALL_SECTIONS
        sound = sound_spec(value, text.context)
        return [Part(sound.document, text, sound.kept)], list(error.faults), sound.incomplete
    except SpecError as error:
        return [], [_whole(error)], _ALL_SECTIONS


def _whole(error: SpecError) -> Fault:
    """Return an error that has its place in its text."""
    return Fault((), str(error))
