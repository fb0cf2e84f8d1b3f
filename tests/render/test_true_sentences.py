"""Every sentence about plans is true: facts counted anew from documents and plans, over random systems.

Of each side of a comparison, and of each effect of an explanation, the facts are what is served of each
"""

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from builders import Json, accelerator, document, running, server, service_class
from shown_text import text_of
from slow_cases import mostly_slow

from optimizer import Comparison, Plan, compare, explain, load_system, make_report, scale_loads
from optimizer.jobs.replaying import ReplayOptions, replay_loads
from optimizer.render.comparison_sections import comparison_sections
from optimizer.render.comparison_text import changes_text, headline
from optimizer.render.explanation_sections import explanation_sections
from optimizer.render.explanation_text import effect_text, service_sentence
from optimizer.render.money import Money
from optimizer.render.replay_sections import replay_sections
from optimizer.render.report_sections import status
from optimizer.spec.system import System
from optimizer.studies.explanation.explanation_document import Effect, Explanation
from optimizer.studies.replay.replay_figure import replay_figure

NUMBER = r"-?[\d,]+(?:\.\d+)?"


# --- random systems, and the facts of a plan -------------------------------------------------------------


def random_fleet(rng: random.Random) -> Json:
    """Return a small fleet: idle and loaded servers, of which some do not fit, with and without a policy."""
    classes = [service_class(f"c{p}", p, itl=rng.choice([0.0, 14.0])) for p in (1, 2, 3)]
    names = rng.choice([["A"], ["A", "B"], ["A", "B"]])
    accelerators = [
        accelerator(name, cost=rng.choice([8.0, 10.0, 12.25]), multiplicity=rng.choice([1, 1, 2]))
        for name in names
    ]
    servers = [_random_server(rng, f"s{i}", names) for i in range(rng.randint(1, 5))]
    units = {name: rng.choice([0, 1, 2, 3, 4, 6, 20]) for name in names}
    source = document(
        servers,
        accelerators,
        units,
        classes=classes,
        saturationPolicy=rng.choice(["None", "None", "PriorityExhaustive", "RoundRobin"]),
        delayedBestEffort=rng.random() < 0.3,
        heterogeneous=rng.random() < 0.3,
    )
    if rng.random() < 0.3:
        for item in source["accelerators"]:
            item["cost"] = f"{item['cost']} USD/h"
    return source


def _random_server(rng: random.Random, name: str, names: list[str]) -> Json:
    rate = rng.choice([0.0, 0.0, 60.0, 500.0, 1000.0, 1750.0, 3e6, 1e-4])
    more: Json = {"service": f"c{rng.randint(1, 3)}"}
    if rng.random() < 0.3:
        more["accelerators"] = rng.sample(names, rng.randint(0, 1))
    current = running(rng.choice(names), rng.randint(1, 3)) if rng.random() < 0.4 else None
    return server(name, rate, replicas=rng.choice([0, 0, 0, 1, 3]), current=current, **more)


def varied(source: Json, rng: random.Random) -> Json:
    """Return a fleet with another load, other prices, other cards, another policy, or other servers."""
    made: Json = {**source, "optimizer": dict(source["optimizer"])}
    for way in rng.sample(["load", "prices", "cards", "policy", "servers"], rng.randint(1, 2)):
        if way == "load":
            made["servers"] = [
                {**item, "currentAlloc": {**item["currentAlloc"], "load": _other_load(item, rng)}}
                for item in made["servers"]
            ]
        elif way == "prices" and isinstance(made["accelerators"][0]["cost"], float):
            made["accelerators"] = [
                {**item, "cost": item["cost"] * rng.choice([0.5, 1.0001, 3])} for item in made["accelerators"]
            ]
        elif way == "cards":
            made["count"] = [{**item, "count": rng.choice([0, 1, 3, 8])} for item in made["count"]]
        elif way == "policy":
            made["optimizer"]["saturationPolicy"] = rng.choice(["None", "PriorityExhaustive"])
            made["optimizer"]["heterogeneous"] = rng.random() < 0.5
        elif way == "servers":
            made["servers"] = [*made["servers"][:-1], server("new", 60.0, service="c2")]
    return made


def _other_load(item: Json, rng: random.Random) -> Json:
    load = item["currentAlloc"]["load"]
    return {**load, "arrivalRate": load["arrivalRate"] * rng.choice([0.0, 0.5, 1.0, 1.0, 1.5, 3.0])}


