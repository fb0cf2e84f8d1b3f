"""Warns about likely mistakes in a valid system: wrong units, similar names, unused parts.

Each warning has its location. `optimizer.checking.sizes` finds mistakes that only sizing reveals.
"""

import re
from collections.abc import Iterator

from optimizer.documents import UnitlessNumber
from optimizer.schema import ModelTarget
from optimizer.schema.current_pools import undefined_accelerators
from optimizer.schema.files import Part
from optimizer.schema.names import Entry, Finding, Index, Names
from optimizer.schema.positions import Location
from optimizer.spec.system import System
from optimizer.text import slice_of

HALF = 0.5
"""Limit of plausible values: fractions of rejected or failed requests above it, and percentiles below it, are
suspicious.
"""
SHORTEST_MS = {"slo-ttft": 10.0, "slo-itl": 1.0, "slo-e2e": 1.0}
"""Targets shorter than these are probably not meant in milliseconds [ms]."""
_SEPARATORS = re.compile(r"[\s_-]")


def likely_mistakes(system: System, index: Index) -> Iterator[Finding]:
    """Yield warnings about likely mistakes that can be found without sizing."""
    models = Names("the target has no effect: model", {name for name, _ in system.profiles}, incomplete=False)
    shapes_of: dict[tuple[str, str], set[str]] = {}
    for server in system.documented.values():
        for model in (server.model, *(share.model for share in server.split or ())):
            mine = shapes_of.setdefault((server.service_class, model), set())
            mine.update(shape.name for shape in server.current.load.shapes)
    for entry in index.classes.values():
        for i, target in enumerate(entry.item.model_targets):
            at = (*entry.at, "modelTargets", i)
            yield from _target_mistakes(entry.part, at, target)
            yield from models.missing(entry.part, (*at, "model"), target.model)
            shapes = shapes_of.get((entry.item.name, target.model), set())
            known = Names("the target has no effect: shape", shapes, incomplete=False)
            for name in target.shapes:
                yield from known.missing(entry.part, (*at, "shapes", name), name)
    yield from _unused(system, index)
    yield from _uncounted(index)
    yield from _alike(index)
    yield from _accelerator_mistakes(index)
    yield from _multiplied_cards(index)
    yield from _server_mistakes(system, index)


def _target_mistakes(part: Part, at: Location, target: ModelTarget) -> Iterator[Finding]:
    percentiles = [(at, target.percentile)]
    percentiles += [((*at, "latency", j), limit.percentile) for j, limit in enumerate(target.latency)]
    for place, percentile in percentiles:
        if percentile is not None and percentile < 100 * HALF:
            meant = 100 * percentile if percentile < 1 else 100 - percentile
            text = (
                f"only the fastest {percentile:g} % of requests must meet the target; did you mean {meant:g}?"
            )
            yield Finding(part, (*place, "percentile"), text)
    share = target.goodput_share
    if share is not None and share < HALF:
        text = f"{1 - share:.0%} of requests may miss their targets; did you mean {1 - share:g}?"
        yield Finding(part, (*at, "goodputShare"), text)
    for key, loss in (("maxLoss", target.max_loss), ("maxRejected", target.max_rejected)):
        if loss is not None and loss >= HALF and isinstance(loss, UnitlessNumber):
            text = f"{loss:.0%} of requests may be rejected; this is a share: 0.01, or 1%"
            yield Finding(part, (*at, key), text)
    limits = {"slo-ttft": target.ttft_ms, "slo-itl": target.itl_ms, "slo-e2e": target.e2e_ms}
    for key, limit in limits.items():
        if 0 < limit < SHORTEST_MS[key] and isinstance(limit, UnitlessNumber):
            text = f"{limit:g} is in milliseconds; write {limit:g}s for seconds, or {limit:g}ms"
            yield Finding(part, (*at, key), text)


