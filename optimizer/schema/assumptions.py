"""Checks of latency models, targets and loads against the assumptions of queue models.

Whatever a queue model does not support is rejected.
"""

from collections.abc import Iterable
from functools import partial

from optimizer.errors import SpecError
from optimizer.kinds.fields import Load, PlacedServer
from optimizer.kinds.kind import Kind
from optimizer.kinds.laws import laws_given, laws_known
from optimizer.kinds.queue_models import (
    QUEUE_MODELS,
    law_problem,
    shapes_problem,
    variability_problem,
    way_to,
)
from optimizer.kinds.table import KINDS, in_order, kind_of_profile
from optimizer.quantities import precise
from optimizer.queueing.measures import TargetMeasure
from optimizer.queueing.performance import VARIABILITY, QueueModel
from optimizer.schema import ModelProfile, ModelTarget, Server


def check_profile(profile: ModelProfile, place: str) -> None:
    """Check that the queue model of a profile supports its latency model.

    Args:
        place: prefix of messages.

    Raises:
        SpecError: the queue model does not support the latency model, or the profile has fields that its kind
            does not allow.
    """
    terms = profile.iteration.further_terms if profile.iteration else []
    if profile.scheduler != "chunked":
        terms.append(f"scheduler: {profile.scheduler}")
    refused = kind_of_profile(profile).refused_in_profiles
    for name in refused.fields:
        if getattr(profile, name):
            raise SpecError(f"{place}.{ModelProfile.model_fields[name].alias}: {refused.because}")
    for law in laws_known(profile):
        problem = law_problem(profile.queue_model, law, f" ({', '.join(terms)})" if terms else "")
        if problem is not None:
            raise SpecError(f"{place}: {problem}")


def check_server(server: Server, prefix: str, profiles: Iterable[ModelProfile]) -> None:
    """Check that the fields of a server suit the kind of its model's profiles.

    Args:
        prefix: prefix of messages.
        profiles: the profiles of its model.

    Raises:
        SpecError: the profiles are of several kinds, or the server has fields of another kind or is rejected
            by its kind.
    """
    known = list(profiles)
    kinds = in_order(set(map(kind_of_profile, known)))
    for kind in KINDS if known else ():
        given = [] if kind in kinds else [name for name in _own_fields(kind) if _is_stated(server, name)]
        if given:
            key = Server.model_fields[given[0]].alias or given[0]
            raise SpecError(
                f"{prefix}{key}: {server.model!r} has no {kind.gives}, but only {kind.name} {kind.does}; "
                "remove it"
            )
    if len(kinds) > 1:
        other, one = (kind.gives for kind in kinds[:2])
        raise SpecError(
            f"{prefix}model: {server.model!r} has {one} on some accelerators and {other} on others; give "
            "it one kind of latency model"
        )
    for path, problem in kinds[0].check(server, known, server.current.load):
        raise SpecError(f"{prefix}{path}: {problem}")


def _own_fields(kind: Kind) -> list[str]:
    """Return the fields of a server that only this kind of replica has."""
    fields = kind.server_fields.model_fields if kind.server_fields else {}
    return [name for name in fields if name not in PlacedServer.model_fields]


def _is_stated(server: Server, name: str) -> bool:
    stated = name in server.model_fields_set
    return stated and getattr(server, name) != Server.model_fields[name].default


def check_load(load: Load, prefix: str) -> None:
    """Check the parts of a load that need neither its server nor its model.

    Args:
        prefix: prefix of messages.

    Raises:
        SpecError: the mean output length is between 0 and 1 token.
    """
    if 0 < load.out_tokens < 1:
        raise SpecError(f"{prefix}avgOutTokens: must be 0 (idle) or at least 1, not {load.out_tokens:g}")


def lacks_lengths(load: Load, profiles: Iterable[ModelProfile]) -> bool:
    """Return whether requests arrive at a token model although their input or output length is not stated."""
    return any(_unstated_lengths(load, profiles))


def _unstated_lengths(load: Load, profiles: Iterable[ModelProfile]) -> tuple[bool, bool]:
    """Return whether the input length is missing, and whether the output length is missing.

    Both are False if no requests arrive. An input length of 0 is valid, but it must be stated: if it were
    forgotten, every request would seem cheaper.
    """
    kinds = [kind_of_profile(profile) for profile in profiles]
    if not load.arrival_rate_rpm or not kinds:
        return False, False
    stated = load.shapes or "in_tokens" in load.model_fields_set
    no_input = not stated and any("in_tokens" in kind.lengths for kind in kinds)
    return no_input, not load.out_tokens and not any(kind.demand_rps(load, 0.0) for kind in kinds)