@dataclass(frozen=True)
class Facts:
    """What a plan serves, counted from its pools and the document alone."""

    plan: Plan
    system: System

    def load(self, name: str) -> float:
        return self.system.servers[name].current.load.arrival_rate_rpm

    def priority(self, name: str) -> int:
        return int(self.system.servers[name].service_class.removeprefix("c"))

    def carried(self, name: str) -> float:
        return sum(pool.arrival_rate_rpm for pool in self.plan.allocations.get(name, ()))

    def replicas(self, name: str) -> int:
        return sum(pool.num_replicas for pool in self.plan.allocations.get(name, ()))

    def complete(self, name: str) -> bool:
        """Return whether all of the load is carried, by the least replicas or more."""
        enough = self.replicas(name) >= self.system.servers[name].min_num_replicas
        return enough and self.carried(name) >= self.load(name) * (1 - 1e-9)

    def share(self, name: str) -> float:
        """Return the share of the load, or of an idle server the share of its least replicas."""
        if self.load(name):
            return min(self.carried(name) / self.load(name), 1.0)
        return min(self.replicas(name) / max(self.system.servers[name].min_num_replicas, 1), 1.0) or float(
            self.system.servers[name].min_num_replicas == 0
        )

    @property
    def cost(self) -> float:
        return sum(pool.cost_cents_per_h for pools in self.plan.allocations.values() for pool in pools)

    @property
    def names(self) -> list[str]:
        return list(self.system.servers)

    def of_priority(self, priority: int) -> list[str]:
        return [name for name in self.names if self.priority(name) == priority]


def same_service(one: Facts, two: Facts) -> bool:
    return set(one.names) == set(two.names) and all(
        one.complete(name) == two.complete(name)
        and one.share(name) == pytest.approx(two.share(name), rel=1e-9)
        and one.priority(name) == two.priority(name)
        for name in one.names
    )


def number(text: str) -> float:
    return float(text.replace(",", ""))


def is_shown(text: str, value: float) -> bool:
    """Return whether a number in a sentence is a value to the digits that it shows."""
    shown = number(text)
    digits = len(text.partition(".")[2])
    return abs(shown - value) <= 0.5000001 * 10.0**-digits


def is_share(text: str, value: float | None) -> bool:
    if value is None or text == "no load":
        return value is None and text == "no load"
    if text in {"<1%", ">99%"}:
        return 0 < value < 0.01 if text == "<1%" else 0.99 < value < 1
    return is_shown(text.removesuffix("%"), 100 * value) and (text != "100%" or value > 0.99)


# --- comparisons -----------------------------------------------------------------------------------------


def comparisons(rng: random.Random) -> Iterator[tuple[Comparison, Facts, Facts]]:
    """Yield comparisons of every kind with the facts of their sides."""
    source = random_fleet(rng)
    other = varied(source, rng)
    first, second = load_system(source), load_system(other)
    found = compare(first)
    yield found, Facts(found.first.plan, first), Facts(found.second.plan, first)
    found = compare(first, second)
    yield found, Facts(found.first.plan, first), Facts(found.second.plan, second)
    scaled = scale_loads(first, rng.choice([0.0, 0.5, 1.5, 3.0]))
    found = compare(first, scaled, transition=True)
    yield found, Facts(found.first.plan, first), Facts(found.second.plan, scaled)
    found = compare(first, second_options={"heterogeneous": True, "saturation_policy": "PriorityExhaustive"})
    yield found, Facts(found.first.plan, first), Facts(found.second.plan, first)


def check_headline(text: str, found: Comparison, one: Facts, two: Facts) -> None:
    money = Money.of(found.first.plan, found.second.plan)
    scale = 100 if money.currency else 1
    costs = one.cost / scale, two.cost / scale
    if text.startswith("Nothing runs"):
        assert not any(side.replicas(name) for side in (one, two) for name in side.names)
        check_why_nothing(text, found, one, two)
    elif text.startswith("No difference"):
        assert same_service(one, two)
        assert {n: one.plan.allocations.get(n) for n in one.names} == {
            n: two.plan.allocations.get(n) for n in two.names
        }
        assert is_shown(str(re.findall(NUMBER, text)[-1]), costs[0])
    elif " Cost: " in text:
        assert not same_service(one, two)
        check_service(text.partition(" Cost: ")[0], one, two)
        check_costs(text.partition(" Cost: ")[2], found, (one, two), scale)
    else:
        assert same_service(one, two), text
        check_difference(text, costs)


