"""A licence fee for every ten replicas, a cost that the program lacks: `test_a_new_cost` adds it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.limits.limit import Replicas
from optimizer.prices.price import CountedUse, SharedPrice
from optimizer.spec.prices import ENDLESS
from optimizer.spec.system import System

REPLICAS, FEE_CENTS_PER_H = 10, 500.0
"""Number of replicas that one licence allows, and its fee."""


class LicensedReplicas(CountedUse):
    """Row that counts all replicas."""

    name: ClassVar[str] = "licensed replicas"
    unit: ClassVar[str] = "replica"

    def use(self, replicas: Replicas, item: str) -> FloatArray:  # noqa: ARG002  there is one
        """Return 1 for each replica; rentals have no cards."""
        return np.where(replicas.cards > 0, 1.0, 0.0)


@dataclass(frozen=True, eq=False)
class LicenceFee(SharedPrice):
    """The fee of all licences: one row, and one variable for the number of licences."""

    origin: ClassVar[str] = "licences"
    noun: ClassVar[str] = "licences"

    @classmethod
    def of(cls, system: System) -> Iterator["LicenceFee"]:  # noqa: ARG003  every system pays it
        """Yield the fee."""
        yield cls(
            name="licences",
            rows=((LicensedReplicas(), "all replicas"),),
            first=np.zeros(1),
            upper=np.array([ENDLESS]),
            cost=np.array([FEE_CENTS_PER_H]),
            adds=np.array([[float(REPLICAS)]]),
            meanings=("licences",),
        )

    def values(self, used: FloatArray) -> FloatArray:
        """Return the number of licences for some replicas, shape (1,)."""
        return np.ceil(used / REPLICAS)

    def most_of(self, use: FloatArray) -> FloatArray:
        """Return the fee of a licence of its own for each replica [cents/h], shape (C,)."""
        return use[:, 0] * FEE_CENTS_PER_H
