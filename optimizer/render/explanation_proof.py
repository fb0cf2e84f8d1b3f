"""Sentences on how far the numbers of an explanation are proved."""

from collections.abc import Iterator, Sequence

from optimizer.render.explanation_text import interval_text, is_unsettled
from optimizer.render.money import Money
from optimizer.section import Section, sentence, titled_list
from optimizer.studies.explanation.explanation_document import Effect, Explanation

MAX_QUESTIONS = 10
"""Maximum number of questions on one topic that are listed individually."""


def proof_sections(explanation: Explanation, money: Money) -> Iterator[Section]:
    """Yield the unproved numbers with their intervals, unanswered questions, and the accuracy of the rest."""
    effects, plan = list(_effects(explanation)), explanation.plan
    open_questions = [(what, one.interval) for what, one in effects if one.interval]
    known = [(what, one) for what, one in open_questions if not is_unsettled(one, plan)]
    lines = [f"{what}: {interval_text(one, money, plan)}" for what, one in known]
    yield from titled_list("Not proved; bounds of the change", _first(lines))
    unsettled = [what for what, one in open_questions if is_unsettled(one, plan)]
    yield from titled_list("Not settled within the time limit", _first(unsettled))
    yield from titled_list("Not answered within the time limit", _first(explanation.unanswered))
    amounts = [one.open_cents_per_h for _, one in effects]
    if not amounts:
        return
    most = max((value for value in amounts if value is not None), default=0.0)
    if None in amounts:
        yield sentence("Some solves were stopped early; --json gives the accuracy of every number.")
    elif most == 0:
        yield sentence("Every number is the difference between two plans that are proved optimal.")
    else:
        yield sentence(
            f"Not every plan is proved optimal: a number may be off by up to {money.text(most)} of the value."
        )


def _effects(explanation: Explanation) -> Iterator[tuple[str, Effect]]:
    """Yield every answered question of an explanation with the effect that answers it."""
    for item in explanation.targets:
        yield f"{item.service_class}/{item.model} {item.metric.upper()} relaxed by 10 %", item.effect
    for server in explanation.servers:
        if server.next_best is not None:
            yield f"{server.server} without its accelerators", server.next_best.effect
        for option in server.options:
            if option.forced is not None:
                yield f"{server.server} on {option.accelerator} alone", option.forced.effect
    for units in explanation.types:
        for what, effect in (("more", units.one_more), ("fewer", units.one_fewer)):
            if effect is not None:
                yield f"one card {what} of {units.type}", effect


def _first(questions: Sequence[str]) -> list[str]:
    more = len(questions) - MAX_QUESTIONS
    return [*questions[:MAX_QUESTIONS], *([f"and {more:,} more"] if more > 0 else [])]
