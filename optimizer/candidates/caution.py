"""Token times for sizing: measured times, lengthened by their measurement error."""

from collections.abc import Iterator, Mapping

from optimizer.kinds.laws import laws_known
from optimizer.schema import ModelProfile

Time = tuple[str, str]
"""Path of a time in a profile: the field with the parameters of the latency model, and the parameter in it.
"""
_SUFFIX = "_ms"
"""Name suffix of parameters that are times; the others are shares and numbers of iterations."""


def cautious(profile: ModelProfile) -> ModelProfile:
    """Return the profile with all times lengthened by its larger relative measurement error (eq. 140).

    Profiles without measurements, such as estimates, are unchanged.
    """
    if profile.provenance is None:
        return profile
    errors = profile.provenance.errors
    return slower(profile, 1 + max(errors.ttft, errors.itl))


def slower(profile: ModelProfile, factor: float) -> ModelProfile:
    """Return the profile with all times multiplied by a factor."""
    return with_scaled_times(profile, dict.fromkeys(times_of(profile), factor))


def times_of(profile: ModelProfile) -> Iterator[Time]:
    """Yield the paths of all times in a profile."""
    for name in dict.fromkeys(name for law in laws_known(profile) for name in law.parts):
        part = getattr(profile, name)
        if part is not None:
            yield from ((name, field) for field in type(part).model_fields if field.endswith(_SUFFIX))


def with_scaled_times(profile: ModelProfile, factors: Mapping[Time, float]) -> ModelProfile:
    """Return the profile with the times at the given paths multiplied by factors."""
    changed: dict[str, dict[str, float]] = {}
    for (name, field), factor in factors.items():
        changed.setdefault(name, {})[field] = factor * getattr(getattr(profile, name), field)
    parts = {name: getattr(profile, name).model_copy(update=update) for name, update in changed.items()}
    return profile.model_copy(update=parts)
