"""Finds errors in documents, and warns about valid systems that are probably not meant.

Errors and warnings have file, line and column. A warning concerns a system that can be planned, but probably
not with the intended result.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from optimizer.candidates import Candidates, find_candidates
from optimizer.errors import SpecError
from optimizer.kinds.laws import laws_known
from optimizer.plan.shortages import nearest_miss
from optimizer.profiles.catalogue import load_catalogue
from optimizer.profiles.requested import check_request
from optimizer.schema import Accelerator, Server
from optimizer.schema.faults import Fault, sorted_faults
from optimizer.schema.files import text_of
from optimizer.schema.names import Entry, Finding, Index, located
from optimizer.spec.examination import Examination, examine, examine_text
from optimizer.spec.streams import members_of, owner_of, planned_name
from optimizer.spec.system import System, join_parts
from optimizer.studies.slips import Written, slips

DOCUMENT = "document"
"""Name in messages of a text without a file."""
MAX_SIZED_PAIRS = 200_000
"""Maximum number of pairs of server and accelerator that are sized to find servers that cannot be served."""
LOW_PRICE_PER_TB_PER_S = 5.0
"""Price below which an accelerator is probably not priced in cents [cents/h per TB/s of memory bandwidth].
Rental prices are 0.5 to 4 dollars per hour and TB/s (L4, A100, H100, MI300X, B200), which is 50 to 400 cents;
spot prices go down to 10 cents.
"""
IDLE_SHARE = 0.1
"""Utilisation of one replica below which a rate without a unit is probably meant per second, not per minute.
"""
LOW_PRICE = 1.0
"""Price below which a card of unknown memory bandwidth is probably not priced in cents [cents/h]."""


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


def _checked(found: Examination) -> Checked:
    if found.faults:
        return Checked(found.faults, (), None)
    system, index = join_parts(found.parts), Index.of(found.parts)
    unanswered = list(_unanswered(system, index))
    if unanswered:
        return Checked(tuple(sorted_faults(located(unanswered))), (), None)
    written = Written()
    sized = len(system.servers) * len(system.accelerators) <= MAX_SIZED_PAIRS
    problems = [
        *_missing_token_times(index),
        *_missing_capacities(system, index),
        *_odd_prices(index),
        *_unmeasured_lengths(system, index),
        *slips(system, index, written),
        *(_sized(system, index, written) if sized else ()),
    ]
    return Checked((), tuple(sorted_faults(located(problems))), system, sized)


def _unanswered(system: System, index: Index) -> Iterator[Finding]:
    """Yield a warning for each requested estimate that cannot be computed."""
    for part, at, profile in index.profiles.values():
        try:
            check_request(system, profile)
        except SpecError as error:
            yield Finding(part, (*at, "perfParms"), str(error).partition(": ")[2])


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


def _odd_prices(index: Index) -> Iterator[Finding]:
    priced = any(entry.item.cost_cents_per_h for entry in index.accelerators.values())
    for part, at, accelerator in index.accelerators.values():
        cost = accelerator.cost_cents_per_h
        if cost and cost < _least_price(accelerator):
            text = f"{cost:g} cents/h is little for {accelerator.name!r}; cost is in cents, not dollars"
            yield Finding(part, (*at, "cost"), text)
        elif priced and "cost_cents_per_h" not in accelerator.model_fields_set:
            text = f"{accelerator.name!r} has no cost and counts as free beside others that have one"
            yield Finding(part, at, text)


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


def _least_price(accelerator: Accelerator) -> float:
    """Return the price [cents/h] below which an accelerator is probably not priced in cents."""
    bandwidth = accelerator.memory_bandwidth_gb_per_s
    if not bandwidth:
        try:
            facts = load_catalogue().accelerator(accelerator.type)
        except SpecError:
            return LOW_PRICE * accelerator.multiplicity
        bandwidth = facts.bandwidth_gb_per_s * accelerator.multiplicity
    return LOW_PRICE_PER_TB_PER_S * bandwidth / 1000


def _sized(system: System, index: Index, written: Written) -> Iterator[Finding]:
    """Yield warnings about the loads of servers, for which each server is sized on every accelerator."""
    candidates = find_candidates(system)
    yield from _unservable(candidates, index)
    yield from _low_loads(candidates, index, written)


def _unservable(candidates: Candidates, index: Index) -> Iterator[Finding]:
    """Yield a warning for each server with load that no accelerator can serve, with the nearest miss."""
    served = np.unique(candidates.table.server)
    needed = (candidates.arrays.servers.load_rps > 0) | (candidates.arrays.servers.min_replicas > 0)
    for s in np.setdiff1d(np.flatnonzero(needed), served):
        planned, (part, at, _) = _planned(candidates, index, int(s))
        what = f"its version {planned.model!r}" if owner_of(planned) != planned.name else "it"
        reason, detail = nearest_miss(candidates, int(s))
        yield Finding(part, at, f"no accelerator can serve {what} ({reason}): {detail}")


def _planned(candidates: Candidates, index: Index, s: int) -> tuple[Server, Entry]:
    """Return the planned server at index `s` and its entry in the documents.

    The entry of a shared queue is that of its first member.
    """
    system = candidates.system
    planned = system.servers[candidates.arrays.server_names[s]]
    return planned, index.servers[system.streams[members_of(planned)[0].name].owner]


def _low_loads(candidates: Candidates, index: Index, written: Written) -> Iterator[Finding]:
    """Yield warnings about loads without a unit that are probably per second.

    Per minute, they would leave a replica idle.
    """
    table, servers = candidates.table, candidates.arrays.servers
    share = np.zeros(len(servers.load_rps))
    np.maximum.at(share, table.server, table.load_rps / table.max_rate_rps)
    for s in np.flatnonzero((share > 0) & (share < IDLE_SHARE)):
        planned, (part, at, server) = _planned(candidates, index, int(s))
        if owner_of(planned) != planned.name:
            share[s] *= server.current.load.arrival_rate_rpm / planned.current.load.arrival_rate_rpm
            if planned.name != planned_name(server) or share[s] >= IDLE_SHARE:
                continue
        rate, place = server.current.load.arrival_rate_rpm, (*at, "currentAlloc", "load", "arrivalRate")
        if rate and written.is_plain(part, place):
            text = (
                f"{rate:g} requests/min take at most {share[s]:.1%} of one replica; write {rate:g}/s if the "
                f"rate is per second, or {rate:g}/min"
            )
            yield Finding(part, place, text)
