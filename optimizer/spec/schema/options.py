"""How to choose: the options of the optimizer."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from optimizer.documents import MaxLoss, Seconds, Share
from optimizer.limits.table import LimitOptions
from optimizer.spec.schema.profiles import EstimateEnd
from optimizer.spec.schema.robustness import ReserveOptions

SaturationPolicy = Literal["None", "PriorityExhaustive", "PriorityRoundRobin", "RoundRobin"]


def _known_policy(value: object) -> object:
    """Match the policy in any case; like the reference, take an empty one for None."""
    known: tuple[str, ...] = SaturationPolicy.__args__  # type: ignore[attr-defined]
    spelling = {name.lower(): name for name in known} | {"": "None"}
    return spelling.get(value.lower(), value) if isinstance(value, str) else value


AnyCasePolicy = Annotated[SaturationPolicy, BeforeValidator(_known_policy)]
"""A policy, in any case."""


class OptimizerOptions(ReserveOptions, LimitOptions):
    """How to choose."""

    unlimited: bool = False
    """Ignore the capacities."""
    heterogeneous: bool = False
    """Let a server's replicas be spread over several accelerators (mixed plan)."""
    milp_solver: bool = Field(default=True, alias="milpSolver")
    """Solve a limited problem exactly (MILP); false: greedily."""
    use_cplex: bool = Field(default=False, alias="useCplex")
    """Use CPLEX in place of HiGHS."""
    delayed_best_effort: bool = Field(default=False, alias="delayedBestEffort")
    """Give out what is left only after every priority level is solved."""
    saturation_policy: AnyCasePolicy = Field("None", alias="saturationPolicy")
    """Who gets partial service when not everything fits."""
    batch_sizing: Literal["profile", "optimal"] = Field("profile", alias="batchSizing")
    """Batch limits as in the profiles, or chosen."""
    gap: Share | None = None
    """Relative gap at which the solver may stop; none: 0 up to 2,000 columns of the model, then 1e-4."""
    time_limit_s: Seconds = Field(30.0, alias="timeLimit")
    """Time limit of the solve [s]."""
    transition_penalty: float = Field(0.1, alias="transitionPenalty", ge=0, le=1e6)
    """Factor on old plus new cost when a server changes its accelerator."""
    estimates: EstimateEnd = Field("upper", exclude_if=lambda end: end == "upper")
    """End of the interval of estimated profiles to plan with: slow and small, middle, or fast and large."""
    max_loss: MaxLoss | None = Field(None, alias="maxLoss")
    """Largest share of requests that may find the queue of a replica full, `none` for any; absent: 0.001 for
    servers that state `maxQueueSize`, any for others."""
