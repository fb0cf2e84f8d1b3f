"""What queue models assume of the documents: a law, a target or a load that one cannot express is refused."""

from collections.abc import Iterable
from functools import partial

from optimizer.errors import SpecError
from optimizer.queueing.measures import Measure
from optimizer.queueing.performance import VARIABILITY, QueueModel
from optimizer.queueing.table import QUEUE_MODELS, law_problem, models_that, variability_problem
from optimizer.spec.schema import Load, ModelProfile, ModelTarget
from optimizer.timing import laws_known


def check_profile(profile: ModelProfile, place: str) -> None:
    """Refuse a profile whose queue model cannot express its law; `place` stands before what is wrong.

    Raises:
        SpecError: it names a queue model that does not take its law.
    """
    terms = profile.iteration.further_terms if profile.iteration else []
    if profile.scheduler != "chunked":
        terms.append(f"scheduler: {profile.scheduler}")
    for law in laws_known(profile):
        problem = law_problem(profile.queue_model, law, f" ({', '.join(terms)})" if terms else "")
        if problem is not None:
            raise SpecError(f"{place}: {problem}")


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
    field = "percentile" if target.percentile is not None else "goodputShare"
    mine = list(profiles)
    for measure, _ in target.latency_targets():
        for profile in mine:
            model = QUEUE_MODELS[profile.queue_model]
            if not model.knows(measure) and laws_known(profile):
                value = target.percentile if target.percentile is not None else target.goodput_share
                knowing = models_that(partial(_knows, measure))
                raise SpecError(
                    f"{place}.{field}: {value:g} asks for more than the queue model {model.name!r} of "
                    f"{profile.name!r} on {profile.accelerator!r} knows, which is means; remove it, or set "
                    f"queueModel to {knowing} there"
                )


def _knows(measure: Measure, model: type[QueueModel]) -> bool:
    return model.knows(measure) and model.has_tokens