def check_why_nothing(text: str, found: Comparison, one: Facts, two: Facts) -> None:
    reasons = text.partition(": ")[2].removesuffix(".").split("; ")
    if len(reasons) == 1:
        reasons = [f"{side.label} {reasons[0]}" for side in (found.first, found.second)]
    for reason, side, facts in zip(reasons, (found.first, found.second), (one, two), strict=True):
        incomplete = [name for name in facts.names if not facts.complete(name)]
        said = reason.removeprefix(f"{side.label} ")
        if said == "every server is idle and needs no replicas":
            assert not incomplete
        elif said == "no server can be served":
            assert incomplete == facts.names
        else:
            counts = [int(n) for n in re.findall(r"\d+", said)]
            assert counts == [len(incomplete), len(facts.names) - len(incomplete)], said


def check_service(text: str, one: Facts, two: Facts) -> None:
    opening, _, rest = text.removesuffix(".").partition(". ")
    assert (opening == "The two sides have different servers") == (set(one.names) != set(two.names))
    told = {}
    for part in rest.split("; ") if rest else []:
        match = re.fullmatch(r"[Pp]riority (\d+): (.*)", part)
        assert match, part
        told[int(match[1])] = match[2]
    priorities = {facts.priority(name) for facts in (one, two) for name in facts.names}
    for priority in priorities:
        sides = one.of_priority(priority), two.of_priority(priority)
        same = sides[0] == sides[1] and all(
            one.complete(name) == two.complete(name)
            and one.share(name) == pytest.approx(two.share(name), rel=1e-9)
            for name in sides[0]
        )
        assert (priority not in told) == same, text
        if not same:
            check_change(told[priority], (one, two), sides)


def check_change(text: str, facts: tuple[Facts, Facts], names: tuple[list[str], list[str]]) -> None:
    counts = [sum(map(side.complete, mine)) for side, mine in zip(facts, names, strict=True)]
    if match := re.fullmatch(r"on the (first|second) side only, (\d+) servers?", text):
        assert [len(mine) for mine in names] == (
            [int(match[2]), 0] if match[1] == "first" else [0, int(match[2])]
        )
        return
    loads = [sum(map(side.load, mine)) for side, mine in zip(facts, names, strict=True)]
    carried = [sum(map(side.carried, mine)) for side, mine in zip(facts, names, strict=True)]
    shares = [part / load if load else None for part, load in zip(carried, loads, strict=True)]
    for part in text.split(", "):
        if match := re.fullmatch(r"(\S+|no load) → (\S+|no load) of its load", part):
            assert all(map(is_share, match.groups(), shares)), (text, shares)
        elif match := re.fullmatch(r"(\d+) of (\d+) → (\d+) of (\d+) servers? in full", part):
            expected = [counts[0], len(names[0]), counts[1], len(names[1])]
            assert [int(n) for n in match.groups()] == expected
        else:
            assert text == "as much, but of other servers", text
            assert counts[0] == counts[1]
            assert shares[0] == pytest.approx(shares[1], abs=5e-5)
    if counts[0] != counts[1] or len(names[0]) != len(names[1]):
        assert re.search("servers? in full", text)


def check_costs(text: str, found: Comparison, facts: tuple[Facts, Facts], scale: float) -> None:
    labels = found.first.label, found.second.label
    total, _, each = text.removesuffix(".").partition("; per 1,000 served requests: ")
    shown = re.fullmatch(rf"{labels[0]} ({NUMBER}), {labels[1]} ({NUMBER}) (\S+)/h", total)
    assert shown, total
    assert all(is_shown(shown[i + 1], facts[i].cost / scale) for i in (0, 1))
    for part, label, side in zip(each.split(", ", 1), labels, facts, strict=True):
        served = sum(
            pool.arrival_rate_rpm * (1 - pool.loss)
            for pools in side.plan.allocations.values()
            for pool in pools
        )
        assert part.startswith(f"{label} ")
        if part.endswith("none served"):
            assert not served
        else:
            amount, unit = part.removeprefix(f"{label} ").split()
            assert number(amount) == pytest.approx(
                side.cost / scale / served / 60 * 1000, rel=6e-4, abs=1e-12
            )
            assert unit == shown[3]


