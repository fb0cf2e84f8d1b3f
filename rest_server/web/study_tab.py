"""Study tab of the web page: sweep, explanation, simulation and horizon of the document with its changes."""

import base64
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from nicegui import ui

from rest_server.web.desk import Desk
from rest_server.web.plan_tab import Guarded
from rest_server.web.progress import SharedProgress
from rest_server.web.shown import StudyView
from rest_server.web.widgets import complain, heading, scroll_to, show_static_tables
from rest_server.web.work import study_view

DAY = "0.4,0.3,0.3,0.4,0.6,0.9,1.1,1.2,1.2,1.1,0.8,0.5"
"""Default daily profile: factors on the load in twelve intervals of two hours."""
PROGRESS_S = 0.5
"""Interval at which the progress of a study is refreshed [s]."""


class StudyTab:
    """Study tab: controls and results of the studies of a page."""

    def __init__(self, desk: Desk, guarded: Guarded) -> None:
        """Create the tab.

        Args:
            desk: state of the page.
            guarded: function that awaits work and shows errors.
        """
        self._desk, self._guarded = desk, guarded
        self._running: tuple[str, float, SharedProgress]
        self._stops: dict[str, ui.button] = {}
        """Buttons that stop a study, by name of the study; each is enabled while its study runs."""
        with ui.element("div").classes("questions"):
            self._show_questions()
        with ui.element("div").classes("results"):
            self._elapsed = ui.label("").props("role=status").classes("soft")
            self._timer = ui.timer(PROGRESS_S, self._tell, active=False)
            self._answer = ui.element("div").classes("results")

    def _show_questions(self) -> None:
        with self._question(
            "Sweep", "Cost and service over a range of load, cards or prices: count:H100=0..64."
        ):
            vary = ui.input("Parameters", value="load=0.5..3").style("width: 100%")
            self._ask("sweep", lambda: {"vary": vary.value.split()})
        with self._question(
            "Explanation",
            "Why this plan: the value of cards and targets, and what would serve more.",
        ):
            self._ask("explain", dict)
        with self._question("Simulation", "Every request of one replica of each pool: do the targets hold?"):
            requests = ui.number("Requests to each pool", value=2000, min=100, precision=0).style(
                "width: 100%"
            )
            self._ask("simulate", lambda: {"requests": int(requests.value or 0)})
        with self._question(
            "Horizon", "A day of changing load: what to reserve, and what to rent by the hour."
        ):
            factors = ui.input("Factors on the load, hour by hour", value=DAY).style("width: 100%")
            self._ask("horizon", lambda: {"factors": [float(item) for item in factors.value.split(",")]})

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
            except ValueError:
                complain("give numbers, separated by commas")
                return
            await self._study(name, given)

        with ui.row():
            ui.button("Run", on_click=ask).props(f'unelevated no-caps aria-label="Run {name}"')
            button = ui.button("Stop", on_click=self._stop, color=None)
            self._stops[name] = button.props(f'flat no-caps aria-label="Stop {name}"')
            button.disable()

    def _stop(self) -> None:
        self._desk.stop("study")

    def _enable_stop(self, running: str | None) -> None:
        for name, button in self._stops.items():
            button.set_enabled(name == running)

    async def _study(self, name: str, options: str) -> None:
        began = time.monotonic()
        self._answer.clear()
        scroll_to(self._elapsed)
        with SharedProgress() as progress:
            self._running = name, began, progress
            self._tell()
            self._enable_stop(name)
            self._timer.activate()
            work = partial(self._desk.answer, "study", study_view, name, options, progress.name)
            outcome = await self._guarded(work)
        if self._running[2] is progress:  # no other study has started
            self._timer.deactivate()
            self._enable_stop(None)
            self._elapsed.set_text(
                "" if outcome is None else f"{name}: done in {time.monotonic() - began:.1f} s"
            )
        if outcome is not None:
            self._show(name, outcome)

    def _tell(self) -> None:
        """Show the progress of the running study."""
        name, began, progress = self._running
        done, total = progress.counts()
        parts = f"{done:,} of {total:,} pools, " if total else ""
        self._elapsed.set_text(f"{name}: {parts}{time.monotonic() - began:.0f} s")

    def _show(self, name: str, found: StudyView) -> None:
        with self._answer:
            if found.picture:
                data = base64.b64encode(found.picture).decode("ascii")
                picture = ui.element("img").classes("picture")
                picture.props(f'src="data:image/svg+xml;base64,{data}" alt="Picture of the {name}"')
            show_static_tables(found.tables, self._desk.colours)

    def open(self) -> None:
        """Clear the result, because another document was opened."""
        self._stop()
        self._answer.clear()
        self._elapsed.set_text("")
