"""How far the numbers of an explanation are proved, in words."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from optimizer.render.explanation_words import interval_text, sentence, titled_list
from optimizer.render.money import Money
from optimizer.studies.explanation.document import Effect, Explanation

MOST_QUESTIONS = 10
"""Questions of one kind that are listed one by one."""


def proof_parts(explanation: Explanation, money: Money) -> Iterator[RenderableType]:
    """Yield what is not proved, with where it lies, what is not answered, and how the numbers were found."""
    effects = list(_effects(explanation))
    lines = [f"{what}: {interval_text(one.interval, money)}" for what, one in effects if one.interval]
    yield from titled_list("Not proved; the change between two optima lies in", _first(lines))
    yield from titled_list("Not answered within the time limit", _first(explanation.unanswered))
    found = [one.open_cents_per_h for _, one in effects]
    if not found:
        return
    most = max((value for value in found if value is not None), default=0.0)
    if None in found:
        yield sentence("Some solves were stopped early; --json gives the accuracy of every number.")
    elif most == 0:
        yield sentence("Every number is the difference between two plans that are proved optimal.")
    else:
        yield sentence(
            f"Not every plan is proved optimal: a number may be off by up to {money.text(most)} of the value."
        )


def _effects(explanation: Explanation) -> Iterator[tuple[str, Effect]]:
    """Yield every question that has an effect for its answer, in words."""
    for item in explanation.targets:
        yield f"{item.service_class}/{item.model} {item.metric.upper()} relaxed by 10 %", item.effect
    for server in explanation.servers:
        if server.next_best is not None:
            yield f"{server.server} without its accelerators", server.next_best.effect
        for option in server.options:
            if option.forced is not None:
                yield f"{server.server} on {option.accelerator} alone", option.forced.effect
    for kind in explanation.types:
        for what, effect in (("more", kind.one_more), ("fewer", kind.one_fewer)):
            if effect is not None:
                yield f"one card {what} of {kind.type}", effect


def _first(questions: Sequence[str]) -> list[str]:
    more = len(questions) - MOST_QUESTIONS
    return [*questions[:MOST_QUESTIONS], *([f"and {more:,} more"] if more > 0 else [])]
