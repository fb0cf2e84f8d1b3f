"""Study tab of the web page: sweep, explanation, simulation and horizon of the document with its changes."""

import base64
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import unquote_plus

from nicegui import ui

from optimizer.simulation.replicas import DEFAULT_REQUESTS
from rest_server.web.plan_tab import Guarded
from rest_server.web.shown import Controls, StudyView
from rest_server.web.widgets import complain, heading, scroll_to, show_static_tables
from rest_server.web.work import study_view
from rest_server.web.workspace import Workspace

HOURS = 24
PROGRESS_S = 0.5
"""Interval at which the time of a running study is refreshed [s]."""


class StudyTab:
    """Study tab: controls and results of the studies of a page."""

    def __init__(self, workspace: Workspace, guarded: Guarded) -> None:
        """Create the tab.

        Args:
            workspace: state of the page.
            guarded: function that awaits work and shows errors.
        """
        self._workspace, self._guarded = workspace, guarded
        self._running = "", 0.0
        self._stops: dict[str, ui.button] = {}
        """Buttons that stop a study, by name of the study; each is enabled while its study runs."""
        with ui.element("div").classes("questions"):
            self._show_questions()
        with ui.element("div").classes("results"):
            self._elapsed = ui.label("").props("role=status").classes("soft")
            self._timer = ui.timer(PROGRESS_S, self._tell, active=False)
            self._answer = ui.element("div").classes("results")

    def _show_questions(self) -> None:
        with self._question("Sweep", "Cost and service over a range of load, cards, prices or targets."):
            self._vary = ui.select(
                {"load": "load of all servers"}, label="Vary", value="load", with_input=True
            )
            self._vary.style("width: 100%")
            first, last = self._numbers(("From", 0.5), ("To", 3))
            self._ask("sweep", lambda: {"vary": [f"{self._vary.value}={first.value:g}..{last.value:g}"]})
        with self._question(
            "Explanation",
            "Why this plan: the value of cards and targets, and what would serve more.",
        ):
            self._ask("explain", dict)
        with self._question("Simulation", "Every request of one replica of each pool: do the targets hold?"):
            (requests,) = self._numbers(("Requests to each pool", DEFAULT_REQUESTS))
            self._ask("simulate", lambda: {"requests": int(requests.value or 0)})
        with self._question(
            "Horizon", "A day of changing load: what to reserve, and what to rent by the hour."
        ):
            low, high, peak = self._numbers(
                ("Lowest load ×", 0.3), ("Highest load ×", 1.2), ("Hour of the highest", 14)
            )
            self._ask("horizon", lambda: {"factors": _day(low.value, high.value, peak.value)})

    def _numbers(self, *fields: tuple[str, float]) -> list[ui.number]:
        """Show fields for numbers side by side, each with a label and a value."""
        with ui.row().style("flex-wrap: nowrap; width: 100%; gap: 8px"):
            return [
                ui.number(label, value=value, min=0).style("flex: 1; min-width: 0") for label, value in fields
            ]

    @contextmanager
    def _question(self, title: str, purpose: str) -> Iterator[None]:
        with ui.column().classes("panel"):
            heading(title)
            ui.label(purpose).classes("soft tip")
            yield

    def _ask(self, name: str, options: Callable[[], dict[str, Any]]) -> None:
        async def ask() -> None:
            try:
                given = json.dumps(options())
            except (ValueError, TypeError):
                complain("give a number in every field")
                return
            await self._study(name, given)

        with ui.row():
            ui.button("Run", on_click=ask).props(f'unelevated no-caps aria-label="Run {name}"')
            button = ui.button("Stop", on_click=self._stop, color=None)
            self._stops[name] = button.props(f'flat no-caps aria-label="Stop {name}"')
            button.disable()

    def _stop(self) -> None:
        self._workspace.stop("study")

    def _enable_stop(self, running: str | None) -> None:
        for name, button in self._stops.items():
            button.set_enabled(name == running)

    async def _study(self, name: str, options: str) -> None:
        began = time.monotonic()
        scroll_to(self._elapsed)
        self._running = running = name, began
        self._tell()
        self._enable_stop(name)
        self._timer.activate()
        outcome = await self._guarded(partial(self._workspace.answer, "study", study_view, name, options))
        if self._running is running:  # no other study has started
            self._timer.deactivate()
            self._enable_stop(None)
            self._elapsed.set_text("")
        if outcome is not None:
            self._show(name, _asked(name, json.loads(options)), time.monotonic() - began, outcome)

    def _tell(self) -> None:
        """Show how long the study has been running."""
        name, began = self._running
        self._elapsed.set_text(f"{name}: {time.monotonic() - began:.0f} s")

    def _show(self, name: str, asked: str, took_s: float, study: StudyView) -> None:
        """Show the result of a study below those of earlier ones, which stay in place."""
        with self._answer, ui.element("div").classes("results result") as card:
            with ui.row().classes("tools"):
                heading(f"{_TITLES[name]}{asked}")
                changes = self._workspace.changes.query("").partition("&")[2]
                ui.label(f"{took_s:.1f} s{f', with {unquote_plus(changes)}' if changes else ''}").classes(
                    "soft"
                )
                ui.space()
                remove = ui.button(icon="close", on_click=card.delete, color=None)
                remove.props('flat dense round aria-label="Remove this result"')
            if study.picture:
                data = base64.b64encode(study.picture).decode("ascii")
                picture = ui.element("img").classes("picture")
                picture.props(f'src="data:image/svg+xml;base64,{data}" alt="Picture of the {name}"')
            show_static_tables(study.tables, self._workspace.colours)
        scroll_to(card)

    def open(self) -> None:
        """Clear the results, because another document was opened."""
        self._stop()
        self._answer.clear()
        self._elapsed.set_text("")
        controls = self._workspace.opened.controls
        if controls is not None:
            self._vary.set_options(_ranges(controls), value="load")


_TITLES = {"sweep": "Sweep", "explain": "Explanation", "simulate": "Simulation", "horizon": "Horizon"}


def _asked(name: str, options: dict[str, Any]) -> str:
    """Return the question of a study as part of its title."""
    return f": {', '.join(options['vary'])}" if name == "sweep" else ""


def _ranges(controls: Controls) -> dict[str, str]:
    """Return the parameters that a sweep can vary: their titles by name."""
    return {
        "load": "load of all servers",
        "targets": "all latency targets",
        **{item.key: f"cards of {item.name}" for item in controls.counts},
        **{item.key: f"price of {item.name} [{item.unit}]" for item in controls.prices},
        **{item.key: f"target {item.title}" for item in controls.targets},
        **{f"load:{name}": f"load of {name}" for name in controls.servers},
    }


def _day(low: float, high: float, peak_hour: float) -> list[float]:
    """Return factors on the load for each hour of a day, along a cosine."""
    middle, swing = (low + high) / 2, (high - low) / 2
    turns = [2 * math.pi * (hour - peak_hour) / HOURS for hour in range(HOURS)]
    return [round(middle + swing * math.cos(turn), 3) for turn in turns]
