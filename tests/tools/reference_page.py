"""The generated parts of docs/reference.md: the fields of every document, and the help of every command.

Two comments, ``<!-- fields: NAME -->`` and ``<!-- end -->``, enclose the table of a document, and those of
the documents in it without such comments. Tables, and the help of commands at ``<!-- help: NAME -->``, are on
the site only (``site_pages.py``). Run ``python tests/tools/reference_page.py`` to add sections of new
studies.
"""

import re
from collections.abc import Container, Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

from command_help import common_flags, help_of, own_help_of
from pydantic import BaseModel

from optimizer.compat.class_rows import ClassFigures, RequestClass
from optimizer.compat.disaggregated_rows import (
    DisaggregatedAnswer,
    DisaggregatedRow,
    DisaggregatedSimulation,
)
from optimizer.compat.rows import ReplicaRow, RowAnswer
from optimizer.documents import MAX_COUNT, MAX_QUANTITY
from optimizer.fitting.profile import FittedProfile
from optimizer.jobs.table import STUDIES
from optimizer.kinds.batch_servers.rows import BatchRow, BatchSizing
from optimizer.kinds.batch_servers.shared_rows import SharedAnswer
from optimizer.kinds.replicas import ReplicaPerformance, ReplicaSizing
from optimizer.plan import Plan
from optimizer.schema import SystemSpec
from optimizer.studies.comparison.comparison_document import Comparison
from optimizer.studies.replay.replay_document import Replay
from optimizer.studies.simulation.simulation_document import RepairedPlan

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference.md"
INPUTS: tuple[type[BaseModel], ...] = (SystemSpec, ReplicaRow, RequestClass, BatchRow, DisaggregatedRow)
"""Documents that users write: their tables have the defaults."""
ANSWERS: tuple[type[BaseModel], ...] = (
    Plan,
    Comparison,
    RepairedPlan,
    Replay,
    ReplicaPerformance,
    ReplicaSizing,
    RowAnswer,
    ClassFigures,
    BatchSizing,
    SharedAnswer,
    DisaggregatedAnswer,
    DisaggregatedSimulation,
    FittedProfile,
)
"""Documents that the program writes, in addition to the answers of studies."""
SAME = {"PerfParms": "ProfileParms"}
"""Documents that are described by the table of another one with more fields."""
_HELP = re.compile(r"<!-- help: (?P<name>[\w-]+) -->\n")
_NEXT = "### analyze\n"
"""Heading of the section after those of the studies."""
_FIELDS = re.compile(r"(?<=<!-- fields: )(?P<name>\w+) -->\n.*?(?=<!-- end -->)", re.DOTALL)
_HEADING = re.compile(r"^(#+) (.+)$|<!-- fields: (\w+) -->", re.MULTILINE)


def generated(page: str) -> str:
    """Return the page with a section for every study, and without tables."""
    missing = [name for name, entry in STUDIES.items() if f"\n### {entry.command}\n" not in page]
    page = page.replace(_NEXT, "".join(map(_section, missing)) + _NEXT)
    return _FIELDS.sub(lambda found: f"{found['name']} -->\n", page)


def completed(page: str) -> str:
    """Return the page as the site shows it: with the fields of all documents and the help of commands."""
    tables = Tables(page)
    page = _FIELDS.sub(lambda found: f"{found['name']} -->\n\n{tables.of(found['name'])}", page)
    return _HELP.sub(lambda found: f"```text\n{_help_at(found['name'])}```\n", page)


def _help_at(name: str) -> str:
    """Return the help of a command, of the program or of the common flags."""
    match name:
        case "inferplan":
            return help_of(None)
        case "common":
            return "".join(common_flags())
        case _:
            return own_help_of(name)


def _section(name: str) -> str:
    entry = STUDIES[name]
    study = entry.study
    options = ", ".join(f"`{field}`" for field in study.options.model_fields)
    names = (each.__name__ for each in documents_in(study.answer))
    tables = "".join(f"<!-- fields: {each} -->\n<!-- end -->\n\n" for each in names)
    return (
        f"### {entry.command}\n\n{study.description}\n\n`POST /v1/{name}`, `POST /v1/fleet/{name}`, and "
        f"`{name}` of the clients. Query parameters: {options}.\n\n"
        f"{tables}<!-- help: {entry.command} -->\n\n"
    )


