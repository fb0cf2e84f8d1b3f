"""Latency models: how long the steps of a request take when a replica runs a given batch, one file a law."""

from optimizer.timing.iteration import IterationLaw
from optimizer.timing.law import DEFAULT_MAX_NUM_TOKENS, TimingLaw, TokenTimes
from optimizer.timing.linear import LinearLaw

__all__ = ["DEFAULT_MAX_NUM_TOKENS", "IterationLaw", "LinearLaw", "TimingLaw", "TokenTimes"]
