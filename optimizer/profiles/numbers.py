"""Numbers of an estimated replica that a reader can compare: latencies, throughput, memory, largest load."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from optimizer.errors import AnalysisError
from optimizer.kinds.replicas import LatencyTargets, Replica, analyze_replicas, size_replicas
from optimizer.profiles.ends import at_end
from optimizer.profiles.estimate import ProfileEstimate
from optimizer.profiles.intervals import Estimated
from optimizer.schema import EstimateEnd
from optimizer.schema.messages import validated

USERS = (1, 4, 16, 64, 256)
"""Numbers of concurrent users for which times per token are stated."""
ITL_MS, TTFT_MS = 50.0, 1000.0
"""Targets of the stated largest load [ms]."""
ALONE_RPS = 1e-6
"""Arrival rate at which requests never meet [requests/s]."""
ENDS: tuple[EstimateEnd, ...] = ("middle", "lower", "upper")
"""Points of the intervals, in the order value, fast, slow."""


@dataclass(frozen=True, slots=True)
class UserNumbers:
    """Decoding with a constant number of users."""

    users: int
    token_ms: Estimated
    """Time between the tokens of each user [ms]."""
    cards: int

    @property
    def per_user_tps(self) -> float:
        """Tokens per second of each user."""
        return 1000.0 / self.token_ms.value

    @property
    def per_card_tps(self) -> float:
        """Tokens per second of each card."""
        return self.users * self.per_user_tps / self.cards


@dataclass(frozen=True)
class EstimateNumbers:
    """Numbers of an estimated replica."""

    estimate: ProfileEstimate

    @cached_property
    def users(self) -> tuple[UserNumbers, ...]:
        """Decoding with `USERS` up to the largest batch, and with the largest batch."""
        most, cards = self.estimate.max_batch, self.estimate.deployment.tp
        counts = [*(users for users in USERS if users < most), most]
        return tuple(UserNumbers(users, self._token_ms(users), cards) for users in counts)

    def _token_ms(self, users: int) -> Estimated:
        """Return the duration of an iteration in which each user gets one token [ms] (eq. E25, E26, E27)."""
        estimate, deployment = self.estimate, self.estimate.deployment
        context = deployment.in_tokens + deployment.out_tokens / 2
        parts = [
            (1.0, estimate.alpha_at(users)),
            (float(users), estimate.beta_ms),
            (users * context, estimate.gamma_ms),
        ]
        value, low, high = (
            sum(factor * getattr(part, end) for factor, part in parts) for end in ("value", "low", "high")
        )
        return Estimated(value, low, high)

    @cached_property
    def prompt_ms(self) -> Estimated:
        """Time to first token of a prompt of mean length without other requests [ms]."""
        alone = analyze_replicas(self._replicas, [ALONE_RPS] * len(ENDS))
        return Estimated(*(performance.ttft_ms for performance in alone))

    @cached_property
    def largest_load_rps(self) -> Estimated | None:
        """Largest load within `ITL_MS` and `TTFT_MS` [requests/s]; None if an end attains none."""
        targets = LatencyTargets.model_validate({"ttft": TTFT_MS, "itl": ITL_MS})
        sizings = [
            sizing
            for sizing in size_replicas(self._replicas, [targets] * len(ENDS))
            if not isinstance(sizing, AnalysisError)
        ]
        if len(sizings) < len(ENDS):
            return None
        value, fast, slow = (sizing.max_rate_rps for sizing in sizings)
        return Estimated(value, slow, fast)

    @cached_property
    def _replicas(self) -> Sequence[Replica]:
        """Replicas at the points `ENDS` of the intervals."""
        deployment = self.estimate.deployment
        replicas = []
        for end in ENDS:
            chosen = at_end(self.estimate, end)
            fields = {
                "iteration": chosen.law,
                "max_batch": chosen.max_batch,
                "kv_capacity_tokens": chosen.kv_capacity_tokens,
                "in_tokens": deployment.in_tokens,
                "out_tokens": deployment.out_tokens,
            }
            replicas.append(validated(Replica, fields))
        return replicas
