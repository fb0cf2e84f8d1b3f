"""Check shared cards: the fit on a card, the loads and costs of the servers, and their metrics.

All sums are recomputed from the documents, and latencies by the queue models, at the load and at the largest
rate, with the profile's times multiplied by the slowdown.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from optimizer.candidates import Candidates, find_candidates
from optimizer.candidates.arrays import own_fields, tabulate
from optimizer.candidates.card_patterns import Seat, SharedCards
from optimizer.candidates.caution import slower
from optimizer.candidates.choices import arrays_of
from optimizer.candidates.measuring import measure_pairs
from optimizer.candidates.turns import MARGIN, Turn, measure_turns, turn_of
from optimizer.errors import AnalysisError
from optimizer.plan.checks.facts import RELATIVE_TOLERANCE, Facts, close, differing
from optimizer.plan.checks.service import batch_limit
from optimizer.plan.document import Plan, SharedCardUse, SharedPool
from optimizer.plan.shared_cards import SHARED_NAME, cheapest_cards
from optimizer.quantities import precise
from optimizer.queueing.measures import MEANS
from optimizer.queueing.targets import MISS_TOLERANCE, meets_target
from optimizer.spec.schema import AllocationData, ModelProfile
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_MINUTE

MEMORY_SLICES, COMPUTE_SLICES, ALL_SHARES = 8, 7, 1.0
"""Capacity of one card in each unit."""
MAX_TURNS = 4
"""Maximum number of servers that share a card in time."""
FIGURES = ("itl_ms", "ttft_ms", "wait_ms", "utilization", "loss", "busy", "mean_batch")
SETTINGS = ("batch_window_ms", "binding")


def check_card_names(plan: Plan, system: System) -> Iterator[str]:
    """Yield names in shared cards that do not exist in the system."""
    for name, count in Counter(use.name for use in plan.shared_cards).items():
        if count > 1:
            yield f"{name}: {count} times in sharedCards"
    for use in plan.shared_cards:
        card = system.accelerators.get(use.accelerator)
        if card is None or card.slice is not None:
            yield f"{use.name}: {use.accelerator} is not a card of the system"
        for item in use.servers:
            server = system.servers.get(item.server)
            if server is None or not server.shared_card:
                yield f"{use.name}: {item.server} is not a server that can share cards"
            elif (server.model, item.accelerator) not in system.profiles:
                yield f"{use.name}: no profile of {server.model} on {item.accelerator}"
            elif plan.allocations.get(item.server) != ():
                yield f"{item.server}: on shared cards, but not without pools in allocations"


def check_shared_cards(facts: Facts, candidates: Candidates | None) -> list[str]:
    """Return the errors of shared cards.

    Args:
        facts: the plan and its system.
        candidates: candidates of the system, if available; otherwise the servers are sized again.
    """
    if not facts.plan.shared_cards:
        return []
    problems = [f"{use.name}: {line}" for use in facts.plan.shared_cards for line in _card(facts, use)]
    problems += [
        f"{name}: {line}"
        for name, items in facts.plan.on_shared_cards.items()
        for line in _load(facts, name, items)
    ]
    return problems or list(_sizes(facts, candidates or _sized(facts)))


def _sized(facts: Facts) -> Candidates:
    """Size the servers that can share cards."""
    sharing = {name: server for name, server in facts.system.servers.items() if server.shared_card}
    return find_candidates(replace(facts.system, servers=MappingProxyType(sharing)))


def _sizes(facts: Facts, candidates: Candidates) -> Iterator[str]:
    """Check largest rates, names and unshared cards against the patterns of a card."""
    plan, names, shared = facts.plan, candidates.arrays.server_names, candidates.shared
    assert shared is not None
    servers = frozenset(names.index(name) for name in plan.on_shared_cards)
    known: dict[tuple[object, ...], list[tuple[float, ...]]] = {}
    for pattern in (one.only(servers) for one in shared.patterns):
        seats = tuple((names[seat.server], copies, *_place(shared, seat)) for seat, copies in pattern.seats)
        card = candidates.arrays.accelerator_names[pattern.accelerator]
        known.setdefault((card, pattern.mode, seats), []).append(pattern.rates)
    for use in plan.shared_cards:
        base = "-".join([SHARED_NAME, *dict.fromkeys(item.server for item in use.servers)])
        if use.name != base and not (use.name.startswith(f"{base}-") and use.name[len(base) + 1 :].isdigit()):
            yield f"{use.name}: its name is {base}"
        seats = tuple(
            (item.server, item.per_card, item.accelerator, item.share, item.slowdown, item.max_batch)
            for item in use.servers
        )
        rates = [item.max_arrival_rate_rpm / SECONDS_PER_MINUTE / use.num_cards for item in use.servers]
        options = known.get((use.accelerator, use.mode, seats), [])
        if not any(all(map(close, rates, option)) for option in options):
            shown = " or ".join(_rates(option) for option in options) or "nothing"
            yield f"{use.name}: a card carries {shown} requests/s, the plan says {_rates(rates)}"
        for item in use.servers:
            own = (item.whole_cards, item.whole_cost_cents_per_h)
            if own != cheapest_cards(candidates, names.index(item.server)):
                yield f"{use.name}: wholeCards is not the cheapest choice of its own cards for {item.server}"


def _place(shared: SharedCards, seat: Seat) -> tuple[object, ...]:
    """Return the accelerator, share, slowdown and batch limit of a seat, as stated in plans."""
    name = shared.arrays.accelerator_names[seat.place]
    if seat.mode != "shares":
        return name, None, None, seat.max_batch
    return shared.card_of[name], seat.uses[1], seat.slowdown, seat.max_batch


def _rates(rates: Sequence[float]) -> str:
    return " + ".join(precise(rate) for rate in rates)


def _card(facts: Facts, use: SharedCardUse) -> list[str]:
    if use.num_cards < 1 or not use.servers or any(item.per_card < 1 for item in use.servers):
        return [f"{use.num_cards} cards with {len(use.servers)} servers"]
    problems = [*_room(facts, use), *_costs(facts, use)]
    problems += [line for item in use.servers for line in _item(facts, use, item)]
    loaded = all(item.max_arrival_rate_rpm >= item.arrival_rate_rpm > 0 for item in use.servers)
    return problems or ([*_figures(facts, use)] if loaded else ["a server carries nothing, or too much"])


def _costs(facts: Facts, use: SharedCardUse) -> Iterator[str]:
    """Check the cost of the cards, and each server's part of it."""
    cost = use.num_cards * facts.system.accelerators[use.accelerator].cost_cents_per_h
    yield from differing("cost is", cost, use.cost_cents_per_h)
    taken = [_part(facts, use, item) for item in use.servers]
    for item, part in zip(use.servers, taken, strict=True):
        mine = cost * part / math.fsum(taken) if math.fsum(taken) else 0.0
        if not close(mine, item.cost_cents_per_h):
            said = precise(item.cost_cents_per_h)
            yield f"{item.server} costs {precise(mine)} of it, the plan says {said}"


