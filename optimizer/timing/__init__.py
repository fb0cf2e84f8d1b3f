"""Latency models: times of a request's steps at a given batch. Each model has its own file."""

from optimizer.timing.batch import BatchLaw, BatchParms
from optimizer.timing.engine import PAUSE_MS, ClientTimes, EngineLaw, IterationTimes, SchedulerName
from optimizer.timing.iteration import DEFAULT_MAX_NUM_TOKENS, FullIterationLaw, IterationLaw, PerfParms
from optimizer.timing.law import Law, RequestShapes, ServiceLaw, TokenTimes
from optimizer.timing.linear import Batching, DecodeParms, LinearLaw, PrefillParms
from optimizer.timing.mixture import MixtureIterationLaw
from optimizer.timing.static import PADDED, StaticLaw, is_static

__all__ = [
    "DEFAULT_MAX_NUM_TOKENS",
    "PADDED",
    "PAUSE_MS",
    "BatchLaw",
    "BatchParms",
    "Batching",
    "ClientTimes",
    "DecodeParms",
    "EngineLaw",
    "FullIterationLaw",
    "IterationLaw",
    "IterationTimes",
    "Law",
    "LinearLaw",
    "MixtureIterationLaw",
    "PerfParms",
    "PrefillParms",
    "RequestShapes",
    "SchedulerName",
    "ServiceLaw",
    "StaticLaw",
    "TokenTimes",
    "is_static",
]