def check_lengths(load: Load, prefix: str, profiles: Iterable[ModelProfile]) -> None:
    """Check that requests to a token model have an input and an output length.

    Args:
        prefix: prefix of messages.

    Raises:
        SpecError: a length is not stated.
    """
    no_input, no_output = _unstated_lengths(load, profiles)
    if not no_input and not no_output:
        return
    in_length = "the mean input length (0 for requests without input)"
    out_length = "the mean output length (at least 1)"
    if no_output:
        what = "avgOutTokens: 0 or missing" + (", and avgInTokens is missing" if no_input else "")
        give = f"{in_length} and {out_length}" if no_input else out_length
    else:
        what, give = "avgInTokens: missing", in_length
    arrive = f"{precise(load.arrival_rate_rpm)} requests/min arrive"
    raise SpecError(f"{prefix}{what}, but {arrive}; give {give}, or set arrivalRate to 0")


def check_variability(load: Load, prefix: str, profiles: Iterable[ModelProfile]) -> None:
    """Check that the queue models of a model's profiles support the variability of its load.

    Args:
        prefix: prefix of messages.

    Raises:
        SpecError: a queue model assumes another coefficient of variation.
    """
    if load.has_shapes:
        _check_shapes(load, prefix, profiles)
        return
    if all(getattr(load, name) == 1 for name in VARIABILITY):
        return
    coefficients = {Load.model_fields[name].alias or name: getattr(load, name) for name in VARIABILITY}
    for profile in profiles:
        owner = f" of {profile.name!r} on {profile.accelerator!r}"
        known = _has_law(profile)
        problem = variability_problem(profile.queue_model, coefficients, profile, owner) if known else None
        if problem is not None:
            raise SpecError(f"{prefix}{problem}")


def _check_shapes(load: Load, prefix: str, profiles: Iterable[ModelProfile]) -> None:
    """Check that the queue models of a model's profiles support several request shapes and prefixes."""
    key = "shapes" if load.shapes else "prefixTokens"
    for profile in profiles:
        owner = f" of {profile.name!r} on {profile.accelerator!r}"
        problem = shapes_problem(profile.queue_model, profile, owner) if _has_law(profile) else None
        if problem is not None:
            raise SpecError(f"{prefix}{key}: {problem}")


def check_target(target: ModelTarget, place: str, profiles: Iterable[ModelProfile]) -> None:
    """Check that the queue models of a model's profiles support a latency target.

    Args:
        place: prefix of messages.

    Raises:
        SpecError: it needs a percentile or a share of requests, but a queue model computes means only.
    """
    known = list(profiles)
    _check_kinds(target, place, known)
    for measure, _ in target.latency_targets():
        if measure in {limit.measure for limit in target.latency}:
            field, value, noun = "latency", measure.percentile, "percentile"
        elif target.percentile is not None:
            field, value, noun = "percentile", target.percentile, "percentile"
        else:
            field, value, noun = "goodputShare", target.goodput_share, "share of requests"
        supports = partial(_supports, measure)
        for profile in known:
            if not supports(QUEUE_MODELS[profile.queue_model]) and _has_law(profile):
                way = way_to(supports, laws_given(profile), ModelProfile)
                raise SpecError(
                    f"{place}.{field}: {value:g} is a {noun}, but the queue model "
                    f"{profile.queue_model!r} of {profile.name!r} on {profile.accelerator!r} computes "
                    "means only; remove it" + (f", or {way} there" if way else "")
                )


def could_use(
    queue_model: str, profiles: Iterable[ModelProfile], targets: Iterable[ModelTarget], loads: Iterable[Load]
) -> bool:
    """Return whether a model could use another queue model, before a message advises it.

    Args:
        loads: the loads of its servers.
    """
    changed = [profile.model_copy(update={"queue_model": queue_model}) for profile in profiles]
    try:
        for profile in changed:
            check_profile(profile, "")
        for target in targets:
            check_target(target, "", changed)
        for load in loads:
            check_variability(load, "", changed)
    except SpecError:
        return False
    return True


def _has_law(profile: ModelProfile) -> bool:
    """Return whether the latency model of a profile is stated, or will be estimated."""
    return bool(laws_known(profile)) or profile.is_estimated


def _supports(measure: TargetMeasure, model: type[QueueModel]) -> bool:
    return model.supports_measure(measure)


def _check_kinds(target: ModelTarget, place: str, profiles: Iterable[ModelProfile]) -> None:
    """Check that the kinds of the profiles allow all fields of a target."""
    for profile in profiles:
        refused = kind_of_profile(profile).refused_targets
        for name in refused.fields:
            if getattr(target, name):
                raise SpecError(
                    f"{place}.{ModelTarget.model_fields[name].alias}: does not apply to {profile.name!r} on "
                    f"{profile.accelerator!r}: {refused.because}"
                )