def _part(facts: Facts, use: SharedCardUse, item: SharedPool) -> float:
    """Return a server's use of a card: its shares, its memory slices, or one turn."""
    if use.mode == "shares":
        return item.per_card * (item.share or 0.0)
    if use.mode == "slices":
        part = facts.system.accelerators[item.accelerator].slice
        return float(item.per_card * part.memory) if part else 0.0
    return float(item.per_card)


def _room(facts: Facts, use: SharedCardUse) -> Iterator[str]:
    """Check that all replicas fit on one card (eq. 230)."""
    card = facts.system.accelerators[use.accelerator]
    if use.mode == "slices":
        parts = [(item.per_card, facts.system.accelerators[item.accelerator].slice) for item in use.servers]
        memory = sum(count * part.memory for count, part in parts if part)
        compute = sum(count * part.compute for count, part in parts if part)
        if memory > MEMORY_SLICES or compute > COMPUTE_SLICES:
            there = f"a card has {MEMORY_SLICES} and {COMPUTE_SLICES}"
            yield f"{memory} memory and {compute} compute slices, {there}"
        return
    memory_gb = math.fsum(item.per_card * item.memory_gb for item in use.servers)
    if memory_gb > card.memory_gb * (1 + RELATIVE_TOLERANCE):
        yield f"{precise(memory_gb)} GB of memory, a card has {precise(card.memory_gb)} GB"
    shares = math.fsum(item.per_card * (item.share or 0.0) for item in use.servers)
    if shares > ALL_SHARES + RELATIVE_TOLERANCE:
        yield f"shares add up to {precise(shares)}, a card has {precise(ALL_SHARES)}"
    count = sum(item.per_card for item in use.servers)
    if use.mode == "whole" and count > 1:
        yield f"{count} replicas on a whole card"
    if use.mode == "time" and (count > MAX_TURNS or count > len({item.server for item in use.servers})):
        yield f"{count} replicas share a card in time, at most one replica of each of {MAX_TURNS} servers can"


