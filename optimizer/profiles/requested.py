"""The estimates that a system asks for: profiles whose token times are to be computed, not given.

Takes a system, a server and an accelerator; gives the profile with the law's coefficients, memory and batch
for the requests of this server, or why there is none. Only systems that ask for an estimate come here, so
that nobody else waits for the catalogue.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from optimizer.errors import SpecError
from optimizer.profiles.catalogue import load_catalogue, slice_of
from optimizer.profiles.deployment import Deployment
from optimizer.profiles.ends import at_end
from optimizer.profiles.estimate import DoesNotFitError, Estimate, estimate_profile
from optimizer.profiles.facts import AcceleratorFacts, ModelFacts
from optimizer.profiles.model_config import read_model_config
from optimizer.spec.schema import Accelerator, EstimateEnd, EstimateSettings, ModelProfile, Server
from optimizer.spec.system import System

_REMEMBERED = 2**14
"""Estimates that are kept: plan, verification and studies ask for the same again."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a model does not fit."""

    error: DoesNotFitError

    @property
    def needed_gib(self) -> float:
        """What a device must hold."""
        return self.error.needed_gib

    @property
    def usable_gib(self) -> float:
        """What the engine may take of it."""
        return self.error.usable_gib

    @property
    def text(self) -> str:
        """The same in words, with the least that would hold it."""
        return str(self.error).replace("--tp", "tp")


@dataclass(frozen=True, slots=True)
class Requested:
    """What became of a request for an estimate."""

    profile: ModelProfile
    """The profile; without token times where the model does not fit."""
    misfit: Misfit | None = None
    """Why the model does not fit, if it does not."""


def requested_profile(system: System, server: Server, accelerator: str) -> Requested:
    """Return the profile of a server's model on an accelerator, estimated for the requests of the server.

    Raises:
        SpecError: a name is not in the catalogue, or a setting is out of range; the text has its place.
    """
    profile = system.profiles[server.model, accelerator]
    load = server.current.load
    lengths = (load.in_tokens, load.out_tokens) if load.out_tokens >= 1 else (None, None)
    return _requested(
        profile,
        system.accelerators[accelerator],
        lengths,
        system.options.estimates,
        _stamp(profile),
    )


def check_request(system: System, profile: ModelProfile) -> None:
    """Refuse a request for an estimate that nobody can answer, whether a server uses it or not.

    Raises:
        SpecError: a name is not in the catalogue, or a setting is out of range; the text has its place.
    """
    if profile.is_estimated:
        accelerator = system.accelerators[profile.accelerator]
        _requested(profile, accelerator, (None, None), system.options.estimates, _stamp(profile))


@lru_cache(maxsize=_REMEMBERED)
def _requested(
    profile: ModelProfile,
    accelerator: Accelerator,
    lengths: tuple[float | None, float | None],
    end: EstimateEnd,
    stamp: int,
) -> Requested:
    assert profile.iteration is not None
    settings = profile.iteration.estimate or EstimateSettings()
    place = f"models.{profile.name}.{profile.accelerator}.perfParms.estimate"
    try:
        model = _model(settings.config, settings.model or profile.name, stamp)
        facts = _accelerator(settings.accelerator, accelerator.type, accelerator.name)
        deployment = _deployment(settings, profile, accelerator, facts, lengths)
        found = estimate_profile(model, facts, deployment)
    except DoesNotFitError as error:
        return Requested(profile.model_copy(update={"iteration": None}), Misfit(error))
    except SpecError as error:
        raise SpecError(f"{place}: {error}") from None
    return Requested(_filled(profile, found, end))


def _stamp(profile: ModelProfile) -> int:
    """Return when the config.json of a profile was last written, so that a newer one is read again."""
    settings = profile.iteration.estimate if profile.iteration else None
    path = None if settings is None or settings.config is None else Path(settings.config)
    return path.stat().st_mtime_ns if path is not None and path.is_file() else 0


@lru_cache(maxsize=_REMEMBERED)
def _model(config: str | None, name: str, stamp: int) -> ModelFacts:  # noqa: ARG001  part of the key
    return load_catalogue().model(name) if config is None else read_model_config(Path(config))


@lru_cache(maxsize=_REMEMBERED)
def _accelerator(name: str | None, kind: str, slice_name: str) -> AcceleratorFacts:
    """Return the facts of the type in stock; by the slice's name where the type has one of its own."""
    catalogue = load_catalogue()
    if name is not None:
        return catalogue.accelerator(name)
    try:
        return catalogue.accelerator(slice_of(kind)[1])
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
    lengths: tuple[float | None, float | None],
) -> Deployment:
    """Return how the model is run: on all cards of the replica, unless the document says otherwise."""
    cards = accelerator.multiplicity * profile.acc_count
    in_tokens, out_tokens = lengths
    default = Deployment()
    return Deployment(
        tp=settings.tp or cards * facts.devices,
        weights=settings.weights,
        cache=settings.cache,
        eager=settings.eager,
        in_tokens=max(in_tokens, 1.0) if in_tokens is not None else default.in_tokens,
        out_tokens=out_tokens if out_tokens is not None else default.out_tokens,
        memory_utilization=settings.memory_utilization,
        max_num_tokens=profile.max_num_tokens,
        max_requests=settings.max_requests,
    )


def _filled(profile: ModelProfile, found: Estimate, end: EstimateEnd) -> ModelProfile:
    """Return the profile with the coefficients at an end of their intervals."""
    chosen = at_end(found, end, profile.kv_capacity_tokens)
    update: dict[str, object] = {"iteration": chosen.law, "kv_capacity_tokens": chosen.kv_capacity_tokens}
    if not profile.max_batch_size:
        update |= {"max_batch_size": chosen.max_batch, "at_tokens": 0}
    return profile.model_copy(update=update)
