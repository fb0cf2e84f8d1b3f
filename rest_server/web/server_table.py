"""Table of the servers of a plan on the web page: where each runs, its targets as bars, and its cost.

Each priority has a table of its own, so that large fleets are sent in pieces. Names are escaped.
"""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from nicegui import ui

from optimizer.money import cost_unit, in_cost_unit
from optimizer.quantities import counted_of, share_text
from optimizer.studies.target_rows import TargetRow, TargetShare
from rest_server.web.shown import PlanView, signed_text
from rest_server.web.widgets import heading


def _tightness(row: TargetRow) -> float:
    """Return the sort key by which unserved servers come first, and then those with the tightest targets."""
    return -row.tightness if row.in_full else -float("inf")


ROWS_WITHOUT_FILTER = 12
MAX_ROWS = 400
"""Maximum number of rows that are shown; others are found with the filter."""
HEADINGS = "server", "runs on", "targets", "capacity in use", "limited by"
"""Headings of the columns before the cost."""
AT_LIMIT = "100%"
"""Share of a target that could be read as met or as missed, so that the verdict follows it."""
MAX_CLASSES = 4
"""Maximum number of service classes that the title of a priority names."""
ORDERS: Mapping[str, tuple[str, Callable[[TargetRow], Any]]] = {
    "priority": ("by priority", lambda _row: 0),
    "name": ("by name", lambda row: row.server),
    "target": ("tightest target first", _tightness),
    "cost": ("highest cost first", lambda row: -(row.cost_cents_per_h or 0.0)),
}
"""Orders of the rows, by key: text and sort key."""
_PRESSED = """(event) => {
  const button = event.target.closest("[data-server]");
  if (button) emit(button.dataset.server);
}"""


class ServerTable:
    """Table of servers that keeps its filter and order when updated."""

    def __init__(self, open_server: Callable[[str], Any]) -> None:
        """Create the table without rows.

        Args:
            open_server: function that is called with the name of a server when it is activated.
        """
        self._open_server = open_server
        self._view: PlanView | None = None
        self._pinned: PlanView | None = None
        with ui.column().classes("panel") as self._box:
            with ui.row().classes("tools"):
                heading("Servers")
                self._note = ui.label("").classes("soft tip")
                ui.space()
                self._find = ui.input(placeholder="Filter", on_change=self._draw)
                self._find.props('dense outlined clearable debounce=200 aria-label="Filter servers"')
                texts = {key: text for key, (text, _) in ORDERS.items()}
                self._order = ui.select(texts, value="priority", on_change=self._draw)
                self._order.props('dense outlined options-dense aria-label="Order of the servers"')
            self._groups = ui.element("div").classes("groups")
            self._sources = ui.label("").classes("soft tip")
        self._pieces: list[ui.html] = []
        self._show_tools(rows=0)

    def clear(self) -> None:
        """Remove all rows."""
        self._view = self._pinned = None
        self._draw()

    def show(self, view: PlanView, pinned: PlanView | None) -> None:
        """Show the servers of a plan, compared with those of the pinned plan."""
        self._view, self._pinned = view, pinned
        self._show_tools(len(view.servers))
        self._draw()

    def _show_tools(self, rows: int) -> None:
        for tool in (self._find, self._order, self._note):
            tool.set_visibility(rows > ROWS_WITHOUT_FILTER)

    def _draw(self) -> None:
        view = self._view
        rows = () if view is None else view.servers
        wanted = (self._find.value or "").lower()
        matching = [row for row in rows if wanted in f"{row.server} {row.place}".lower()]
        shown = sorted(matching, key=ORDERS[self._order.value][1])[:MAX_ROWS]
        hidden = (
            f"; {len(matching) - len(shown):,} more, use the filter" if len(matching) > len(shown) else ""
        )
        self._note.set_text(f"{counted_of(len(matching), len(rows), 'row')}{hidden}" if rows else "")
        groups = {"": shown}
        if self._order.value == "priority":
            titles = _group_of(rows)
            groups = {
                title: [row for row in shown if titles[row.server] == title] for title in titles.values()
            }
        filled = {title: some for title, some in groups.items() if some}
        texts = [] if view is None else [
            self._table(view, some, title, is_first=i == 0) for i, (title, some) in enumerate(filled.items())
        ]  # fmt: skip
        with self._groups:
            while len(self._pieces) < len(texts):
                piece = ui.html("", sanitize=False).classes("group")
                piece.on("click", lambda event: self._open_server(str(event.args)), js_handler=_PRESSED)
                self._pieces.append(piece)
        self._sources.set_text("" if view is None else " ".join(view.notes))
        for piece in self._pieces[len(texts) :]:
            piece.delete()
        del self._pieces[len(texts) :]
        for piece, text in zip(self._pieces, texts, strict=True):
            piece.set_content(text)

    def _table(self, view: PlanView, rows: Sequence[TargetRow], title: str, *, is_first: bool) -> str:
        before = {} if self._pinned is None else {row.server: row for row in self._pinned.servers}
        heads = [*HEADINGS, f"cost [{cost_unit(view.currency)}]"]
        cells = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
        body = "".join(_row(row, before.get(row.server), heads, view) for row in rows)
        hidden = "" if is_first else ' class="unseen"'
        return (
            f'{_group_line(rows, title)}<table class="servers" aria-label="{escape(title or "Servers")}">'
            f"<thead{hidden}><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"
        )