def _item(facts: Facts, use: SharedCardUse, item: SharedPool) -> Iterator[str]:
    """Check one server on shared cards against its documents."""
    server = facts.system.servers[item.server]
    profile = facts.system.profiles[server.model, item.accelerator]
    part = facts.system.accelerators[item.accelerator].slice
    here = use.accelerator if use.mode != "slices" else part and part.card
    if here != use.accelerator or (use.mode != "slices" and item.accelerator != use.accelerator):
        yield f"{item.server} is on {item.accelerator}, which is not a part of {use.accelerator}"
    allowed = server.accelerators
    if allowed is not None and not {item.accelerator, use.accelerator} & {*allowed}:
        yield f"{item.server}: {use.accelerator} is not in its list of accelerators"
    known = [(one.share, one.slowdown) for one in profile.shares]
    if (use.mode == "shares") != ((item.share, item.slowdown) in known):
        yield f"{item.server}: {item.share} with slowdown {item.slowdown} is not a share of its profile"
    if use.mode != "shares" and (item.share is not None or item.slowdown is not None):
        yield f"{item.server}: a share on a card that is not shared in shares"
    for word, true, said in (
        ("memory", profile.memory_gb, item.memory_gb),
        ("numReplicas", item.per_card * use.num_cards, item.num_replicas),
    ):
        yield from differing(f"{item.server}: {word} is", true, said)
    limit = batch_limit(facts, server, item.accelerator)
    chosen = facts.system.options.batch_sizing == "optimal"
    if not 1 <= item.max_batch <= limit or not (chosen or item.max_batch == limit):
        yield f"{item.server}: batch {item.max_batch}, the limit is {precise(limit)}"
    yield from _origin(facts, item)
    yield from _whole(facts, item)


def _origin(facts: Facts, item: SharedPool) -> Iterator[str]:
    """Check the information on measured times."""
    server = facts.system.servers[item.server]
    given = facts.system.profiles[server.model, item.accelerator].provenance
    if item.estimated is not None:
        yield f"{item.server}: estimated, but parts of cards have no estimates"
    named = None if given is None else given.of_pair(server.model, item.accelerator)
    if item.provenance != named:
        yield f"{item.server}: the provenance differs from that of its profile"
    load, inside = server.current.load, item.utilization * item.max_batch
    missed = () if given is None else given.domain.misses(load.in_tokens, load.out_tokens, inside)
    if item.outside != tuple(missed):
        yield f"{item.server}: {len(tuple(missed))} of its figures are outside what was measured"


def _whole(facts: Facts, item: SharedPool) -> Iterator[str]:
    """Check the cost of the unshared cards that a server would need."""
    own = item.whole_cards
    if own is None:
        return
    model = facts.system.servers[item.server].model
    profile, card = facts.system.profiles.get((model, own.accelerator)), facts.system.accelerators
    if profile is None or own.accelerator not in card:
        yield f"{item.server}: no profile on {own.accelerator}, the accelerator of its wholeCards"
        return
    cost = own.num_replicas * profile.acc_count * card[own.accelerator].cost_cents_per_h
    yield from differing(f"{item.server}: whole cards cost", cost, item.whole_cost_cents_per_h or 0.0)


def _load(facts: Facts, name: str, items: Sequence[SharedPool]) -> Iterator[str]:
    """Check that cards share the load of a server in proportion to their largest rates (eq. 234)."""
    load = facts.load_rpm[name]
    most = math.fsum(item.max_arrival_rate_rpm for item in items)
    if most < load * (1 - RELATIVE_TOLERANCE) or name in facts.listed:
        yield f"its shared cards carry {precise(most)} of {precise(load)} requests/min"
        return
    for item in items:
        share = load * item.max_arrival_rate_rpm / most
        if not close(share, item.arrival_rate_rpm):
            carried = precise(item.arrival_rate_rpm)
            yield f"a shared card carries {carried} requests/min, its share is {precise(share)}"


# --- figures -------------------------------------------------------------------------------------------


def _figures(facts: Facts, use: SharedCardUse) -> Iterator[str]:
    """Check the metrics at the load, and that all targets are met at the load and at the largest rates."""
    system = _alone(facts.system, use)
    measure = _measure_turns if use.mode == "time" else _measure
    for rates, stated in (
        ([item.arrival_rate_rpm for item in use.servers], True),
        ([item.max_arrival_rate_rpm for item in use.servers], False),
    ):
        try:
            found = measure(system, use, [rate / SECONDS_PER_MINUTE / use.num_cards for rate in rates])
        except AnalysisError as error:
            yield str(error)
            return
        for item, (figures, targets) in zip(use.servers, found, strict=True):
            for label, value, limit, margin_ms in targets:
                if not meets_target(value + margin_ms, limit, MISS_TOLERANCE * (1 if stated else 10)):
                    where = "the load" if stated else "its largest rate"
                    shown = precise(value) + (f" + {precise(margin_ms)}" if margin_ms else "")
                    yield f"{item.server}: {label} at {where} is {shown}, the limit is {precise(limit)}"
            if stated:
                yield from _compared(item, figures, targets)


