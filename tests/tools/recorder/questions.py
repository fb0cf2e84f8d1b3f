"""What is asked of a document: commands, and conversations with the service."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

from builders import Json

from recorder.cleaning import headers, notes, parsed
from recorder.program import Program

FLEET = "fleet.json"
"""The file of the document."""


class Question(Protocol):
    """Something that a program answers for a document."""

    def answer(self, program: Program, document: Json) -> Any:
        """Return the answer as values of JSON."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command."""

    line: str
    """Its arguments, as on the command line; ``{server}`` stands for the first server."""
    writes: str = ""
    """Names of files that it writes."""
    given: Mapping[str, str] = field(default_factory=dict)
    """Texts of files that it reads besides the document."""
    before: str = ""
    """A command that must run before, whose answer is not recorded."""
    only_levels: bool = False
    """Whether the plan is stopped by the clock, so that only its levels are recorded."""

    def answer(self, program: Program, document: Json) -> Any:
        """Return the status, what was written to stdout and stderr, and files."""
        for name, text in self.given.items():
            program.write(name, text)
        if self.before:
            program.run(*self.before.split())
        said = program.run(*(filled(part, document) for part in self.line.split()))
        out = parsed(said.out)
        if self.only_levels and not said.status:
            return {"stopped": {level["name"]: level["value"] for level in out["levels"]}}
        files = {name: parsed(program.read(name)) for name in self.writes.split()}
        answer = {"status": said.status, "out": out, "err": notes(said.err)}
        return answer | ({"files": files} if files else {})


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the service."""

    method: str
    path: str
    """With names of the document in it: ``{server}``, ``{accelerator}``, ``{model}`` and ``{class}``."""
    body: Any = None
    """Values of JSON."""
    section: str | None = None
    """The section of the document that is the body; ``*``: the whole document."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Requests to one service, one after the other."""

    requests: tuple[Request, ...] = field(repr=False)
    stateful: bool = False

    def answer(self, program: Program, document: Json) -> Any:
        """Return the status, some headers and the body of every answer."""
        answers: dict[str, Any] = {}
        with program.service(stateful=self.stateful) as client:
            for i, request in enumerate(self.requests):
                body = _body(request, document)
                given = {} if body is None else {"json": body}
                path = filled(request.path, document, quoted=True)
                found = client.request(request.method, path, **given)
                answers[f"{i:02d} {request.method} {request.path}"] = {
                    "status": found.status_code,
                    "headers": headers(found.headers),
                    "body": parsed(found.text),
                }
        return answers


def _body(request: Request, document: Json) -> Any:
    if request.section == "*":
        return document
    if request.section is not None:
        return {request.section: document.get(request.section)}
    return request.body


def filled(text: str, document: Json, *, quoted: bool = False) -> str:
    """Return a text with the names that it has places for."""
    if "{" not in text:
        return text
    servers, cards = document.get("servers") or [{}], document.get("accelerators") or [{}]
    names = {
        "server": servers[0].get("name", ""),
        "accelerator": cards[0].get("name", ""),
        "model": servers[0].get("model", ""),
        "class": servers[0].get("class", ""),
    }
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", quote(value, safe="") if quoted else value)
    return text


def answers(program: Program, document: Json, questions: Mapping[str, Question]) -> dict[str, Any]:
    """Return the answers to questions, in their order."""
    return {name: question.answer(program, document) for name, question in questions.items()}
