"""The rules between a plan and what is desired: each is on or off here, and off unless asked for."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from optimizer.documents import Document, Seconds, Share
from optimizer.spec.files import plain_value, read_text
from optimizer.spec.messages import validated

_Share = Annotated[float, Field(ge=0, le=1)]
_Factor = Annotated[float, Field(ge=1, le=10)]
_Deviations = Annotated[float, Field(gt=0, le=10)]
_Replicas = Annotated[int, Field(ge=1, le=10_000)]


class StepLimit(Document):
    """How far the replicas of a target may move within a time: the larger of a share and a number."""

    share: Annotated[float, Field(ge=0, le=100)]
    """Of the replicas at the beginning of the time."""
    replicas: _Replicas
    """Replicas that it may move by in any case."""
    period_s: Seconds = Field(alias="period")
    """The time [s]."""


class Rules(Document):
    """What keeps replicas from following every plan; absent: off."""

    scale_down_window_s: Seconds | None = Field(None, alias="scaleDownWindow")
    """A target goes down to the largest number that was recommended for it in this time, no further [s]."""
    scale_down_load: _Factor | None = Field(None, alias="scaleDownLoad")
    """A pool gets smaller only if the smaller one holds with the load times this."""
    noise: _Deviations | None = None
    """Deviations of a counted load, in standard deviations of counting, that are taken for chance."""
    load_window_s: Seconds = Field(60.0, alias="loadWindow")
    """Time over which a load is counted before it is reported [s]; what `noise` is about."""
    min_saving: _Share | None = Field(None, alias="minSaving")
    """A server that is served as well where it is moves only if that saves this share of the fleet's cost."""
    switch_dwell_s: Seconds | None = Field(None, alias="switchDwell")
    """A server stays on an accelerator for this time at least, and moves only for `switchSaving`; its old
    pool goes down when the new one is ready [s]."""
    switch_saving: Share = Field(0.1, alias="switchSaving")
    """Share of the cost of a server that a move must save, where `switchDwell` is on."""
    startup_s: Seconds = Field(300.0, alias="startup")
    """After this time replicas count as ready where nobody reports which are [s]."""
    hold_missing_load: bool = Field(default=False, alias="holdMissingLoad")
    """A server whose load is missing from a snapshot keeps what was desired for it."""
    pending_limit_s: Seconds | None = Field(None, alias="pendingLimit")
    """A target whose replicas have been pending for this time gets no further ones [s]; replicas that are
    pending count as there, and can be taken back at once."""
    scale_up_limit: StepLimit | None = Field(None, alias="scaleUpLimit")
    """How fast a target may grow."""
    scale_down_limit: StepLimit | None = Field(None, alias="scaleDownLimit")
    """How fast a target may shrink."""

    @property
    def memory_s(self) -> float:
        """How long what was recommended and desired must be remembered [s]."""
        limits = (self.scale_up_limit, self.scale_down_limit)
        periods = [limit.period_s for limit in limits if limit is not None]
        return max([self.scale_down_window_s or 0.0, *periods])


def read_rules(path: Path) -> Rules:
    """Return the rules in a file of YAML or JSON.

    Raises:
        SpecError: it cannot be read, or says something impossible.
    """
    return validated(Rules, plain_value(read_text(path), str(path)), f"{path}: ")


RECOMMENDED = Rules(
    scale_down_window_s=300.0,
    scale_down_load=1.15,
    noise=3.5,
    min_saving=0.02,
    switch_dwell_s=1800.0,
    switch_saving=0.1,
    hold_missing_load=True,
    pending_limit_s=600.0,
    scale_up_limit=StepLimit(share=3.0, replicas=4, period_s=60.0),
    scale_down_limit=StepLimit(share=0.1, replicas=1, period_s=120.0),
)
"""Every rule, with the values that are usual for fleets whose replicas take minutes to start."""
