"""Profiles without measurements: the catalogue of accelerators and models, and the estimator.

The input is names, or the config.json of a model, and a deployment. The output is the coefficients of the
iteration law with intervals, the KV capacity and the maximum batch. Queueing is not considered.
"""

from optimizer.profiles.catalogue import Catalogue, load_catalogue
from optimizer.profiles.deployment import Deployment
from optimizer.profiles.efficiency import Efficiency
from optimizer.profiles.estimate import ProfileEstimate, estimate_profile
from optimizer.profiles.facts import AcceleratorFacts, ModelEntry
from optimizer.profiles.intervals import Estimated
from optimizer.profiles.layers import ModelFacts
from optimizer.profiles.model_config import read_model_config

__all__ = [
    "AcceleratorFacts",
    "Catalogue",
    "Deployment",
    "Efficiency",
    "Estimated",
    "ModelEntry",
    "ModelFacts",
    "ProfileEstimate",
    "estimate_profile",
    "load_catalogue",
    "read_model_config",
]
