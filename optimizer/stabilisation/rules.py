"""Rules that damp changes of desired replicas; a rule is off unless it is set."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from optimizer.documents import Document, In, Seconds, Share
from optimizer.schema.files import plain_value, read_text
from optimizer.schema.messages import validated
from optimizer.units import SHARE

_Factor = Annotated[float, Field(ge=1, le=10)]
_Deviations = Annotated[float, Field(gt=0, le=10)]
_Replicas = Annotated[int, Field(ge=1, le=10_000)]


class StepLimit(Document):
    """Maximum change of a target's replicas within a period: the larger of a fraction and a number."""

    share: Annotated[float, In(SHARE, le=100)]
    """Maximum change as a fraction of the replicas at the start of the period."""
    replicas: _Replicas
    """Change that is always allowed [replicas]."""
    period_s: Seconds = Field(alias="period")
    """Length of the period [s]."""


class Rules(Document):
    """Stabilisation rules, which keep desired replicas from following every plan.

    A rule that is absent is off.
    """

    scale_down_window_s: Seconds | None = Field(None, alias="scaleDownWindow")
    """A target is not reduced below the largest number recommended within this time [s]."""
    scale_down_load: _Factor | None = Field(None, alias="scaleDownLoad")
    """A pool is reduced only if the smaller pool can carry this factor times the load."""
    noise: _Deviations | None = None
    """Maximum deviation of a counted load that is treated as noise [standard deviations of the count]."""
    load_window_s: Seconds = Field(60.0, alias="loadWindow")
    """Counting window of a reported load [s], used by `noise`."""
    min_saving: Share | None = Field(None, alias="minSaving")
    """Minimum saving, as a fraction of the fleet's cost, for which a server moves although it is served
    equally well on its current accelerator.
    """
    switch_dwell_s: Seconds | None = Field(None, alias="switchDwell")
    """Minimum time that a server stays on an accelerator [s]. After it, the server moves only for
    `switchSaving`, and its old pool is removed once the new pool is ready.
    """
    switch_saving: Share = Field(0.1, alias="switchSaving")
    """Minimum saving of a move as a fraction of the server's cost, if `switchDwell` is set."""
    startup_s: Seconds = Field(300.0, alias="startup")
    """Time after their start at which replicas count as ready if their status is not reported [s]."""
    hold_missing_load: bool = Field(default=False, alias="holdMissingLoad")
    """Whether a server whose load is missing from a snapshot keeps its desired replicas."""
    pending_limit_s: Seconds | None = Field(None, alias="pendingLimit")
    """A target whose replicas have been pending for this time is not increased [s]. Pending replicas count as
    existing, and can be removed immediately.
    """
    scale_up_limit: StepLimit | None = Field(None, alias="scaleUpLimit")
    """Maximum increase of a target per period."""
    scale_down_limit: StepLimit | None = Field(None, alias="scaleDownLimit")
    """Maximum decrease of a target per period."""

    @property
    def memory_s(self) -> float:
        """Time for which recommended and desired replicas must be remembered [s]."""
        limits = (self.scale_up_limit, self.scale_down_limit)
        periods = [limit.period_s for limit in limits if limit is not None]
        return max([self.scale_down_window_s or 0.0, *periods])


def read_rules(path: Path) -> Rules:
    """Read stabilisation rules from a YAML or JSON file.

    Raises:
        SpecError: the file cannot be read, or a rule is invalid.
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
"""All rules, with usual values for fleets whose replicas take minutes to start."""

FOR_COUNTS = RECOMMENDED.model_copy(update={"noise": None, "scale_down_limit": None})
"""Rules beside demands from counts, which decide themselves what is noise and which replicas can leave."""
