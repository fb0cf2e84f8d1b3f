"""The oracle's machines as the project's arrays, and the machines that properties are tested on."""

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
from hypothesis import strategies as st
from queue_oracles import Iteration, Linear, Machine

from optimizer.queueing.performance import ReplicaLimits, Variability
from optimizer.queueing.reference import ReplicaQueues
from optimizer.timing.iteration import IterationLaw
from optimizer.timing.linear import LinearLaw

LINEAR = st.builds(
    Linear,
    alpha=st.floats(0.1, 100),
    beta=st.one_of(st.just(0.0), st.floats(1e-3, 5)),
    gamma=st.floats(0, 500),
    delta=st.one_of(st.just(0.0), st.floats(1e-3, 0.1)),
    tokens_in=st.one_of(st.just(0), st.integers(1, 4000)),
    tokens_out=st.integers(2, 2000),
)
ITERATION = st.builds(
    Iteration,
    alpha=st.floats(0.5, 50),
    beta=st.floats(0, 0.1),
    gamma=st.floats(0, 1e-3),
    tokens_in=st.one_of(st.just(0), st.integers(1, 8000)),
    tokens_out=st.integers(1, 2000),
    budget=st.sampled_from([2048, 8192]),
)
GROWING_LINEAR = LINEAR.filter(lambda law: law.service(2) > law.service(1) * (1 + 1e-6))
"""Linear laws whose latencies grow with the rate."""
GROWING_ITERATION = ITERATION.filter(lambda law: law.chunks(1) == law.chunks(64) and law.tokens_out >= 8)
"""Iteration laws without a step of the chunks up to a batch of 64, and answers longer than their chunks."""


def queues_of(machines: Sequence[Machine]) -> ReplicaQueues:
    """Build the project's queues of machines that all have the same law."""
    rows = [machine.law for machine in machines]
    batch = np.array([machine.batch for machine in machines])
    room = np.array([machine.queue for machine in machines])
    names = list(type(rows[0]).__slots__)  # they stand in the order of the project's fields
    columns = [np.array([float(getattr(row, name)) for row in rows]) for name in names]
    law = IterationLaw(*columns) if isinstance(rows[0], Iteration) else LinearLaw(*columns)
    one = np.ones(len(batch))
    return ReplicaQueues.of_law(law, ReplicaLimits(batch, room, np.inf * one), Variability(one, one, one))


def analyzed(machine: Machine, rate_rps: float) -> dict[str, float]:
    """Return the performance of one replica at a rate, by field name."""
    found = queues_of([machine]).analyze(np.array([rate_rps]))
    return {field.name: float(getattr(found, field.name)[0]) for field in fields(found)}
