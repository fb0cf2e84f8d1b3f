"""Computes the estimates that a system requests: profiles whose token times are not stated.

This module loads the catalogue, so it is imported only for systems that request an estimate.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from optimizer.errors import SpecError
from optimizer.profiles.catalogue import load_catalogue
from optimizer.profiles.deployment import Deployment
from optimizer.profiles.ends import at_end
from optimizer.profiles.estimate import DoesNotFitError, ProfileEstimate, estimate_profile
from optimizer.profiles.facts import AcceleratorFacts
from optimizer.profiles.layers import ModelFacts
from optimizer.profiles.model_config import read_model_config
from optimizer.schema import Accelerator, EstimateEnd, ModelProfile, Server
from optimizer.schema.profiles import EstimateSettings
from optimizer.spec.system import System
from optimizer.text import slice_of

_REMEMBERED = 2**14
"""Maximum number of cached estimates, which planning, verification and studies reuse."""
_SETTINGS = ("weights", "cache", "eager", "engine", "memory_utilization", "max_requests")
"""Settings of an estimate that are settings of the deployment."""


@dataclass(frozen=True, slots=True)
class Requested:
    """Result of a requested estimate."""

    profile: ModelProfile
    """Estimated profile; without token times if the model does not fit."""
    misfit: DoesNotFitError | None = None
    """Error if the model does not fit, else None."""


def requested_profile(system: System, server: Server, accelerator: str) -> Requested:
    """Return the profile of a server's model on an accelerator, estimated for the requests of the server.

    Args:
        server: the server, with its request lengths.
        accelerator: name of the accelerator.

    Raises:
        SpecError: a name is not in the catalogue, or a setting is out of range; the message states the
            location.
    """
    load = server.current.load
    lengths = (max(load.in_tokens, 1.0), load.out_tokens) if load.out_tokens >= 1 else None
    return _of_system(system, system.profiles[server.model, accelerator], lengths)


def check_request(system: System, profile: ModelProfile) -> None:
    """Check that a requested estimate can be computed, even if no server uses it.

    Raises:
        SpecError: a name is not in the catalogue, or a setting is out of range; the message states the
            location.
    """
    _of_system(system, profile, None)


def _of_system(system: System, profile: ModelProfile, lengths: tuple[float, float] | None) -> Requested:
    """Return the estimate of a profile for mean input and output lengths [tokens]; None: the defaults."""
    accelerator = system.accelerators[profile.accelerator]
    return _requested(profile, accelerator, lengths, system.options.estimates, _stamp(profile))


@lru_cache(maxsize=_REMEMBERED)
def _requested(
    profile: ModelProfile,
    accelerator: Accelerator,
    lengths: tuple[float, float] | None,
    end: EstimateEnd,
    stamp: int,
) -> Requested:
    assert profile.iteration is not None
    settings = profile.iteration.estimate or EstimateSettings()
    place = f"models.{profile.name}.{profile.accelerator}.perfParms.estimate"
    try:
        model = _model(settings.config, settings.model or profile.name, settings.ignore_keys, stamp)
        facts = _accelerator(settings.accelerator, accelerator.type, accelerator.name)
        deployment = _deployment(settings, profile, accelerator, facts, lengths)
        estimate = estimate_profile(model, facts, deployment)
    except DoesNotFitError as error:
        return Requested(profile.model_copy(update={"iteration": None}), error)
    except SpecError as error:
        raise SpecError(f"{place}: {error}") from None
    return Requested(_filled(profile, estimate, end))


def _stamp(profile: ModelProfile) -> int:
    """Return the time of the latest change of a config.json or files in its folder, as part of cache keys."""
    settings = profile.iteration.estimate if profile.iteration else None
    if settings is None or settings.config is None:
        return 0
    path = Path(settings.config)
    files = (path if path.is_dir() else path.parent).glob("*.json")
    return max((file.stat().st_mtime_ns for file in files), default=0)


@lru_cache(maxsize=_REMEMBERED)
def _model(
    config: str | None,
    name: str,
    ignored: tuple[str, ...],
    stamp: int,  # noqa: ARG001  part of the key
) -> ModelFacts:
    if config is not None:
        return read_model_config(Path(config), ignored)
    if ignored:
        raise SpecError(f"ignoreKeys: {name} is a name of the catalogue; give config, or remove ignoreKeys")
    return load_catalogue().model(name)


@lru_cache(maxsize=_REMEMBERED)
def _accelerator(name: str | None, type_name: str, slice_name: str) -> AcceleratorFacts:
    """Return the facts of an accelerator, looked up by its stated name, its type, or else its own name."""
    catalogue = load_catalogue()
    if name is not None:
        return catalogue.accelerator(name)
    try:
        return catalogue.accelerator(slice_of(type_name)[1])
    except SpecError as error:
        try:
            return catalogue.accelerator(slice_of(slice_name)[1])
        except SpecError:
            raise error from None


def _deployment(
    settings: EstimateSettings,
    profile: ModelProfile,
    accelerator: Accelerator,
    facts: AcceleratorFacts,
    lengths: tuple[float, float] | None,
) -> Deployment:
    """Return the deployment of a profile; by default on all cards of the replica."""
    cards = accelerator.multiplicity * profile.acc_count
    deployment = Deployment(
        tp=settings.tp or cards * facts.devices,
        max_num_tokens=profile.max_num_tokens,
        **{name: getattr(settings, name) for name in _SETTINGS},
    )
    return replace(deployment, in_tokens=lengths[0], out_tokens=lengths[1]) if lengths else deployment


def _filled(profile: ModelProfile, estimate: ProfileEstimate, end: EstimateEnd) -> ModelProfile:
    """Return the profile with the estimate at one end of its intervals."""
    chosen = at_end(estimate, end, profile.kv_capacity_tokens)
    update: dict[str, object] = {"iteration": chosen.law, "kv_capacity_tokens": chosen.kv_capacity_tokens}
    if profile.kv_bytes_per_token is None:
        tokens, devices = estimate.deployment.request_tokens, estimate.deployment.tp
        update["kv_bytes_per_token"] = devices * estimate.memory.request_bytes(tokens) / tokens
    if not profile.max_batch_size:
        update |= {"max_batch_size": chosen.max_batch, "at_tokens": 0}
    return profile.model_copy(update=update)
