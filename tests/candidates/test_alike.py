"""Replicas that are alike, and targets of one replica, share what is looked at; answers stay the same."""

from dataclasses import fields

import numpy as np
import pytest

from optimizer import System, find_candidates
from optimizer.candidates.pairs import arrays_of, replicas_of, sizable_pairs
from optimizer.candidates.table import Verdicts
from optimizer.generate import generate_system
from optimizer.queueing import sizing
from optimizer.queueing.reference import ReplicaQueues


def alone(system: System, name: str) -> System:
    others = {
        other: server.model_copy(update={"accelerators": ()}) for other, server in system.servers.items()
    }
    return system.with_planned(others | {name: system.servers[name]})


@pytest.mark.parametrize("seed", range(3))
def test_sizing_is_bit_identical_alone_and_in_batches(seed: int) -> None:
    system = generate_system(6, 5, 3, seed)
    names = list(system.servers)
    twin = system.servers[names[0]]
    system = system.with_planned(dict.fromkeys(names[1:3], twin))
    together = find_candidates(system).table
    for s, name in enumerate(names):
        mine = together.take(together.server == s)
        single = find_candidates(alone(system, name)).table
        for field in fields(mine):
            assert getattr(mine, field.name).tobytes() == getattr(single, field.name).tobytes(), field.name


def test_the_rates_looked_at_first_do_not_show_in_the_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rate has few enough digits that every search ends at the same one, on its last bit."""
    system = generate_system(60, 12, 4, 1)
    table = find_candidates(system).table
    for count in (4, 7, 30):
        monkeypatch.setattr(sizing, "_SHARES", np.linspace(0.0, 1.0, count))
        other = find_candidates(system).table
        for field in fields(table):
            assert getattr(table, field.name).tobytes() == getattr(other, field.name).tobytes(), field.name


@pytest.mark.slow
def test_replicas_that_are_alike_share_the_states_of_their_queue() -> None:
    system = generate_system(300, 6, 3, 1)
    arrays = arrays_of(system)
    pairs = sizable_pairs(arrays, Verdicts.none(arrays.profile_of.shape), choose_batch=False)
    replicas = replicas_of(arrays, pairs)
    assert isinstance(replicas, ReplicaQueues)
    assert len(replicas.queue.log_weight) < 0.5 * (pairs.max_batch + 1).sum()
