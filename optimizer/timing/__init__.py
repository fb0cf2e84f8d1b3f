"""Latency models: times of a request's steps at a given batch. Each model has its own file.

The package itself exports the documents with the parameters of the models.
"""

from optimizer.timing.batch import BatchParms
from optimizer.timing.iteration import PerfParms
from optimizer.timing.linear import DecodeParms, PrefillParms

__all__ = ["BatchParms", "DecodeParms", "PerfParms", "PrefillParms"]