_Target = tuple[str, float, float, float]
"""Name, value, limit and margin [ms] of a latency target."""
_Measured = tuple[dict[str, object], list[_Target]]


def _compared(item: SharedPool, figures: Mapping[str, object], targets: Sequence[_Target]) -> Iterator[str]:
    for name in (*FIGURES, *SETTINGS):
        said, value = getattr(item, name), figures.get(name)
        same = close(value, said) if isinstance(value, float) and isinstance(said, float) else value == said
        if not same:
            yield f"{item.server}: {name} is {value}, the plan says {said}"
    means = {measure.label for measure in MEANS}
    true = {label: (value, limit) for label, value, limit, _ in targets if label not in means}
    if {x.measure for x in item.targets} != true.keys():
        yield f"{item.server}: its targets are {', '.join(true) or 'none'}"
    for x in item.targets:
        if x.measure in true and not all(map(close, (x.value, x.limit), true[x.measure])):
            found = " of ".join(map(precise, true[x.measure]))
            yield f"{item.server}: {x.measure} is {found}, the plan says {x.value} of {x.limit}"


def _alone(system: System, use: SharedCardUse) -> System:
    """Return a system in which each server of a card has its own accelerator, slowed by its share."""
    accelerators, profiles, servers = {}, dict[tuple[str, str], ModelProfile](), {}
    for i, item in enumerate(use.servers):
        name, server = f"{i:03d}", system.servers[item.server]
        source = system.accelerators[item.accelerator]
        accelerators[name] = source.model_copy(update={"name": name, "slice": None, "tiers": ()})
        slow = slower(system.profiles[server.model, item.accelerator], item.slowdown or 1.0)
        profiles[name, name] = slow.model_copy(update={"name": name, "accelerator": name})
        current = AllocationData(load=server.current.load)
        servers[name] = server.model_copy(
            update={"name": name, "model": name, "accelerators": None, "current": current}
        )
    targets = {
        (server.service_class, name): system.targets[server.service_class, model].model_copy(
            update={"model": name}
        )
        for name, server in servers.items()
        for model in [system.servers[use.servers[int(name)].server].model]
    }
    return replace(
        system,
        accelerators=MappingProxyType(accelerators),
        profiles=MappingProxyType(profiles),
        servers=MappingProxyType(servers),
        targets=MappingProxyType(targets),
        rate_factors=MappingProxyType({}),
    )


def _measure(system: System, use: SharedCardUse, rates_rps: Sequence[float]) -> list[_Measured]:
    """Return the metrics and targets of servers on separate parts of a card."""
    arrays, every = arrays_of(system), np.arange(len(use.servers))
    batch = np.array([item.max_batch for item in use.servers])
    counts = np.array([item.per_card for item in use.servers])
    found = measure_pairs(arrays, every, every, batch, np.array(rates_rps) / counts)
    targets, rows = arrays.servers.targets, list[_Measured]()
    for i in every.tolist():
        figures: dict[str, object] = {
            name: float(getattr(found.performance, name)[i])
            for name in FIGURES
            if hasattr(found.performance, name)
        }
        figures |= {
            name: float(values[i])
            for name, values in found.own.items()
            if name in FIGURES and not np.isnan(values[i])
        }
        figures |= own_fields(arrays, system, i, i, int(batch[i]))
        mine = zip(targets.measures, found.targets[:, i].tolist(), targets.limits[:, i].tolist(), strict=True)
        rows.append((figures, [(m.label, value, limit, 0.0) for m, value, limit in mine if limit < np.inf]))
    return rows


def _measure_turns(system: System, use: SharedCardUse, rates_rps: Sequence[float]) -> list[_Measured]:
    """Return the metrics and targets of servers that share a card in time; percentiles with a margin."""
    arrays, turns = tabulate(system), list[Turn]()
    for i, (name, item) in enumerate(zip(system.servers, use.servers, strict=True)):
        turn = turn_of(system, arrays, name, i, item.max_batch)
        if turn is None:
            raise AnalysisError(f"{item.server} cannot share a card in time")
        turns.append(turn)
    rows = list[_Measured]()
    for turn, found in zip(turns, measure_turns(turns, np.array(rates_rps)), strict=True):
        targets = list[_Target]()
        for m, value in found.figures.items():
            margin_ms = 0.0 if m.percentile is None else (MARGIN - 1) * (value - turn.network_ms)
            targets.append((m.label, value, turn.limits[m] + turn.network_ms, margin_ms))
        rows.append((found.pool_figures(turn), targets))
    return rows