def _unused(system: System, index: Index) -> Iterator[Finding]:
    """Yield warnings about unused models and accelerators, and about classes without targets."""
    models, seen = {item.model for item in system.servers.values()}, set[str]()
    for (model, _), entry in index.profiles.items():
        if models and model not in models | seen:
            seen.add(model)
            yield Finding(entry.part, entry.at, f"no server uses the model {model!r}")
    served = [stream.server for stream in system.streams.values()]
    with_targets = {item.service_class for item in served if item.deadline is None}
    offline = {item.service_class for item in served} - with_targets
    for name, entry in index.classes.items():
        if not entry.item.model_targets and name not in offline:
            yield Finding(
                entry.part,
                entry.at,
                f"the class {name!r} is empty: it has no targets, so nothing is promised",
            )
    used = {accelerator for _, accelerator in system.profiles}
    for name, entry in index.accelerators.items():
        if system.profiles and name not in used:
            yield Finding(
                entry.part, entry.at, f"no model has a profile on {name!r}, so nothing can run there"
            )


def _uncounted(index: Index) -> Iterator[Finding]:
    types = {entry.item.type for entry in index.accelerators.values()}
    known = Names("nothing can run on these cards: accelerator type", types, incomplete=not types)
    for name, entry in index.capacity.items():
        yield from known.missing(entry.part, (*entry.at, "type"), name)


def _alike(index: Index) -> Iterator[Finding]:
    """Yield warnings about names of different items that differ only in case or separators."""
    accelerators = index.accelerators.values()
    for what, key, names in (
        ("accelerators", "name", [(entry.item.name, entry) for entry in accelerators]),
        ("accelerator types", "type", [(entry.item.type, entry) for entry in accelerators]),
        ("models", "name", [(model, entry) for (model, _), entry in index.profiles.items()]),
        ("service classes", "name", list(index.classes.items())),
        ("servers", "name", list(index.servers.items())),
    ):
        first: dict[str, str] = {}
        seen: set[str] = set()
        for name, entry in names:
            other = first.setdefault(_SEPARATORS.sub("", name.casefold()), name)
            if other != name and name not in seen:
                seen.add(name)
                text = (
                    f"{name!r} and {other!r} are two different {what}; if one is meant, write it in one way"
                )
                yield Finding(entry.part, (*entry.at, key), text)


def _accelerator_mistakes(index: Index) -> Iterator[Finding]:
    for name, entry in index.accelerators.items():
        cards, count = slice_of(name)[0], entry.item.multiplicity
        if cards not in {1, count}:
            text = f"{name!r} has {_cards(count)}, although its name says {cards}"
            at = (*entry.at, "multiplicity") if "multiplicity" in entry.item.model_fields_set else entry.at
            yield Finding(entry.part, at, text)


def _multiplied_cards(index: Index) -> Iterator[Finding]:
    """Yield a warning about profiles whose number of accelerators multiplies the cards of each one."""
    cards = [
        (model, name, entry, index.accelerators[name].item.multiplicity)
        for (model, name), entry in index.profiles.items()
        if entry.item.acc_count > 1 and name in index.accelerators
    ]
    several = [item for item in cards if item[3] > 1]
    if several:
        (_, name, entry, each), *others = several
        count = entry.item.acc_count
        text = (
            f"a replica takes {count * each} cards, accCount {count} of {name!r} with {each} cards each; if "
            f"{each} cards are meant, write accCount: 1"
        )
        same = f"; likewise {', '.join(f'{model} on {other}' for model, other, _, _ in others)}"
        yield Finding(entry.part, (*entry.at, "accCount"), text + (same if others else ""))


def _cards(count: int) -> str:
    return "one card" if count == 1 else f"{count} cards"


def _server_mistakes(system: System, index: Index) -> Iterator[Finding]:
    rated = {name for name, entry in index.servers.items() if name in system.routed or _is_rated(entry)}
    known = Names("the server cannot stay on it: accelerator", system.accelerators, incomplete=False)
    for name, entry in index.servers.items():
        server = entry.item
        yield from undefined_accelerators(entry.part, (*entry.at, "currentAlloc"), server.current, known)
        target = system.target_of(server)
        if rated and name not in rated and not (target and target.tps):
            text = "no arrivalRate is given, so the server counts as idle beside others that have one"
            yield Finding(entry.part, entry.at, text)


def _is_rated(entry: Entry) -> bool:
    """Return whether the arrival rate of a server is stated, even if it is 0."""
    given = "arrival_rate_rpm" in entry.item.current.load.model_fields_set
    return given or entry.item.deadline is not None
