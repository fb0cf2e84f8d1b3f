"""Finds all errors in documents, and warns about valid systems that are probably not meant.

Warnings depend only on the system and on how its numbers were written. So `check`, plans and the service give
the same warnings: those about documents have file, line and column, and those in plans name the item.
"""

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel

from optimizer.candidates import Candidates, SizingMemo, find_candidates
from optimizer.checking.machines import whole_machines
from optimizer.checking.mistakes import likely_mistakes
from optimizer.checking.prices import odd_prices
from optimizer.checking.shapes import shape_warnings
from optimizer.checking.sizes import sized_warnings
from optimizer.errors import SpecError
from optimizer.kinds.laws import laws_known
from optimizer.plan import Plan
from optimizer.plan.document import PlanWarning, Warned
from optimizer.schema import ModelProfile
from optimizer.schema.faults import Fault, sorted_faults
from optimizer.schema.files import Part, text_of
from optimizer.schema.names import Finding, Index, located
from optimizer.schema.positions import Location
from optimizer.spec.examination import Examination, examine, examine_text
from optimizer.spec.system import System, join_parts

Answer = TypeVar("Answer")
DOCUMENT = "document"
"""Name in messages of a text without a file."""
MAX_SIZED_PAIRS = 200_000
"""Maximum number of pairs of server and accelerator that are sized only to find warnings."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Result of checking documents: errors, or else warnings."""

    faults: tuple[Fault, ...]
    """Errors, in the order of files and lines."""
    warnings: tuple[Fault, ...]
    """Warnings; empty if there are errors, because warnings are then not searched for."""
    system: System | None
    """The system of the documents; None if there are errors."""
    sized: bool = False
    """Whether every server was sized on every accelerator, for warnings that need this."""


def check_documents(path: str | os.PathLike[str]) -> Checked:
    """Find all errors in the documents at a path or, if there are none, the warnings.

    Raises:
        SpecError: the path does not exist, or is a directory without a document.
    """
    return _checked(examine(path))


def check_text(text: str) -> Checked:
    """Find all errors in the text of a document or, if there are none, the warnings.

    The text must not refer to files.
    """
    return _checked(examine_text(text_of(text, DOCUMENT)))


def _checked(examination: Examination) -> Checked:
    if examination.faults:
        return Checked(examination.faults, (), None)
    system, index = join_parts(examination.parts), Index.of(examination.parts)
    unanswered = list(_unanswered(system, index))
    if unanswered:
        return Checked(tuple(sorted_faults(located(unanswered))), (), None)
    sized = len(system.servers) * len(system.accelerators) <= MAX_SIZED_PAIRS
    problems = [*_findings(system, index, find_candidates(system) if sized else None)]
    return Checked((), tuple(sorted_faults(located(problems))), system, sized)


def warnings_of(
    candidates: Candidates, pools: Collection[tuple[str, str]] = (), memo: SizingMemo | None = None
) -> tuple[PlanWarning, ...]:
    """Return the warnings about a system, without errors and files.

    Args:
        candidates: candidates of the system.
        pools: planned server and accelerator of each pool of a plan.
        memo: cache of sizings.
    """
    part = Part(candidates.system.to_spec())
    findings = _findings(candidates.system, Index.of([part]), candidates, pools, memo)
    return tuple(
        PlanWarning(path=_named_path(part, item.at), message=item.text, code=item.code) for item in findings
    )


def with_warnings(plan: Plan, candidates: Candidates, memo: SizingMemo | None = None) -> Plan:
    """Return a plan with the warnings about its system.

    Args:
        candidates: candidates of the planned system.
        memo: cache of sizings.
    """
    pools = {(name, pool.accelerator) for name, pools in plan.allocations.items() for pool in pools}
    warnings = warnings_of(candidates, pools, memo)
    return plan.model_copy(update={"warnings": warnings}) if warnings else plan


def warned(answer: Answer, system: System, memo: SizingMemo | None = None) -> Answer:
    """Return the result of a study with the warnings about its system, if its type can state them."""
    warnings = warnings_of(find_candidates(system, memo), memo=memo) if isinstance(answer, Warned) else ()
    return answer.model_copy(update={"warnings": warnings}) if warnings else answer  # type: ignore[attr-defined]  # it is Warned


