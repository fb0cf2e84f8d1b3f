"""One level as a choice of options: its objective, what is settled before it, and the rows they share.

Takes `Options`, gives weights of options and models over some of them. Equation numbers refer to
``docs/math.md``.
"""

from dataclasses import dataclass, replace

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.solvers.model import MilpModel
from optimizer.solvers.patterns.options import Options
from optimizer.solvers.patterns.parts import Parts

ROUNDING = 1e-9
"""Part of a unit that is rounding."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What an option adds to a level: for a server without an allocation, and parts of sums."""

    name: str
    on_nothing: FloatArray
    """Shape (S,)."""
    on_value: float = 0.0
    on_changes: float = 0.0
    on_units: FloatArray | None = None
    """By capacity row, in multiples of its divisor; none: units do not matter."""

    def of(self, options: Options) -> FloatArray:
        """Return what each option adds, shape (P,)."""
        nothing = np.where(options.served, 0.0, self.on_nothing[options.server])
        sums = nothing + self.on_value * options.value + self.on_changes * options.changed
        return sums if self.on_units is None else sums + options.units @ self.on_units


@dataclass(frozen=True, slots=True)
class Pin:
    """A level that is settled: no answer may be worse there."""

    measure: Measure
    most: float


@dataclass(frozen=True, slots=True)
class Rule:
    """What a server takes of something has limits."""

    server: int
    least: float = 0.0
    most: float = np.inf
    row: int | None = None
    """Capacity row of which it takes units, in multiples of its divisor."""
    part: int | None = None
    """Part of which it takes replicas."""

    def keeps(self, options: Options) -> BoolArray:
        """Return which options the rule leaves, shape (P,); those of other servers all."""
        kept: BoolArray = options.server != self.server
        mine = np.flatnonzero(~kept)
        if self.row is not None:
            taken = options.units[mine, self.row]
        else:
            taken = (options.count[mine] * (options.part[mine] == self.part)).sum(axis=1)
        kept[mine] = (taken >= self.least) & (taken <= self.most)
        return kept


def rounded_down(units: FloatArray) -> FloatArray:
    """Return the whole units that there are, of any shape."""
    whole: FloatArray = np.floor(units + ROUNDING)
    return whole


@dataclass(frozen=True, slots=True)
class Cut:
    """What whole patterns cannot take more of: units of some types, divided and rounded down (eq. 132)."""

    rows: tuple[int, ...]
    """Capacity rows."""
    divisor: int

    def of(self, units: FloatArray) -> FloatArray:
        """Return what options take of it by their units, shape (P, K), which are whole; shape (P,)."""
        return rounded_down(units[:, list(self.rows)].sum(axis=1) / self.divisor)

    def most(self, limit: FloatArray) -> float:
        """Return how much of it there is, from the units of each row, shape (K,)."""
        return float(rounded_down(rounded_down(limit)[list(self.rows)].sum() / self.divisor))


@dataclass(frozen=True, slots=True)
class Program:
    """One level to be minimised."""

    parts: Parts
    measure: Measure
    pins: tuple[Pin, ...]
    in_play: BoolArray
    """Servers that may take anything; the others have nothing; shape (S,)."""
    to_be_served: BoolArray
    """Servers that may not have nothing, shape (S,)."""
    left_out: BoolArray
    """Servers that may have nothing else, shape (S,)."""
    rules: tuple[Rule, ...] = ()
    """For a pool that knows every pattern: a search for others does not look at them."""
    cuts: tuple[Cut, ...] = ()
    """For such a pool, too."""

    def branch(self, server: int, *, served: bool) -> "Program":
        """Return the level with a server that is served, or one that is left out."""
        mine = np.arange(len(self.in_play)) == server
        if served:
            return replace(self, to_be_served=self.to_be_served | mine)
        return replace(self, left_out=self.left_out | mine)

    def ruled(self, rule: Rule) -> "Program":
        """Return the level with one more rule."""
        return replace(self, rules=(*self.rules, rule))

    @property
    def servers(self) -> IntArray:
        """The servers that choose, in their order."""
        mine = self.parts.servers
        return mine[self.in_play[mine]]

    def allowed(self, options: Options) -> BoolArray:
        """Return which options the level leaves, shape (P,)."""
        closed = np.where(options.served, self.left_out[options.server], self.to_be_served[options.server])
        left: BoolArray = self.in_play[options.server] & ~closed
        for rule in self.rules:
            left &= rule.keeps(options)
        return left

    @property
    def limits(self) -> FloatArray:
        """Upper limits of the rows that servers share: units, then pins, then cuts."""
        pinned = [pin.most for pin in self.pins]
        return np.concatenate([self.parts.limit, pinned, [cut.most(self.parts.limit) for cut in self.cuts]])

    def shared(self, options: Options) -> FloatArray:
        """Return what each option takes of every shared row, shape (P, rows)."""
        pinned = [pin.measure.of(options)[:, None] for pin in self.pins]
        return np.hstack([options.units, *pinned, *(cut.of(options.units)[:, None] for cut in self.cuts)])

    def columns(self, options: Options) -> tuple[IntArray, IntArray, FloatArray]:
        """Return some options as columns: where each starts, its rows and its values."""
        shared = self.shared(options)
        place = np.searchsorted(self.servers, options.server)
        entries = np.hstack([np.ones((len(options), 1)), shared])
        rows = np.hstack(
            [place[:, None], np.broadcast_to(len(self.servers) + np.arange(shared.shape[1]), shared.shape)]
        )
        used = entries != 0
        start = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
        return start, rows[used], entries[used]

    def model(self, options: Options) -> MilpModel:
        """Return the choice of one option for every server, of those given, as a model (eq. 37)."""
        start, row, value = self.columns(options)
        column = np.repeat(np.arange(len(options)), np.diff(start))
        order = np.argsort(row, kind="stable")
        servers, limits = len(self.servers), self.limits
        count = np.bincount(row, minlength=servers + len(limits))
        return MilpModel(
            lower=np.zeros(len(options)),
            upper=np.ones(len(options)),
            integer=np.ones(len(options), np.bool_),
            row_start=np.concatenate([[0], np.cumsum(count)]),
            row_index=column[order],
            row_value=value[order],
            row_lower=np.concatenate([np.ones(servers), np.full(len(limits), -np.inf)]),
            row_upper=np.concatenate([np.ones(servers), limits]),
        )
