"""Token times used in sizing: measured times, lengthened by their measurement error."""

from optimizer.kinds.laws import laws_known
from optimizer.spec.schema import ModelProfile

TIME = "_ms"
"""Suffix of the names of times; other parameters are shares and numbers of iterations."""


def cautious(profile: ModelProfile) -> ModelProfile:
    """Return a profile whose times are lengthened by its larger error (eq. 140).

    Profiles without measurements, such as estimates, are unchanged.
    """
    if profile.provenance is None:
        return profile
    errors = profile.provenance.errors
    return slower(profile, 1 + max(errors.ttft, errors.itl))


def slower(profile: ModelProfile, factor: float) -> ModelProfile:
    """Return a profile whose times are all multiplied by a factor."""
    parts = {}
    for name in dict.fromkeys(name for law in laws_known(profile) for name in law.parts):
        part = getattr(profile, name)
        if part is not None:
            times = [field for field in type(part).model_fields if field.endswith(TIME)]
            parts[name] = part.model_copy(update={field: factor * getattr(part, field) for field in times})
    return profile.model_copy(update=parts)
