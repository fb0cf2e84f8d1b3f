"""Section of a plan's request shapes: their latencies and stalls, and pools to simulate."""

from collections.abc import Iterator, Sequence

from optimizer.arrays import grouped
from optimizer.plan import Plan, Pool
from optimizer.quantities import quantity
from optimizer.schema.pools import PoolShape
from optimizer.section import Column, Paragraph, Section, name, table, words

LONG_STALL = 10.0
"""Stall by one prompt, in mean inter-token latencies, from which it sets the ITL of the other requests."""
_Row = tuple[str, Pool, PoolShape]


def shape_sections(plan: Plan) -> list[Section]:
    """Return the request shapes of all pools, and the pools whose predictions a simulation should confirm."""
    members = plan.members
    names = {name: [name] for name in plan.allocations} | grouped(
        (queue, member) for member, queue in plan.group_of.items()
    )
    parts = [
        (name, pool, members.get(name, pool))
        for server, pools in sorted(plan.allocations.items())
        for pool in pools
        for name in names[server]
    ]
    rows = [(server, pool, shape) for server, pool, part in parts for shape in part.shapes]
    doubtful = [(server, pool, part.doubts) for server, pool, part in parts if part.doubts]
    sections = [_shapes(rows)] if rows else []
    if doubtful:
        lines = [f"{server} on {pool.accelerator}: {'; '.join(doubts)}" for server, pool, doubts in doubtful]
        advice = "Confirm these predictions with: inferplan solve --simulate --repair"
        sections.append(
            Section(
                text=[
                    Paragraph(advice, "yellow"),
                    *(Paragraph(line, indent="  ", hanging="    ") for line in lines),
                ]
            )
        )
    return sections


def _shapes(rows: Sequence[_Row]) -> Section:
    columns = (
        name("server", lambda row: row[0], rank=1),
        name("shape", lambda row: row[2].name),
        Column("share", lambda row: row[2].share, form=".1%", rank=2),
        Column("hits", lambda row: row[2].hit_rate or None, form=".1%", rank=3, none=""),
        Column("mean TTFT", lambda row: row[2].ttft_ms, "ms", ",.0f", rank=4),
        Column("mean ITL", lambda row: row[2].itl_ms, "ms", ",.1f", rank=5),
        words("at its load (limit)", lambda row: "; ".join(_targets(row[2]))),
        Column("stalls others", lambda row: row[2].stall_ms, "ms", ",.0f", rank=1),
    )
    return table("Request shapes", columns, rows, notes=list(_stall_notes(rows)))


def _stall_notes(rows: Sequence[_Row]) -> Iterator[str]:
    """Yield a sentence for each pool whose inter-token latency one shape sets by its long prompts."""
    for same in grouped((id(row[1]), row) for row in rows).values():
        server, pool, longest = max(same, key=lambda row: row[2].stall_ms)
        if pool.itl_ms and longest.stall_ms > LONG_STALL * pool.itl_ms:  # prefill pools have no ITL
            yield (
                f"the ITL of {server} on {pool.accelerator} is set by {longest.name}: each of its prompts "
                f"stalls the others for {longest.stall_ms:,.0f} ms"
            )


def _targets(shape: PoolShape) -> Iterator[str]:
    suffix = f" of {shape.name}"
    for figure in shape.targets:
        measure = figure.measure.removesuffix(suffix)
        yield f"{measure} {quantity(figure.value)} ms ({quantity(figure.limit)})"
