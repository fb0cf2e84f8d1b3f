"""Start tab of the web page: samples, a form for a first document, upload, and the document editor."""

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any
from weakref import WeakMethod

from nicegui import ui
from nicegui.events import UploadEventArguments

from optimizer.errors import SpecError
from optimizer.profiles.catalogue import load_catalogue
from optimizer.schema.samples import DESCRIPTIONS, PREFIX, samples
from optimizer.starters.use_cases import use_cases
from rest_server.web.widgets import complain, heading
from rest_server.web.workspace import Workspace

_CHOOSE = """
<q-btn flat no-caps label="Choose a YAML or JSON file" @click="props.pickFiles" />
<label style="display: none">YAML or JSON file <q-uploader-add-trigger /></label>
"""
_NAME_EDITOR = """
(node) => node.component.proxy.editorPromise.then((editor) => {
  editor.contentDOM.setAttribute("aria-label", "Document");
  editor.scrollDOM.setAttribute("tabindex", "0");
})
"""
"""Script that gives the editor a name for screen readers, because its library has no property for this."""
MAX_FINDINGS = 200
"""Maximum number of findings that are listed."""
Handler = Callable[[UploadEventArguments], Awaitable[None] | None]
Opens = Callable[[Callable[[], Awaitable[bool]]], Awaitable[None]]


class DocumentTab:
    """Start tab: the document of a page, and controls to open another document."""

    def __init__(self, workspace: Workspace, opens: Opens, max_bytes: int) -> None:
        """Create the tab.

        Args:
            workspace: state of the page.
            opens: function that opens a document and shows it in all tabs.
            max_bytes: maximum size of an upload [bytes].
        """
        self._workspace, self._opens = workspace, opens
        with ui.element("div").classes("doors"):
            self._show_samples()
            _StartForm(self._start)
            self._show_upload(max_bytes)
        with ui.column().classes("panel"):
            self._show_editor()

    def _show_samples(self) -> None:
        with ui.column().classes("panel"):
            heading("Open a sample")
            known = samples()
            with ui.element("div").classes("samples"):
                for name in sorted(known, key=[*DESCRIPTIONS, *known].index):
                    button = ui.button(on_click=partial(self._open_sample, name), color=None)
                    with button.props("flat dense no-caps align=left"):
                        ui.html(f"<b>{name}</b><span>{DESCRIPTIONS.get(name, '')}</span>", sanitize=False)

    def _show_upload(self, max_bytes: int) -> None:
        with ui.column().classes("panel"):
            heading("Drop a file")
            upload = ui.upload(
                label="YAML or JSON file",
                auto_upload=True,
                max_file_size=max_bytes,
                on_upload=_weakly(self._uploaded),
                on_rejected=lambda: complain(
                    f"the file is over the limit of {max_bytes:,} bytes; choose another"
                ),
            )
            upload.props('flat bordered accept=".yaml,.yml,.json"').style("width: 100%")
            upload.add_slot("header", _CHOOSE)
            ui.label("Drop a YAML or JSON file here, or paste a document into the editor below.").classes(
                "soft"
            )

    def _show_editor(self) -> None:
        with ui.row().style("align-items: center; justify-content: space-between; width: 100%"):
            heading("Document")
            ui.button("Check and plan", on_click=self._apply).props("unelevated no-caps")
        self._editor = ui.codemirror("", language="YAML", line_wrapping=False).classes("editor")
        self._editor.on("vnodeMounted", js_handler=_NAME_EDITOR)
        self._findings = ui.column().style("gap: 0; width: 100%")

    def show(self) -> None:
        """Show the document of the page and its findings."""
        opened = self._workspace.draft
        if self._editor.value != opened.text:
            self._editor.set_value(opened.text)
        self._findings.clear()
        with self._findings:
            for note in opened.notes:
                ui.label(note).classes("soft tip")
            count = f"Errors: {len(opened.errors):,}, warnings: {len(opened.warnings):,}"
            ui.label(count).props("role=status")
            words = [("error", item) for item in opened.errors]
            words += [("warning", item) for item in opened.warnings]
            for word, item in words[:MAX_FINDINGS]:
                line = item.position[0] if item.position else 1
                text = ": ".join(part for part in (f"line {line}, {word}", item.path, item.problem) if part)
                button = ui.button(text, on_click=lambda line=line: self._select(line), color=None)
                button.props("flat dense no-caps align=left").classes(f"finding {word}")

    def _select(self, line: int) -> None:
        """Scroll to a line of the document, and mark it."""
        self._editor.decorations = [{"kind": "line", "line": line, "class": "found"}]
        self._editor.reveal_line(line)

    async def _open_sample(self, name: str) -> None:
        await self._opens(lambda: self._workspace.open(f"{PREFIX}{name}"))

    async def _uploaded(self, event: UploadEventArguments) -> None:
        try:
            text = (await event.file.read()).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            complain(f"{event.file.name}: not UTF-8 text (byte {error.start})")
            return
        await self._opens(lambda: self._workspace.open_text(text))

    async def _apply(self) -> None:
        text = self._editor.value or ""
        await self._opens(lambda: self._workspace.open_text(text))

    async def _start(self, facts: Mapping[str, Any]) -> None:
        await self._opens(lambda: self._workspace.start(json.dumps(facts)))