def candidates_wire(candidates: Candidates, warnings: Iterable[PlanWarning]) -> dict[str, Any]:
    """Return candidates as plain values for JSON, with the warnings about their system, if there are any."""
    wire = [warning.model_dump(mode="json") for warning in warnings]
    return candidates.to_wire() | ({"warnings": wire} if wire else {})


def _findings(
    system: System,
    index: Index,
    candidates: Candidates | None,
    pools: Collection[tuple[str, str]] = (),
    memo: SizingMemo | None = None,
) -> Iterator[Finding]:
    """Yield all warnings about a system.

    Args:
        index: the items of its documents.
        candidates: its candidates; None leaves out the warnings that need them.
        pools: planned server and accelerator of each pool of a plan.
        memo: cache of sizings.
    """
    yield from _missing_token_times(index)
    yield from _missing_capacities(system, index)
    yield from odd_prices(system, index)
    yield from whole_machines(index)
    yield from _unmeasured_lengths(system, index)
    yield from likely_mistakes(system, index)
    if candidates is not None:
        yield from sized_warnings(candidates, index, pools, memo)
        yield from shape_warnings(candidates, index, memo)


def _missing_token_times(index: Index) -> Iterator[Finding]:
    for part, at, profile in index.profiles.values():
        if not laws_known(profile) and not profile.is_estimated:
            text = "no token times are given, so the model cannot run there; give perfParms or decodeParms"
            yield Finding(part, at, text)


def _missing_capacities(system: System, index: Index) -> Iterator[Finding]:
    """Yield a warning for the first accelerator of each type without cards, if cards are limited."""
    if system.options.unlimited or not system.servers:
        return
    seen: set[str] = set()
    for part, at, accelerator in index.accelerators.values():
        type_name = accelerator.type
        if type_name not in system.capacity and type_name not in seen:
            seen.add(type_name)
            text = f"type {type_name!r} is not listed in count, so a limited plan has no card of it"
            yield Finding(part, (*at, "type"), text)


def _unmeasured_lengths(system: System, index: Index) -> Iterator[Finding]:
    """Yield servers whose requests are outside the measured range of their model's token times."""
    for stream in system.streams.values():
        server, load = stream.server, stream.server.current.load
        for profile in system.profiles_of(server.model):
            if profile.provenance is None or not load.arrival_rate_rpm:
                continue
            missed = list(profile.provenance.domain.misses(load.in_tokens, load.out_tokens, 0.0))
            if missed:
                part, at, _ = index.servers[stream.owner]
                text = f"outside the measured range of {server.model!r} on {profile.accelerator!r}: "
                yield Finding(part, at, text + ", ".join(missed))


def _unanswered(system: System, index: Index) -> Iterator[Finding]:
    """Yield a warning for each requested estimate that cannot be computed."""
    for part, at, profile in index.profiles.values():
        if not profile.is_estimated:
            continue
        from optimizer.profiles.requested import check_request  # slow import

        try:
            check_request(system, profile)
        except SpecError as error:
            yield Finding(part, (*at, "perfParms"), str(error).partition(": ")[2])


def _named_path(part: Part, at: Location) -> str:
    """Return a location in a document with names instead of indices: ``servers.chat.model``."""
    value: Any = part.spec
    steps = list[str]()
    for step in at:
        if isinstance(step, int):
            value = value[step]
            steps.append(_name_of(value, step))
        else:
            fields = type(value).model_fields if isinstance(value, BaseModel) else {}
            name = next((name for name, field in fields.items() if step in {name, field.alias}), "")
            value = getattr(value, name, None)
            steps.append(step)
    return ".".join(steps)


def _name_of(item: object, place: int) -> str:
    """Return the name of an item of a section, or its place if it has none."""
    if isinstance(item, ModelProfile):
        return f"{item.name} on {item.accelerator}"
    names = (getattr(item, key, None) for key in ("name", "model", "type"))
    return str(next((name for name in names if name), place))
