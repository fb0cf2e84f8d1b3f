"""What queue models assume of the documents: a law, a target or a load that one cannot express is refused."""

from collections.abc import Iterable
from functools import partial

from optimizer.errors import SpecError
from optimizer.kinds.fields import Load, PlacedServer
from optimizer.kinds.kind import Kind
from optimizer.kinds.laws import laws_known
from optimizer.kinds.queue_models import QUEUE_MODELS, law_problem, models_that, variability_problem
from optimizer.kinds.table import KINDS, in_order, kind_of_profile
from optimizer.queueing.measures import TargetMeasure
from optimizer.queueing.performance import VARIABILITY, QueueModel
from optimizer.spec.schema import ModelProfile, ModelTarget, Server


def check_profile(profile: ModelProfile, place: str) -> None:
    """Refuse a profile whose queue model cannot express its law; `place` stands before what is wrong.

    Raises:
        SpecError: it names a queue model that does not take its law.
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
    """Refuse a server that its kind of replica knows nothing of, and fields of one kind on another.

    Raises:
        SpecError: its model is of two kinds, it has fields of another, or its kind refuses it.
    """
    mine = list(profiles)
    kinds = in_order(set(map(kind_of_profile, mine)))
    for kind in KINDS if mine else ():
        given = [] if kind in kinds else [name for name in _own_fields(kind) if _is_stated(server, name)]
        if given:
            raise SpecError(
                f"{prefix}{Server.model_fields[given[0]].alias}: {server.model!r} has no {kind.gives}, and "
                f"only {kind.name} {kind.does}; remove it"
            )
    if len(kinds) > 1:
        other, one = (kind.gives for kind in kinds[:2])
        raise SpecError(
            f"{prefix}model: {server.model!r} has {one} on some accelerators and {other} on others; give "
            "it one kind of latency model"
        )
    for path, problem in kinds[0].check(server, mine, server.current.load):
        raise SpecError(f"{prefix}{path}: {problem}")


def _own_fields(kind: Kind) -> list[str]:
    """Return the fields of a server that only one kind has."""
    fields = kind.server_fields.model_fields if kind.server_fields else {}
    return [name for name in fields if name not in PlacedServer.model_fields]


def _is_stated(server: Server, name: str) -> bool:
    stated = name in server.model_fields_set
    return stated and getattr(server, name) != Server.model_fields[name].default


def check_load(load: Load, prefix: str) -> None:
    """Check a load beyond its schema, as far as that needs no other document.

    Raises:
        SpecError: the answers are shorter than a token.
    """
    if 0 < load.out_tokens < 1:
        raise SpecError(f"{prefix}avgOutTokens: must be 0 (idle) or at least 1, not {load.out_tokens:g}")


def lacks_answers(load: Load, profiles: Iterable[ModelProfile]) -> bool:
    """Return whether requests arrive whose output length is not given, though the model answers in tokens."""
    if not load.arrival_rate_rpm or load.out_tokens:
        return False
    kinds = [kind_of_profile(profile) for profile in profiles]
    return bool(kinds) and not any(kind.demand_rps(load, 0.0) for kind in kinds)


def check_answers(load: Load, prefix: str, profiles: Iterable[ModelProfile]) -> None:
    """Refuse requests without an output length; only some kinds answer without tokens.

    Raises:
        SpecError: there are such requests.
    """
    if lacks_answers(load, profiles):
        raise SpecError(
            f"{prefix}avgOutTokens: 0 or missing, but {load.arrival_rate_rpm:g} requests/min arrive; give "
            "the mean output length (at least 1), or set arrivalRate to 0"
        )


def check_variability(load: Load, prefix: str, profiles: Iterable[ModelProfile]) -> None:
    """Refuse a load that varies otherwise than the queue model of one of its model's profiles assumes.

    Raises:
        SpecError: a coefficient of variation is not the one that a queue model assumes.
    """
    if all(getattr(load, name) == 1 for name in VARIABILITY):
        return
    coefficients = {Load.model_fields[name].alias or name: getattr(load, name) for name in VARIABILITY}
    for profile in profiles:
        owner = f" of {profile.name!r} on {profile.accelerator!r}"
        problem = variability_problem(profile.queue_model, coefficients, owner)
        if problem is not None and laws_known(profile):
            raise SpecError(f"{prefix}{problem}")


def check_target(target: ModelTarget, place: str, profiles: Iterable[ModelProfile]) -> None:
    """Refuse a target that the queue model of one of its model's profiles cannot judge.

    Raises:
        SpecError: it asks for a percentile, or a share of requests, of a model that knows means only.
    """
    mine = list(profiles)
    _check_kinds(target, place, mine)
    models = {QUEUE_MODELS[profile.queue_model] for profile in mine}
    listed = {limit.measure for limit in target.latency}
    for measure, _ in target.latency_targets():
        if all(model.supports_measure(measure) for model in models):
            continue
        field = "percentile" if target.percentile is not None else "goodputShare"
        field = "latency" if measure in listed else field
        for profile in mine:
            model = QUEUE_MODELS[profile.queue_model]
            if not model.supports_measure(measure) and laws_known(profile):
                value = target.percentile if target.percentile is not None else target.goodput_share
                value = measure.percentile if measure in listed else value
                knowing = models_that(partial(_knows, measure), kind_of_profile(profile))
                raise SpecError(
                    f"{place}.{field}: {value:g} asks for more than the queue model {model.name!r} of "
                    f"{profile.name!r} on {profile.accelerator!r} knows, which is means; remove it, or set "
                    f"queueModel to {knowing} there"
                )


def _check_kinds(target: ModelTarget, place: str, profiles: Iterable[ModelProfile]) -> None:
    """Refuse targets that a kind has no use for."""
    for profile in profiles:
        refused = kind_of_profile(profile).refused_targets
        for name in refused.fields:
            if getattr(target, name):
                raise SpecError(
                    f"{place}.{ModelTarget.model_fields[name].alias}: {profile.name!r} on "
                    f"{profile.accelerator!r} {refused.because}"
                )


def _knows(measure: TargetMeasure, model: type[QueueModel]) -> bool:
    return model.supports_measure(measure)
