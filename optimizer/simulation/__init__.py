"""The simulator: requests run through a replica iteration by iteration, and what their times amount to.

Importing it loads no compiler; that happens when the engine first runs.
"""

from optimizer.simulation.engine import SimulatedRun, advance, simulate
from optimizer.simulation.law import Coefficients, IterationCoefficients, ProcessorSharingCoefficients
from optimizer.simulation.lengths import LengthDistributionKind, Lengths
from optimizer.simulation.limits import UNLIMITED, Limits
from optimizer.simulation.replicas import (
    DEFAULT_REQUESTS,
    DEFAULT_SEED,
    Effort,
    SimulatedReplica,
    TokenReplica,
    run_replica,
)
from optimizer.simulation.requests import Requests
from optimizer.simulation.summary import Distribution, IntervalEstimate, Summary, share_within, summarise
from optimizer.simulation.workload import ClosedLoad, Load, OpenLoad

__all__ = [
    "DEFAULT_REQUESTS",
    "DEFAULT_SEED",
    "UNLIMITED",
    "ClosedLoad",
    "Coefficients",
    "Distribution",
    "Effort",
    "IntervalEstimate",
    "IterationCoefficients",
    "LengthDistributionKind",
    "Lengths",
    "Limits",
    "Load",
    "OpenLoad",
    "ProcessorSharingCoefficients",
    "Requests",
    "SimulatedReplica",
    "SimulatedRun",
    "Summary",
    "TokenReplica",
    "advance",
    "run_replica",
    "share_within",
    "simulate",
    "summarise",
]