def check_difference(text: str, costs: tuple[float, float]) -> None:
    if text.startswith("The two plans"):
        assert costs[0] == pytest.approx(costs[1], rel=1e-12)
        return
    words = {"cost": 1, "costs": 1, "saves": -1}
    match = re.fullmatch(
        rf"(The limits on cards|The load change|The second plan) (costs?|saves) ({NUMBER}) \S+?/h"
        rf"( more| less)?( \([+-]?{NUMBER}%\))?: .*",
        text,
    )
    assert match, text
    sign = words[match[2]] * (-1 if match[4] == " less" else 1)
    assert sign * (costs[1] - costs[0]) > 0
    assert number(match[3]) == pytest.approx(abs(costs[1] - costs[0]), abs=0.00501, rel=6e-4)
    if match[5]:
        assert number(match[5].strip(" ()%")) == pytest.approx(100 * (costs[1] / costs[0] - 1), abs=0.00501)


CHANGES: dict[str, Callable[[dict[str, tuple[int, int]], dict[str, tuple[int, int]]], object]] = {
    "to other accelerators": lambda a, b: a.keys() != b.keys() and a and b,
    "to other replicas": lambda a, b: a.keys() == b.keys() and [x[0] for x in a.values()] != [
        x[0] for x in b.values()
    ],
    "to another batch limit only": lambda a, b: a != b and {k: x[0] for k, x in a.items()} == {
        k: x[0] for k, x in b.items()
    },
    "to something from nothing": lambda a, b: b and not a,
    "to nothing": lambda a, b: a and not b,
}  # fmt: skip
"""Whether a server changes in a way, from what it runs on to what it is to run on."""


