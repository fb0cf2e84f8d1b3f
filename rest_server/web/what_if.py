"""What-if controls of the web page: sliders and fields that change the system, one key of `changes` each."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from nicegui import ui

from rest_server.web.changes import OPTIONS
from rest_server.web.shown import RESERVES, Controls, Quantity
from rest_server.web.widgets import heading
from rest_server.web.workspace import Workspace

_TITLES = {
    "policy": "If cards are short",
    "mixed": "Several accelerators for a server",
    "batches": "Batch limits",
    "cards": "Cards",
    "estimates": "Estimated token times",
}
_LABELS: Mapping[str, Mapping[str, str]] = {
    "policy": {
        "None": "leave servers unserved",
        "PriorityExhaustive": "serve a part, highest priority completely first",
        "PriorityRoundRobin": "serve a part, in turns within each priority",
        "RoundRobin": "serve a part, in turns among all servers",
    },
    "mixed": {"yes": "allowed", "no": "one accelerator for each server"},
    "batches": {"profile": "as the profiles state", "optimal": "chosen for each server"},
    "cards": {"limited": "only those that exist", "unlimited": "any number"},
    "estimates": {"slow end": "cautious", "middle": "typical", "fast end": "optimistic"},
}
"""Labels of the values of options, by key and value."""
MAX_FIELDS = 30
"""Maximum number of fields of one type; if there are more, one is selected by name."""
PERCENTILES = ("mean", "50", "90", "95", "99")


class WhatIf:
    """What-if controls for the values of a document."""

    def __init__(self, workspace: Workspace, changed: Callable[[], Awaitable[None]]) -> None:
        """Create the controls.

        Args:
            workspace: state of the page.
            changed: function that is called after a change.
        """
        self._workspace, self._changed = workspace, changed
        self._quiet = False
        self._shows: list[Callable[[], None]] = []
        self._box = ui.column().style("gap: 12px; min-width: 0; width: 100%")

    def build(self) -> None:
        """Show the controls of a newly opened document."""
        self._box.clear()
        self._shows.clear()
        controls = self._workspace.opened.controls
        if controls is None:
            return
        with self._box:
            self._show_load(controls)
            self._show_cards(controls)
            self._show_targets(controls)
            self._show_options(controls)
        self.show()

    def show(self) -> None:
        """Update the controls to the current changes, for example after an undo."""
        self._quiet = True
        for show in self._shows:
            show()
        self._quiet = False

    def _show_load(self, controls: Controls) -> None:
        with ui.column().classes("panel"):
            heading("Load")
            self._slider("load", "Load of all servers", 0, 3)
            loads = [Quantity(f"load:{name}", name, "×", 1.0, 0.1) for name in controls.servers]
            self._chosen("One server", "Factor on its load", loads)

    def _show_cards(self, controls: Controls) -> None:
        with ui.column().classes("panel"):
            heading("Cards and prices")
            self._numbers("Accelerator type", "Cards", controls.counts, "unlimited")
            with ui.expansion("Prices").style("width: 100%"):
                ui.label("Of one card; a slice of n cards costs n times as much.").classes("soft tip")
                self._numbers("Accelerator", f"Price [{controls.cost_unit}]", controls.prices)

    def _show_options(self, controls: Controls) -> None:
        with ui.column().classes("panel"):
            heading("Rules")
            for key, original in controls.options.items():
                self._choice(
                    key, _TITLES[key], {text: _LABELS[key][text] for text in OPTIONS[key][1]}, original
                )
            self._numbers("Reserve", "Value", RESERVES, "as in the document")
            with ui.expansion("Limits and other numbers").style("width: 100%"):
                self._numbers("Option", "Value", controls.numbers, "not set")

    def _show_targets(self, controls: Controls) -> None:
        with ui.column().classes("panel"):
            heading("Targets")
            self._slider("targets", "All latency targets", 0.5, 2)
            texts = {text: text if text == "mean" else f"p{text}" for text in PERCENTILES}
            self._choice("percentile", "Statistic", {"": "as in the document", **texts}, "")
            with ui.expansion("Each target").style("width: 100%"):
                self._numbers("Target", "Limit [ms]", controls.targets)

    def _numbers(self, title: str, value: str, quantities: Sequence[Quantity], missing: str = "") -> None:
        """Show a field for each quantity; if there are too many, show one for a quantity selected by name.

        Args:
            title: title of the fields.
            value: label of the value.
            missing: text that stands for a missing value.
        """
        if len(quantities) > MAX_FIELDS:
            self._chosen(title, value, quantities)
            return
        for item in quantities:
            placeholder = missing if item.original is None else ""
            field = ui.number(item.title, step=item.step, placeholder=placeholder)
            field.props("dense stack-label").style("width: 100%")
            self._add(item.key, field, item.read, item.write)

    def _chosen(self, title: str, value: str, quantities: Sequence[Quantity]) -> None:
        """Show one field for many quantities, with a list from which one is selected by name."""
        by_name = {item.name: item for item in quantities}
        chosen = ui.select(list(by_name), label=title, with_input=True).style("width: 100%")
        field = ui.number(value, step=quantities[0].step if quantities else 1)
        field.style("width: 100%").bind_enabled_from(chosen, "value", bool)

        def show() -> None:
            item = by_name.get(chosen.value)
            field.set_value(None if item is None else item.read(self._workspace.changes.given.get(item.key)))

        def chose() -> None:
            self._quiet = True
            show()
            self._quiet = False

        def changed(event: Any) -> Awaitable[None] | None:
            item = by_name.get(chosen.value)
            return None if item is None else self._change(item.key, item.write(event.value))

        chosen.on_value_change(chose)
        field.on_value_change(changed)
        self._shows.append(show)

    def _slider(self, key: str, title: str, low: float, high: float) -> None:
        """Show a factor as a number and as a native slider of the browser, for screen readers and keyboards.

        Args:
            key: key of the change.
            title: title of the slider.
            low: minimum value.
            high: maximum value.
        """
        with ui.row().style("width: 100%; justify-content: space-between"):
            ui.label(title)
            number = ui.number(value=1, step=0.05, prefix="×")
            number.props(f'dense borderless aria-label="{title}, as a number"').style("width: 5em")
        slider = ui.input(value="1").style("width: 100%")
        slider.props(f'type=range min={low} max={high} step=0.05 dense borderless aria-label="{title}"')
        number.bind_value(
            slider, "value", forward=lambda value: "1" if value is None else f"{value:g}", backward=float
        )
        self._add(key, slider, lambda text: text or "1", lambda value: None if float(value) == 1 else value)

    def _choice(self, key: str, title: str, texts: dict[str, str], original: str) -> None:
        element = ui.select(texts, label=title, value=original).style("width: 100%")
        self._add(
            key, element, lambda text: text or original, lambda value: None if value == original else value
        )

    def _add(
        self,
        key: str,
        element: Any,
        read: Callable[[str | None], Any],
        write: Callable[[Any], str | None],
    ) -> None:
        """Connect a control to the key of a change.

        Args:
            element: the control.
            read: function from the text of a change to the control's value; None stands for the document's
                value.
            write: function from the control's value to the text of a change; None if it equals the document's
                value.
        """
        element.on_value_change(lambda event: self._change(key, write(event.value)))
        self._shows.append(lambda: element.set_value(read(self._workspace.changes.given.get(key))))

    def _change(self, key: str, text: str | None) -> Awaitable[None] | None:
        """Change the document; return the awaitable that plans it again, for the event handler."""
        if self._quiet:
            return None
        before = self._workspace.steps
        self._workspace.change(key, text)
        return self._changed() if self._workspace.steps != before else None