def _group_of(rows: Sequence[TargetRow]) -> dict[str, str]:
    """Return the title of the group of each row: its shared queue, or else its priority."""
    titles, queue = {}, ""
    for row in rows:
        queue = row.server if row.is_queue else queue if row.cost_cents_per_h is None else ""
        titles[row.server] = f"Queue {queue}" if queue else f"Priority {row.priority}"
    return titles


def _group_line(rows: Sequence[TargetRow], title: str) -> str:
    servers = [row for row in rows if not row.is_queue]
    if not title:
        return ""
    full = sum(row.in_full for row in servers)
    names = dict.fromkeys(row.service_class for row in servers)
    classes = f" · {', '.join(names)}" if len(names) <= MAX_CLASSES else ""
    text = f"{title}{classes}: {counted_of(full, len(servers), 'server')} served in full"
    state = "" if full == len(servers) else " error"
    return f'<p class="priority{state}">{escape(text)}</p>'


def _row(row: TargetRow, old: TargetRow | None, heads: Sequence[str], view: PlanView) -> str:
    cost, unit = row.cost_cents_per_h, view.currency
    text = "in its queue" if cost is None else f"{in_cost_unit(cost, unit):,.2f}"
    cells = (
        f'<button type="button" data-server="{escape(row.server)}">{escape(row.server)}</button>',
        _place(row, old, view.colours),
        f'<div class="meters">{"".join(map(_meter, sorted(row.targets, key=_by_share)))}</div>',
        "–" if row.capacity_share is None else f"{row.capacity_share:.0%}",
        escape(row.limited_by or "–"),
        text + _change(row.cost_cents_per_h, old.cost_cents_per_h if old else None, unit),
    )
    shown = "".join(
        f'<td data-label="{escape(head)}">{cell}</td>' for head, cell in zip(heads, cells, strict=True)
    )
    return f'<tr class="{row.state}{" queue" if row.is_queue else ""}">{shown}</tr>'


def _by_share(target: TargetShare) -> float:
    return -target.share


def _place(row: TargetRow, old: TargetRow | None, colours: Mapping[str, str]) -> str:
    swatches = "".join(
        f'<span class="swatch" style="background: {colours[name]}"></span>'
        for name in dict.fromkeys(row.accelerators)
        if name in colours
    )
    text = f'{swatches}<span class="place">{escape(row.marked_place)}</span>'
    if not row.in_full:
        text += f'<span class="error">{escape(row.served_text)} ({share_text(row.served_share)})</span>'
    if old is not None and old.place != row.place:
        text += f' <span class="change">(was {escape(old.place)})</span>'
    return text


def _meter(target: TargetShare) -> str:
    track = f'<span class="track"><span style="width: {min(100.0, 100 * target.share):.0f}%"></span></span>'
    share = target.verdict if target.percent == AT_LIMIT or target.state == "missed" else target.percent
    text = f"<b>{share}</b> <span>{escape(target.name)} {escape(target.text)}</span>"
    return f'<div class="meter {target.state}">{track}{text}</div>'


def _change(now: float | None, before: float | None, currency: str | None) -> str:
    if now is None or before is None:
        return ""
    new, old = in_cost_unit(now, currency), in_cost_unit(before, currency)
    text = signed_text(new - old, (f"{new:.2f}",))
    return f' <span class="change">({text})</span>' if text else ""
