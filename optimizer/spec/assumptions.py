"""What queue models assume of the documents: a law, a target or a load that one cannot express is refused."""

from collections.abc import Callable, Iterable
from functools import partial

from optimizer.errors import SpecError
from optimizer.queueing.measures import Measure
from optimizer.queueing.performance import QueueModel
from optimizer.queueing.table import QUEUE_MODELS
from optimizer.spec.schema import Load, ModelProfile, ModelTarget
from optimizer.timing import laws_known

VARIABILITY = ("arrival_cv", "in_tokens_cv", "out_tokens_cv")
"""The fields of a load that say how much its requests vary."""


def check_profile(profile: ModelProfile, place: str) -> None:
    """Refuse a profile whose queue model cannot express its law; `place` stands before what is wrong.

    Raises:
        SpecError: it names a queue model that does not take its law.
    """
    for law in laws_known(profile):
        if not QUEUE_MODELS[profile.queue_model].takes(law):
            others = [repr(name) for name, model in QUEUE_MODELS.items() if model.takes(law)]
            terms = profile.iteration.further_terms if profile.iteration else []
            if profile.scheduler != "chunked":
                terms.append(f"scheduler: {profile.scheduler}")
            given = f" ({', '.join(terms)})" if terms else ""
            raise SpecError(
                f"{place}: the queue model {profile.queue_model!r} does not support the {law.name} latency "
                f"model{given}; set queueModel to {' or '.join(others) or 'another'}"
            )


def check_load(load: Load, prefix: str) -> None:
    """Check a load beyond its schema, as far as that needs no other document.

    Raises:
        SpecError: the answers are shorter than a token.
    """
    if 0 < load.out_tokens < 1:
        raise SpecError(f"{prefix}avgOutTokens: must be 0 (idle) or at least 1, not {load.out_tokens:g}")


def check_variability(load: Load, prefix: str, profiles: Iterable[ModelProfile]) -> None:
    """Refuse a load that varies otherwise than the queue model of one of its model's profiles assumes.

    Raises:
        SpecError: a coefficient of variation is not the one that a queue model assumes.
    """
    varied = [name for name in VARIABILITY if getattr(load, name) != 1]
    if not varied:
        return
    for profile in profiles:
        model = QUEUE_MODELS[profile.queue_model]
        if not model.takes_variability and laws_known(profile):
            wire = Load.model_fields[varied[0]].alias
            raise SpecError(
                f"{prefix}{wire}: {getattr(load, varied[0]):g} is not 1, which the queue model "
                f"{model.name!r} of {profile.name!r} on {profile.accelerator!r} assumes; remove it, or set "
                f"queueModel to {_knowing(lambda other: other.takes_variability)} there"
            )


def check_target(target: ModelTarget, place: str, profiles: Iterable[ModelProfile]) -> None:
    """Refuse a target that the queue model of one of its model's profiles cannot judge.

    Raises:
        SpecError: it asks for a percentile, or a share of requests, of a model that knows means only.
    """
    field = "percentile" if target.percentile is not None else "goodputShare"
    mine = list(profiles)
    for measure, _ in target.latency_targets():
        for profile in mine:
            model = QUEUE_MODELS[profile.queue_model]
            if not model.knows(measure) and laws_known(profile):
                value = target.percentile if target.percentile is not None else target.goodput_share
                knowing = _knowing(partial(_knows, measure))
                raise SpecError(
                    f"{place}.{field}: {value:g} asks for more than the queue model {model.name!r} of "
                    f"{profile.name!r} on {profile.accelerator!r} knows, which is means; remove it, or set "
                    f"queueModel to {knowing} there"
                )


def _knows(measure: Measure, model: type[QueueModel]) -> bool:
    return model.knows(measure)


def _knowing(can: Callable[[type[QueueModel]], bool]) -> str:
    """Return the names of the queue models that can do something."""
    return " or ".join(repr(name) for name, model in QUEUE_MODELS.items() if can(model))