def check_changes(text: str, one: Facts, two: Facts) -> None:
    def runs(side: Facts, name: str) -> dict[str, tuple[int, int]]:
        return {
            pool.accelerator: (pool.num_replicas, pool.max_batch)
            for pool in side.plan.allocations.get(name, ())
        }

    both = sorted(set(one.names) & set(two.names))
    expected = {
        words: sum(bool(is_so(runs(one, name), runs(two, name))) for name in both)
        for words, is_so in CHANGES.items()
    }
    expected |= {"new": len(set(two.names) - set(one.names)), "gone": len(set(one.names) - set(two.names))}
    expected = {words: count for words, count in expected.items() if count}
    match = re.fullmatch(r"(\d+) of (\d+) servers? changes?(?:: (.*))?\.", text)
    assert match, text
    told = [part.split(" ", 1) for part in match[3].split(", ")] if match[3] else []
    assert {words: int(count) for count, words in told} == expected
    assert (int(match[1]), int(match[2])) == (sum(expected.values()), len(set(one.names) | set(two.names)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", mostly_slow([*range(25), *range(1000, 2000)], 1))
def test_sentences_of_comparisons_are_true(seed: int) -> None:
    for found, one, two in comparisons(random.Random(seed)):
        check_headline(headline(found), found, one, two)
        check_changes(changes_text(found), one, two)
        if "run the same replicas" in headline(found):
            assert changes_text(found).startswith("0 of ")
        text = text_of(comparison_sections(found))
        counts = [f"{sum(map(side.complete, side.names))} of {len(side.names)}" for side in (one, two)]
        assert f"Served in full: {found.first.label} {counts[0]}, {found.second.label} {counts[1]}." in text
        unequal = "not every server is served to the same fraction" in text
        assert unequal == (set(one.names) == set(two.names) and not same_service(one, two))
        from_files = compare(found.first.plan, found.second.plan)
        if not same_service(one, two):
            assert not re.search("saves|costs", headline(from_files))


# --- explanations ----------------------------------------------------------------------------------------


def effects(found: Explanation) -> Iterator[tuple[str, Effect]]:
    """Yield every effect of an explanation, with what is changed."""
    for server_found in found.servers:
        if server_found.next_best is not None:
            yield f"next-best of {server_found.server}", server_found.next_best.effect
    for kind in found.types:
        for what, one in (("+1", kind.one_more), ("-1", kind.one_fewer)):
            if one is not None:
                yield f"{what} {kind.type}", one
    for target in found.targets:
        yield f"{target.service_class}/{target.model} {target.metric}", target.effect


def check_effect(effect: Effect, facts: Facts) -> None:
    """Check an effect against the plan before it, the document, and itself."""
    gains: dict[int, list[float]] = {}
    for item in effect.service:
        name, load = item.server, facts.load(item.server)
        assert item.priority == facts.priority(name)
        assert item.in_full_before == facts.complete(name)
        assert item.served_before == pytest.approx(facts.share(name), abs=1e-9)
        assert item.load_change_rpm == pytest.approx(
            load * (item.served_after - item.served_before), rel=1e-6
        )
        assert item.served_before != item.served_after or item.in_full_before != item.in_full_after
        assert not item.in_full_after or item.served_after == 1
        turned = item.in_full_after - item.in_full_before
        sums = gains.setdefault(item.priority, [0.0, 0.0, 0.0])
        for i, gain in enumerate((turned * load, float(turned * bool(load)), item.load_change_rpm)):
            sums[i] += gain
    tolerance = 1e-9 * max((facts.load(item.server) for item in effect.service), default=0.0)
    first = next((x for _, sums in sorted(gains.items()) for x in sums if abs(x) > tolerance), 0.0)
    assert effect.serves == ("more" if first > 0 else "less" if first < 0 else "same")


def check_effect_text(effect: Effect, facts: Facts, money: Money) -> None:
    cell = effect_text(effect, money, facts.plan)
    if effect.interval is None and effect.service:
        word = cell.removeprefix("serves ")
        idle = all(not facts.load(item.server) for item in effect.service)
        assert word == (effect.serves if effect.serves != "same" else "as much" if idle else "others")
    elif effect.interval is None:
        scale = 100 if money.currency else 1
        assert number(cell.split(" ")[0]) == pytest.approx(
            effect.cost_change_cents_per_h / scale, abs=0.00501, rel=6e-4
        )
    for part, item in zip(service_sentence(effect, 99).split(", "), effect.service, strict=False):
        said = part.removeprefix(f"{item.server} ")
        if not facts.load(item.server):
            match = re.fullmatch(r"(\S+) -> (\S+) of its replicas \(idle\)", said)
            assert match, part
            assert is_share(match[1], item.served_before)
            assert is_share(match[2], item.served_after)
        elif item.load_change_rpm:
            match = re.fullmatch(rf"(\S+) -> (\S+) \(([+-]{NUMBER}) req/min\)", said)
            assert match, part
            assert number(match[3]) == pytest.approx(item.load_change_rpm, rel=6e-4)
        else:
            now = "now" if item.in_full_after else "no longer"
            assert said == f"{now} with its minimum number of replicas"


@pytest.mark.parametrize("seed", mostly_slow([*range(8), *range(1000, 1300)], 1))
def test_sentences_of_explanations_are_true(seed: int) -> None:
    system = load_system(random_fleet(random.Random(seed)))
    found = explain(system)
    facts, money = Facts(found.plan, system), Money.of(found.plan)
    for _, effect in effects(found):
        check_effect(effect, facts)
        check_effect_text(effect, facts, money)
    text = text_of(explanation_sections(found))
    complete = sum(map(facts.complete, facts.names))
    assert f"{complete} of {len(facts.names)} server" in text
    for name in facts.names:
        row = next(line for line in text.splitlines() if line.startswith(f" {name} ")).split()
        if not facts.replicas(name):
            expected = "not" if not facts.complete(name) else "idle"
            assert expected in row
    by_policy = "can serve more: capacity that the fully" in " ".join(text.split())
    assert not by_policy or system.options.saturation_policy != "None"
    for name in facts.names[:1]:
        check_one_server(" ".join(text_of(explanation_sections(explain(system, name))).split()), name, facts)


def check_one_server(text: str, name: str, facts: Facts) -> None:
    assert ("It is idle and needs no replicas." in text) == (
        facts.complete(name) and not facts.replicas(name)
    )
    match = re.search(r"(\S+%) of its (load is served|least number of replicas runs):", text)
    assert (match is not None) == (not facts.complete(name))
    if match:
        assert is_share(match[1], facts.share(name))
        assert (match[2] == "load is served") == (facts.load(name) > 0)
    if match := re.search(rf"It can still take ({NUMBER}) requests/min", text):
        most = sum(pool.max_arrival_rate_rpm for pool in facts.plan.allocations[name])
        assert number(match[1]) == pytest.approx(most - facts.load(name), rel=6e-4, abs=1e-3)


# --- reports ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", mostly_slow([*range(15), *range(1000, 1500)], 1))
def test_sentences_of_reports_are_true(seed: int) -> None:
    system = load_system(random_fleet(random.Random(seed)))
    report = make_report(system)
    facts = Facts(report.plan, system)
    text = status(report.overview)
    incomplete = sum(not facts.complete(name) for name in facts.names)
    runs = any(facts.replicas(name) for name in facts.names)
    said = re.search(r"(\d+) servers? (?:is|are) not served in full", text)
    assert (int(said[1]) if said else 0) == incomplete
    assert ("Every server is served in full." in text) == (not incomplete and runs)
    assert ("Every server is idle" in text) == (not incomplete and not runs)
    if proof := re.search(r"Proved: no plan with .* (serves|costs|gives) (over)?", text):
        assert (proof[1] == "serves") == bool(incomplete)
        decisive = [one for one in facts.plan.levels if (one.name == "value") == (proof[1] == "costs")]
        assert all(
            one.bound == pytest.approx(one.value, rel=1e-9, abs=1e-9) or proof[2] or one.name == "changes"
            for one in decisive
        )
    if match := re.search(rf"plus the penalty on moves, is ({NUMBER}) ", text):
        scale = 100 if report.plan.currency else 1
        penalty, value = system.options.transition_penalty, 0.0
        for name, server_ in system.servers.items():
            old, places = _current_cost(system, name), {p.accelerator for p in _pools(facts, name)}
            stays = server_.current.accelerator in places
            new = sum(pool.cost_cents_per_h for pool in _pools(facts, name))
            moved = sum(
                p.cost_cents_per_h
                for p in _pools(facts, name)
                if p.accelerator != server_.current.accelerator
            )
            value += new - old + penalty * (moved + (0.0 if stays else old))
        assert is_shown(match[1], value / scale)
        assert not any(0 < facts.share(name) < 1 for name in facts.names)


def _pools(facts: Facts, name: str) -> tuple[Any, ...]:
    return facts.plan.allocations.get(name, ())


def _current_cost(system: System, name: str) -> float:
    current = system.servers[name].current
    if not current.is_running:
        return 0.0
    return system.accelerators[current.accelerator].cost_cents_per_h * current.num_replicas


# --- replays ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", mostly_slow([*range(10), *range(1000, 1300)], 1))
def test_sentences_of_replays_are_true(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "loads.csv"
    rng = random.Random(seed)
    system = load_system(random_fleet(rng))
    times = sorted(rng.sample(range(0, 7200, 30), rng.randint(2, 6)))
    loads = {name: [rng.choice([0.0, 60.0, 900.0]) for _ in times] for name in system.servers}
    rows = [[f"{time}", *(f"{loads[name][i]}" for name in loads)] for i, time in enumerate(times)]
    path.write_text("\n".join(",".join(row) for row in [["time", *loads], *rows]))
    found = replay_loads(system, ReplayOptions(loads=path, startup=rng.choice([0.0, 1.0, 180.0])))
    spans_min = [(b - a) / 60 for a, b in pairwise(times)]
    offered = sum(x * span for mine in loads.values() for x, span in zip(mine[1:], spans_min, strict=True))
    text, note = text_of(replay_sections(found)), replay_figure(found).note
    hours = (times[-1] - times[0]) / 3600
    assert re.match(
        rf"({NUMBER}) hours?, {len(spans_min)} intervals?; replicas take ({NUMBER}) s to start;", text
    )
    assert number(text.split()[0]) == pytest.approx(hours, rel=6e-4)
    ways = [item.name for item in found.variants]
    for item, said in zip(found.variants, note.split("; "), strict=True):
        match = re.fullmatch(rf"{item.name}: ({NUMBER}) changes/h, ({NUMBER}) \S+, ({NUMBER})% missed", said)
        assert match, said
        spent = sum(point.cost_per_h * span / 60 for point, span in zip(item.points, spans_min, strict=True))
        assert number(match[1]) == pytest.approx(item.changes / hours, abs=0.00501)
        assert item.cost == pytest.approx(spent, rel=1e-9, abs=1e-9)
        assert item.offered == pytest.approx(offered)
        capacity = sum(point.capacity_rpm * span for point, span in zip(item.points, spans_min, strict=True))
        assert max(0.0, offered - capacity) - 1e-6 <= item.missed <= offered + 1e-6
        assert number(match[3]) == pytest.approx(100 * item.missed / offered if offered else 0, abs=0.00501)
        row = next(line for line in text.splitlines() if line.startswith(f" {item.name} ")).split()
        assert number(row[-1].removesuffix("%")) == number(match[3])
        assert item.missed == pytest.approx(sum(each.missed for each in item.servers))
    assert ways == ["every plan", "recommended rules", "one plan for the mean load"]
