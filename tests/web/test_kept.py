"""Results that the page keeps: one plan for each document and its changes, and a bounded number."""

import asyncio
import json

from builders import accelerator, document, server

from rest_server.app import bare_app
from rest_server.settings import Settings
from rest_server.web.changes import Changes
from rest_server.web.kept import KeptResults
from rest_server.web.workspace import Workspace

TEXT = json.dumps(document([server("s")], [accelerator("A")], {"A": 9}))


def test_a_second_page_takes_the_kept_plan() -> None:
    app = bare_app(Settings(solver_processes=0))
    app.state.kept = KeptResults()

    async def planned(load: str | None) -> tuple[object, object]:
        workspace = Workspace(app, None, None)
        await workspace.open_text(TEXT)
        workspace.change("load", load)
        return await workspace.solve(), await workspace.outlook()

    async def visits() -> list[tuple[object, object]]:
        return [await planned(load) for load in (None, "2", None)]

    first, other, again = asyncio.run(visits())
    assert again[0] is first[0] is not other[0]
    assert again[1] is first[1] is not None


def test_the_least_recently_used_result_is_dropped() -> None:
    kept = KeptResults(size=2)
    for base in (b"a", b"b"):
        kept.keep("plan", base, Changes(), base)
    assert kept.find("plan", b"a", Changes()) == b"a"
    kept.keep("plan", b"c", Changes(), b"c")
    assert kept.find("plan", b"b", Changes()) is None
    assert kept.find("plan", b"a", Changes()) == b"a"
    assert kept.find("plan", b"a", Changes(given={"load": "2"})) is None
    assert kept.find("outlook", b"a", Changes()) is None