def _weakly(handler: Callable[[UploadEventArguments], Awaitable[None]]) -> Handler:
    """Return a handler that does not keep its page alive; FastAPI keeps the upload routes of closed pages."""
    weak_parameters = WeakMethod(handler)

    def handle(event: UploadEventArguments) -> Awaitable[None] | None:
        method = weak_parameters()
        return None if method is None else method(event)

    return handle


class _StartForm:
    """Form with the questions of `inferplan init`, for a first document."""

    def __init__(self, start: Callable[[Mapping[str, Any]], Awaitable[None]]) -> None:
        self._start = start
        catalogue = load_catalogue()
        self._cards = list(catalogue.accelerators)
        self._offers: list[tuple[ui.select, ui.number, ui.input]] = []
        self._demands: list[tuple[ui.select, ui.input, ui.number, ui.number]] = []
        with ui.column().classes("panel"):
            heading("Describe your fleet")
            self._models = ui.select(list(catalogue.models), label="Models", multiple=True, with_input=True)
            self._models.style("width: 100%")
            self._offer_rows = ui.column().style("width: 100%; gap: 4px")
            ui.button("Add cards", on_click=self._add_offer, color=None).props("flat no-caps")
            self._demand_rows = ui.column().style("width: 100%; gap: 4px")
            ui.button("Add a use case", on_click=self._add_demand, color=None).props("flat no-caps")
            ui.button("Write the document", on_click=self._finish).props("unelevated no-caps")
        self._add_offer()
        self._add_demand()

    def _add_offer(self) -> None:
        with self._offer_rows, ui.row().style("flex-wrap: nowrap; width: 100%; gap: 8px"):
            card = ui.select(self._cards, label="Card", with_input=True).style("flex: 2; min-width: 0")
            count = ui.number("Cards", value=8, min=0, precision=0).style("flex: 1; min-width: 48px")
            price = (
                ui.input("Price", placeholder="$2.50/h").props("stack-label").style("flex: 2; min-width: 0")
            )
        self._offers.append((card, count, price))

    def _add_demand(self) -> None:
        cases = use_cases()
        titles = {name: case.title for name, case in cases.items()}
        with self._demand_rows, ui.column().style("width: 100%; gap: 0"):
            case = ui.select(titles, label="Use case").style("width: 100%")
            with ui.row().style("flex-wrap: nowrap; width: 100%; gap: 8px"):
                rate = ui.input("Load", placeholder="10/s").props("stack-label").style("flex: 1")
                ttft = ui.number("TTFT [ms]", min=0).style("flex: 1")
                itl = ui.number("ITL [ms]", min=0).style("flex: 1")
            source = ui.label("").classes("soft tip")
        self._demands.append((case, rate, ttft, itl))

        def chosen() -> None:
            chosen = cases[case.value]
            ttft.set_value(chosen.ttft_ms)
            itl.set_value(chosen.itl_ms)
            source.set_text(f"{chosen.why} Source: {chosen.source}")

        case.on_value_change(chosen)

    async def _finish(self) -> None:
        try:
            facts = self._facts()
        except SpecError as error:
            complain(str(error))
            return
        await self._start(facts)

    def _facts(self) -> dict[str, Any]:
        """Return the answers in the form as plain values.

        Raises:
            SpecError: an answer is missing.
        """
        offers = [
            {"accelerator": card.value, "count": int(count.value or 0), "price": (price.value or "").strip()}
            for card, count, price in self._offers
            if card.value
        ]
        demands = [
            {"case": case.value, "rate": (rate.value or "").strip(), "ttft": ttft.value, "itl": itl.value}
            for case, rate, ttft, itl in self._demands
            if case.value
        ]
        missing = [
            *([] if self._models.value else ["models"]),
            *([] if offers and all(item["price"] for item in offers) else ["cards with their prices"]),
            *([] if demands and all(item["rate"] for item in demands) else ["a use case with its load"]),
        ]
        if missing:
            raise SpecError(f"incomplete: give {', '.join(missing)}")
        return {"models": self._models.value, "offers": offers, "demands": demands}