def documents_in(annotation: object) -> Iterator[type[BaseModel]]:
    """Yield the documents that a type of a field contains."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from documents_in(argument)


def reachable(model: type[BaseModel], without: Container[str] = ()) -> list[type[BaseModel]]:
    """Return a document and the documents in it, in the order of their fields, without some by name."""
    found: list[type[BaseModel]] = []
    waiting = [model]
    while waiting:
        mine = waiting.pop(0)
        if mine not in found:
            found.append(mine)
            inner = [each for field in mine.model_fields.values() for each in documents_in(field.annotation)]
            waiting = [each for each in inner if each.__name__ not in without] + waiting
    return found


@cache
def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema(by_alias=True)


class Tables:
    """Tables of the fields of documents, with links between them."""

    def __init__(self, page: str) -> None:
        """Find the documents, and the heading of each of them in the page."""
        studies = (each for entry in STUDIES.values() for each in documents_in(entry.study.answer))
        roots = (*INPUTS, *ANSWERS, *studies)
        self.documents: dict[str, type[BaseModel]] = {}
        for model in (each for root in roots for each in reachable(root)):
            known = self.documents.setdefault(model.__name__, model)
            assert known is model, f"two documents have the name {model.__name__}"
        self.inputs = {each for root in INPUTS for each in reachable(root)}
        self.anchors, heading = {name: name.lower() for name in self.documents}, ""
        self.marked: list[str] = []
        for _, text, name in _HEADING.findall(page):
            if name:
                self.marked.append(name)
                self.anchors[name] = heading
            elif text not in self.documents:
                heading = re.sub(r"[^\w\- ]", "", text).lower().replace(" ", "-")
        self.anchors |= {name: self.anchors[other] for name, other in SAME.items()}

    def of(self, name: str) -> str:
        """Return the table of a document, and those of the documents in it that no other comment has."""
        elsewhere = {*self.marked, *SAME}
        earlier = self.marked[: self.marked.index(name)]
        before = {inner for other in earlier for inner in reachable(self.documents[other], elsewhere)}
        first, *inner = reachable(self.documents[name], elsewhere)
        nested = (
            f"#### {each.__name__}\n\n{_text(each.__doc__)}\n\n{self._table(each)}"
            for each in inner
            if each not in before
        )
        return "".join([self._table(first), *nested])

    def _table(self, model: type[BaseModel]) -> str:
        schema = schema_of(model)
        required = set(schema.get("required", ()))
        has_default = model in self.inputs
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        head = ("field", "type", *(("default",) if has_default else ()), "meaning")
        rows = [head, ("---",) * len(head)]
        bases = (each for each in model.__mro__[1:] if each in self.documents.values())
        base = next((each for each in bases if each.__name__ not in SAME), None)
        inherited = set() if base is None else set(schema_of(base)["properties"])
        for key, field in schema["properties"].items():
            if key in inherited:
                continue
            type_ = self._type(field, schema.get("$defs", {}))
            default = "required" if key in required else _default(field.get("default"))
            if has_default or fields[key].exclude_if is not None:  # null means absent
                type_ = type_.removesuffix(" or null")
            meaning = _text(field["description"])
            rows.append((f"`{key}`", type_, *((default,) if has_default else ()), meaning))
        lines = (f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in rows)
        before = "" if base is None else f"The fields of {self._link(base.__name__)}, and:\n\n"
        return before + "".join(lines) + "\n"

    def _link(self, name: str) -> str:
        return f"[{name}](#{self.anchors[name]})"

    def _type(self, field: dict[str, Any], known: dict[str, Any]) -> str:
        """Describe a type of the JSON schema in words, with its limits."""
        if "$ref" in field:
            return self._type(known[field["$ref"].rpartition("/")[2]], known)
        if "enum" in field or "const" in field:
            return ", ".join(f"`{value}`" for value in field.get("enum") or [field["const"]])
        if "properties" in field:
            return self._link(field["title"])
        if options := field.get("anyOf") or field.get("oneOf"):
            plain = [option for option in options if "pattern" not in option]
            stated = plain if any(option != {"type": "null"} for option in plain) else options
            texts = [self._type(option, known) for option in stated]
            return " or ".join(sorted(dict.fromkeys(texts), key=lambda text: text == "null"))
        return self._json_type(field, known)

    def _json_type(self, field: dict[str, Any], known: dict[str, Any]) -> str:
        name: str = field["type"]
        if "prefixItems" in field:
            return " and ".join(self._type(item, known) for item in field["prefixItems"])
        if name in {"array", "object"}:
            items = field["items" if name == "array" else "additionalProperties"]
            return f"{'list' if name == 'array' else name} of {_plural(self._type(items, known))}"
        return {"string": "text", "boolean": "true or false"}.get(name, name) + _limits(field)


def _plural(text: str) -> str:
    return re.sub(r"^(list|object|number|integer|text)\b|null$", r"\g<0>s", text)


def _limits(field: dict[str, Any]) -> str:
    """Return the limits of a number; the largest ones of all numbers are stated elsewhere."""
    least, most = field.get("minimum"), field.get("maximum")
    most = None if most in {MAX_QUANTITY, MAX_COUNT} else most
    least = None if least == -MAX_QUANTITY else least
    if least is not None and most is not None:
        return f", {_number(least)} … {_number(most)}"
    signs = {"≥": least, ">": field.get("exclusiveMinimum"), "≤": most, "<": field.get("exclusiveMaximum")}
    return "".join(f", {sign} {_number(value)}" for sign, value in signs.items() if value is not None)


def _number(value: float) -> str:
    return f"{value:,.15g}"


def _default(value: object) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int | float):
        return f"`{value:.15g}`"
    return f"`{value}`" if isinstance(value, str) and value else ""


def _text(docstring: str | None) -> str:
    return " ".join((docstring or "").replace("``", "`").split())


if __name__ == "__main__":
    PAGE.write_text(generated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
