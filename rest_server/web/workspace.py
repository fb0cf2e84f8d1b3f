"""State of one open web page: its document, its changes, a pinned plan, and its running work.

Work runs on the study workers, so pages never delay API calls. It is cancelled by a newer request of the same
topic, and when the page closes. Nothing is written to disk.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message

from optimizer.errors import InferplanError, SpecError
from rest_server.security import KeyFiles, KeyScope
from rest_server.web.changes import UNCHANGED, ChangeError, Changes, Steps
from rest_server.web.shown import Opened, Outlook, PlanView
from rest_server.web.work import first_document, is_sample, open_text, outlook_view, plan_view, read_path

T = TypeVar("T")
FILE = "file"
"""Name in URLs for the documents at the path that was given to the program."""
UPLOAD = "own"
"""Name in URLs for a document that only its visitor has."""
SAME_STEP_S = 1.0
"""Maximum time between two changes of one key that count as one step for undo [s]."""


class Workspace:
    """State of one open web page, and its running work."""

    def __init__(self, service: FastAPI, key: bytes | None, path: str | None) -> None:
        """Set up an empty page.

        Args:
            service: the application, with settings and workers.
            key: API key of the visitor; None without one.
            path: path of documents that was given to the program; None without one.
        """
        self._service, self._key, self._path = service, key, path
        self._closed = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self.opened = Opened("")
        """The last valid document, or the first one if there is none."""
        self.draft = self.opened
        """The document in the editor, which can have errors."""
        self.source = ""
        self.steps = Steps()
        self._last_key, self._last_s = "", 0.0
        self._valid = UNCHANGED
        self.plan: PlanView | None = None
        self.pinned: PlanView | None = None

    @property
    def changes(self) -> Changes:
        """Current changes of the document."""
        return self.steps.now

    @property
    def query(self) -> str:
        """Query string of a URL that shows the same document and changes.

        It is empty for an uploaded document, and if no document is open.
        """
        return "" if self.source in {"", UPLOAD} else self.changes.query(self.source)

    @property
    def name(self) -> str:
        """Name of the document for readers."""
        if self.source == UPLOAD:
            return "unsaved document"
        return Path(self._path).name if self.source == FILE and self._path else self.source

    @property
    def colours(self) -> dict[str, str]:
        """Colours by accelerator and by accelerator type; empty without a plan."""
        return self.plan.colours if self.plan else {}

    @property
    def is_closed(self) -> bool:
        """Whether the page has been closed."""
        return self._closed.is_set()

    def close(self) -> None:
        """Cancel all work, because the page has closed."""
        self._closed.set()
        for task in self._tasks.values():
            task.cancel()

    def stop(self, topic: str) -> None:
        """Cancel the running work of one topic."""
        task = self._tasks.pop(topic, None)
        if task is not None:
            task.cancel()

    def check_scope(self, scope: KeyScope) -> None:
        """Check that the visitor's API key still has a scope.

        Raises:
            SpecError: the key does not have the scope.
        """
        keys: KeyFiles = self._service.state.keys
        if keys.required:
            granted = keys.find(self._key) if self._key else None
            if granted is None or scope not in granted.scopes:
                raise SpecError(
                    f"your API key lacks the scope {scope.value!r}, which this needs; sign in with another"
                )

    async def _run(self, topic: str, work: Callable[..., T], *arguments: Any) -> T | None:
        """Run work after cancelling earlier work of its topic; return None if it is itself cancelled.

        Raises:
            InferplanError: the work failed, or cannot run now.
        """
        self.check_scope(KeyScope.solve)
        self.stop(topic)
        request = Request({"type": "http", "headers": [], "state": {}}, self._disconnected)
        workers = self._service.state.study_workers
        task = asyncio.create_task(workers.run(request, partial(work, *arguments)))
        self._tasks[topic] = task
        try:
            result: T = await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                return None
            task.cancel()
            raise
        finally:
            if self._tasks.get(topic) is task:
                del self._tasks[topic]
        return result

    async def _disconnected(self) -> Message:
        await self._closed.wait()
        return {"type": "http.disconnect"}

    @property
    def _settings(self) -> Any:
        return self._service.state.settings

    async def open(self, source: str, changes: Changes | None = None) -> bool:
        """Open a sample, or the path that was given to the program; return whether it was opened.

        Raises:
            InferplanError: the document cannot be read, or the name is unknown.
        """
        if source == FILE and self._path is not None:
            path = self._path
        elif is_sample(source):
            path = source
        else:
            raise SpecError(f"{source[:60]}: no document has this name; open it from the page")
        text = await self._run("open", read_path, path)
        return text is not None and self._take(await self._opened(text), source, changes)

    async def open_text(self, text: str) -> bool:
        """Open a document from text of the visitor; return whether it was opened.

        Raises:
            InferplanError: the document is too large, or the service is busy.
        """
        size, limit = len(text.encode("utf-8", "replace")), self._settings.max_body_bytes
        if size > limit:
            raise SpecError(
                f"the document has {size:,} bytes, over the limit of {limit:,}; give a smaller one"
            )
        opened = await self._opened(text)
        return self._take(
            opened, UPLOAD if opened is None or opened.text != self.opened.text else self.source
        )

    async def _opened(self, text: str) -> Opened | None:
        """Return the document of a text with its findings: the kept one, or a new one, which is then kept."""
        kept, key = self._service.state.kept, text.encode("utf-8", "replace")
        opened: Opened | None = kept.find("open", key, UNCHANGED)
        if opened is None:
            opened = await self._run("open", open_text, text, self._settings)
            if opened is not None:
                kept.keep("open", key, UNCHANGED, opened)
        return opened

    async def start(self, facts: str) -> bool:
        """Create and open a first document from the facts in the form; return whether it was opened.

        Raises:
            InferplanError: a fact is missing or invalid.
        """
        return self._take(await self._run("open", first_document, facts, self._settings), UPLOAD)

    def _take(self, opened: Opened | None, source: str, changes: Changes | None = None) -> bool:
        if opened is None:
            return False
        self.draft = opened
        if self.opened.base and not opened.base:
            return True  # the last valid document and its plan stay
        self.opened, self.source, self.steps = opened, source, Steps(changes or Changes())
        self._last_key, self._valid = "", UNCHANGED
        self.plan = self.pinned = None
        return True

    def change(self, key: str, value: str | None) -> None:
        """Change a value of the document by key; None removes the change.

        Changes of one key in quick succession, for example by moving a slider, are one step for undo.
        """
        changes, now_s = self.changes.with_change(key, value), time.monotonic()
        goes_on = key == self._last_key and now_s - self._last_s < SAME_STEP_S
        self.steps = self.steps.corrected(changes) if goes_on else self.steps.then(changes)
        self._last_key, self._last_s = key, now_s

    def change_all(self, changes: Mapping[str, str]) -> None:
        """Change several values of the document by key, as one step for undo."""
        now = Changes(given=self.changes.given | dict(changes))
        self.steps, self._last_key = self.steps.then(now), ""

    def undo(self) -> None:
        """Undo the last step of changes."""
        self.steps, self._last_key = self.steps.undone(), ""

    def reset(self) -> None:
        """Remove all changes; undo can restore them."""
        self.steps, self._last_key = self.steps.then(Changes()), ""

    def pin(self) -> None:
        """Pin the current plan, so that later plans are compared with it."""
        self.pinned = self.plan

    async def solve(self) -> PlanView | None:
        """Plan the document with its changes; return None if a newer request replaced this one.

        An invalid change is replaced by the last valid value of its key, so that it does not stop studies.

        Raises:
            InferplanError: a change is invalid, the solver failed, or the service is busy.
        """
        changes = self.changes
        self.stop("outlook")
        try:
            answer = await self._plan(changes)
        except ChangeError as error:
            self.steps, self._last_key = self.steps.without_invalid(error.key, self._valid), ""
            title = self.opened.title_of(error.key)
            raise SpecError(f"{title}: {error.text}; the last valid value is kept") from None
        if answer is not None:
            self.plan, self._valid = answer, changes
            self.pinned = self.pinned or (answer if not self.changes.given else None)
        return answer

    async def pin_document(self) -> None:
        """Pin the plan of the document without its changes.

        Raises:
            InferplanError: under the same conditions as in `solve`.
        """
        self.pinned = await self._plan(UNCHANGED) or self.pinned

    async def _plan(self, changes: Changes) -> PlanView | None:
        """Return the plan of the document with changes: the kept one, or a new one, which is then kept.

        None if a newer request replaced this one.
        """
        return await self._kept("plan", plan_view, changes)

    async def outlook(self) -> Outlook | None:
        """Work out the typical cost of the plan, and what would serve everything.

        None if a newer request replaced this one.

        Raises:
            InferplanError: the solver failed, or the service is busy.
        """
        assert self.plan is not None
        return await self._kept("outlook", outlook_view, self.changes, self.plan.plan)

    async def _kept(
        self, topic: str, work: Callable[..., T], changes: Changes, *arguments: object
    ) -> T | None:
        """Return the kept result of work on the document with changes, or a new one, which is then kept."""
        base, kept = self.opened.base, self._service.state.kept
        self.check_scope(KeyScope.solve)
        view: T | None = kept.find(topic, base, changes)
        if view is not None:
            self.stop(topic)
            return view
        view = await self._run(topic, work, base, changes, *arguments, self._settings)
        if view is not None:
            kept.keep(topic, base, changes, view)
        return view

    async def answer(self, topic: str, work: Callable[..., T], *arguments: str) -> T | None:
        """Run work on the document with its changes; return None if a newer request replaced this one.

        Args:
            topic: topic whose earlier work is cancelled.
            work: function of the document, the changes, the arguments and the settings of the service.
            arguments: further arguments.

        Raises:
            InferplanError: under the same conditions as in `solve`, or an argument is invalid.
        """
        return await self._run(topic, work, self.opened.base, self.changes, *arguments, self._settings)


def message_of(error: InferplanError | HTTPException) -> str:
    """Return the message of an error as one line."""
    return " ".join(str(getattr(error, "detail", error)).split())
