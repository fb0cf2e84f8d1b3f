"""Shared cards in a replay, against a second computation with single cards."""

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from slow_cases import mostly_slow

from optimizer import Plan, System, load_system, solve
from optimizer.features.shared_cards.uses import SharedCardUse
from optimizer.spec.load_traces import LoadStep, with_step
from optimizer.spec.loads import rate_rpm, stated_loads
from optimizer.stabilisation.rules import RECOMMENDED, Rules
from optimizer.studies.replay.replay import FOLLOWED, replay
from optimizer.studies.replay.replay_document import ReplayPolicy

STEP_S = 60.0
FACTORS = (1.0, 1.0, 1.6, 1.6, 1.6, 0.5, 0.5, 1.2, 1.2)


@pytest.fixture(scope="module")
def sample(specs: Path) -> System:
    """The sample with shared cards, of which only two servers have loads."""
    system = load_system(specs / "shared-cards.yaml").with_load("sentiment", arrival_rate_rpm=0.0)
    return system.with_load("language", arrival_rate_rpm=0.0)


def trace(system: System, factors: tuple[float, ...]) -> list[LoadStep]:
    """Return the loads of a system times factors, and in the second half only those of one server grow."""
    steps = []
    for i, factor in enumerate(factors):
        changed = system
        for name in ("detect", "embed") if i < len(factors) / 2 else ("detect",):
            rate = system.servers[name].current.load.arrival_rate_rpm * factor
            changed = changed.with_load(name, arrival_rate_rpm=rate)
        steps.append(LoadStep.of(system, STEP_S * i, stated_loads(changed)))
    return steps


@dataclass
class Card:
    """One shared card."""

    content: str
    ready_s: float
    rates: dict[str, float]
    cents_per_h: float


@dataclass
class Cards:
    """Single cards, each of which is followed from its start to its end."""

    startup_s: float
    most: int
    there: list[Card] = field(default_factory=list)

    def follow(self, plan: Plan, now_s: float, *, first: bool) -> None:
        """Keep what the plan has, begin what is missing, and let old ready cards wait for the new."""
        wanted = [
            card
            for use in plan.shared_cards
            for card in made(use, now_s if first else now_s + self.startup_s)
        ]
        kept: list[Card] = []
        for content, number in Counter(card.content for card in wanted).items():
            mine = sorted((c for c in self.there if c.content == content), key=lambda card: card.ready_s)[
                :number
            ]
            now = next(card for card in wanted if card.content == content)
            kept += [Card(content, card.ready_s, now.rates, now.cents_per_h) for card in mine]
            kept += [card for card in wanted if card.content == content][: number - len(mine)]
        starting = {name for card in kept if card.ready_s > now_s for name in card.rates}
        left = Counter(card.content for card in self.there if card.ready_s <= now_s)
        left.subtract(Counter(card.content for card in kept))
        for card in sorted(self.there, key=lambda card: card.content):
            if (
                left[card.content] > 0
                and card.ready_s <= now_s
                and starting & card.rates.keys()
                and len(kept) < self.most
            ):
                kept.append(card)
                left[card.content] -= 1
        self.there = kept


def made(use: SharedCardUse, ready_s: float) -> list[Card]:
    rates = {item.server: item.max_arrival_rate_rpm / use.num_cards for item in use.servers}
    content = repr(
        (use.mode, sorted((i.server, i.accelerator, i.per_card, i.share, i.max_batch) for i in use.servers))
    )
    return [Card(content, ready_s, rates, use.cost_cents_per_h / use.num_cards) for _ in range(use.num_cards)]


def second_replay(system: System, steps: list[LoadStep], startup_s: float) -> tuple[dict[str, float], float]:
    """Return the missed requests by server, and the cost, of cards that follow every plan."""
    cards, missed, cost = Cards(startup_s, system.capacity["T4"]), dict.fromkeys(system.servers, 0.0), 0.0
    for i, (step, following) in enumerate(pairwise(steps)):
        plan = solve(with_step(system, step))
        assert not any(plan.allocations.values())
        cards.follow(plan, step.time_s, first=i == 0)
        cost += sum(card.cents_per_h for card in cards.there) * STEP_S / 3600
        for second in range(int(STEP_S)):
            at = step.time_s + second + 0.5
            for name in missed:
                takes = sum(card.rates.get(name, 0.0) for card in cards.there if card.ready_s <= at)
                load = {item.name: rate_rpm(item) for item in following.items}[name]
                missed[name] += max(0.0, load - takes) / 60
    return missed, cost


def followed(system: System, steps: list[LoadStep], startup_s: float) -> ReplayPolicy:
    return replay(system, steps, {FOLLOWED: Rules()}, startup_s).variants[0]


@pytest.mark.slow
@pytest.mark.parametrize(("startup_s", "cards"), mostly_slow([(0.0, 8), (90.0, 8), (90.0, 4)], 1))
def test_replay_matches_a_second_computation(sample: System, startup_s: float, cards: int) -> None:
    system = sample.with_capacity({"T4": cards})
    steps = trace(system, FACTORS)
    found, (missed, cost) = followed(system, steps, startup_s), second_replay(system, steps, startup_s)
    assert {row.server: row.missed for row in found.servers} == pytest.approx(missed)
    assert found.cost == pytest.approx(cost)
    assert found.missed > 0
    assert max(row.most_replicas for row in found.servers) > 4


def test_more_cards_take_requests_once_they_are_ready(sample: System) -> None:
    system = sample.with_load("embed", arrival_rate_rpm=0.0)
    steps = trace(system, (1.0,) * 2 + (2.5,) * 8)
    few, many = (solve(with_step(system, step)).shared_cards or () for step in (steps[0], steps[-1]))
    (one,), (other,) = few, many
    assert one.servers[0].per_card == other.servers[0].per_card
    assert one.num_cards < other.num_cards
    load = 2.5 * system.servers["detect"].current.load.arrival_rate_rpm
    late = load - one.servers[0].max_arrival_rate_rpm
    assert followed(system, steps, 150.0).missed == pytest.approx((1 + 2.5) * late)


@pytest.mark.slow
def test_rules_leave_shared_cards_to_the_plan(sample: System) -> None:
    steps = trace(sample, FACTORS)
    every, ruled, _ = replay(sample, steps, {FOLLOWED: Rules(), "ruled": RECOMMENDED}, 0.0).variants
    assert [point.desired for point in every.points] == [point.planned for point in every.points]
    assert [point.desired for point in ruled.points] == [point.planned for point in ruled.points]
    assert every.changes > 0
