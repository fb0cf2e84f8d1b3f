"""What if: sliders and fields that change the document, each by one key of `rest_server.web.changes`."""

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui

from rest_server.web.changes import OPTIONS
from rest_server.web.desk import Desk
from rest_server.web.shown import Controls
from rest_server.web.widgets import heading

_TITLES = {
    "policy": "If cards are short",
    "mixed": "Several accelerators for a server",
    "batches": "Batch limits",
    "cards": "Cards",
}
MOST_FIELDS = 100
"""Most fields of a kind that are shown; the document has the others."""
PERCENTILES = ["", "mean", "50", "90", "95", "99"]


class WhatIf:
    """The controls of a document."""

    def __init__(self, desk: Desk, changed: Callable[[], Awaitable[None]]) -> None:
        """Show the controls.

        Args:
            desk: the state of the page.
            changed: is called after a change.
        """
        self._desk, self._changed = desk, changed
        self._quiet = False
        self._fields: dict[str, Any] = {}
        self._box = ui.column().style("gap: 12px; min-width: 0; width: 100%")

    def build(self) -> None:
        """Show the controls of another document."""
        self._box.clear()
        self._fields.clear()
        controls = self._desk.opened.controls
        if controls is None:
            return
        with self._box:
            self._show_factors(controls)
            self._show_cards(controls)
            self._show_options(controls)
            self._show_targets(controls)
        self.show()

    def show(self) -> None:
        """Show the present changes in the controls, such as after an undo."""
        self._quiet = True
        for key, field in self._fields.items():
            text = self._desk.changes.given.get(key)
            value = field.original if text is None else field.read(text)
            if field.element.value != value:
                field.element.set_value(value)
        self._quiet = False

    def _show_factors(self, controls: Controls) -> None:
        with ui.column().classes("panel"):
            heading("Load")
            self._slider("load", "Load of all servers", 0, 3)
            name = ui.select(list(controls.servers), label="One server", with_input=True).style("width: 100%")
            factor = ui.number("Factor on its load", value=1, min=0, step=0.1).style("width: 100%")

            def own(_: Any) -> Awaitable[None] | None:
                if name.value and factor.value is not None:
                    return self._change(f"load:{name.value}", factor.value, 1.0)
                return None

            factor.on_value_change(own)

    def _show_cards(self, controls: Controls) -> None:
        with ui.column().classes("panel"):
            heading("Cards and prices")
            for kind, count in controls.counts[:MOST_FIELDS]:
                self._number(f"count:{kind}", f"{kind} [cards]", count, 1)
            with ui.expansion("Prices").style("width: 100%"):
                for name, _, price in controls.prices[:MOST_FIELDS]:
                    field = self._number(f"cost:{name}", f"{name} [{controls.cost_unit}]", price, 0.1)
                    field.currency = controls.currency

    def _show_options(self, controls: Controls) -> None:
        with ui.column().classes("panel"):
            heading("Rules")
            for key, (_, values) in OPTIONS.items():
                chosen = ui.select(list(values), label=_TITLES[key], value=controls.options[key])
                self._add(key, chosen.style("width: 100%"), controls.options[key], str)

    def _show_targets(self, controls: Controls) -> None:
        with ui.column().classes("panel"):
            heading("Targets")
            self._slider("targets", "All latency targets", 0.5, 2)
            texts = {text: text if text == "mean" else f"p{text}" for text in PERCENTILES if text}
            chosen = ui.select({"": "as in the document", **texts}, label="Statistic", value="")
            self._add("percentile", chosen.style("width: 100%"), "", str)
            with ui.expansion("Each target").style("width: 100%"):
                for place, latency, limit in controls.targets[:MOST_FIELDS]:
                    self._number(f"{latency}:{place}", f"{place} {latency.upper()} [ms]", limit, 10)

    def _slider(self, key: str, title: str, low: float, high: float) -> None:
        with ui.row().style("width: 100%; justify-content: space-between"):
            ui.label(title)
            shown = ui.label("× 1")
        slider = ui.slider(min=low, max=high, step=0.05, value=1.0).props(f'aria-label="{title}"')
        shown.bind_text_from(slider, "value", lambda value: f"× {value:g}")
        self._add(key, slider, 1.0, float)

    def _number(self, key: str, title: str, value: float | None, step: float) -> "_Field":
        placeholder = "unlimited" if value is None else ""
        element = ui.number(title, value=value, min=0, step=step, placeholder=placeholder).props("dense")
        return self._add(key, element.style("width: 100%"), value, _leading_number)

    def _add(self, key: str, element: Any, original: Any, read: Callable[[str], Any]) -> "_Field":
        field = _Field(element, original, read)
        self._fields[key] = field

        def changed(event: Any) -> Awaitable[None] | None:
            value = event.value
            if value is not None and field.currency is not None and value != original:
                value = f"{value:.6f}".rstrip("0").rstrip(".") + f" {field.currency}/h"
            return self._change(key, value, original)

        element.on_value_change(changed)
        return field

    def _change(self, key: str, value: Any, original: Any) -> Awaitable[None] | None:
        """Change the document; return what plans it again, for the event's handler to await."""
        if self._quiet:
            return None
        text = (
            None
            if value is None or value == original
            else f"{value:g}"
            if isinstance(value, float)
            else str(value)
        )
        before = self._desk.steps
        self._desk.change(key, text)
        return self._changed() if self._desk.steps != before else None


def _leading_number(text: str) -> float:
    return float(text.partition(" ")[0])


class _Field:
    """A control with the value of the document and the reading of a change."""

    def __init__(self, element: Any, original: Any, read: Callable[[str], Any]) -> None:
        self.element, self.original, self.read = element, original, read
        self.currency: str | None = None
