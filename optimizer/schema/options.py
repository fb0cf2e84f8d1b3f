"""The document with the options of the optimizer."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from optimizer.documents import EstimateEnd, MaxLoss, Seconds, Share
from optimizer.features.fields import FeatureOptions
from optimizer.limits.table import LimitOptions

SaturationPolicy = Literal["None", "PriorityExhaustive", "PriorityRoundRobin", "RoundRobin"]


def _known_policy(value: object) -> object:
    """Match the name of a saturation policy in any case; as in llm-inferno, an empty name means None."""
    known: tuple[str, ...] = SaturationPolicy.__args__  # type: ignore[attr-defined]
    spelling = {name.lower(): name for name in known} | {"": "None"}
    return spelling.get(value.lower(), value) if isinstance(value, str) else value


AnyCasePolicy = Annotated[SaturationPolicy, BeforeValidator(_known_policy)]
"""Type of a saturation policy whose name can be in any case."""


class OptimizerOptions(FeatureOptions, LimitOptions):
    """Options of the optimizer."""

    unlimited: bool = False
    """Whether to ignore the numbers of cards in `count`, and `maxNodes` of nodes that cost something."""
    heterogeneous: bool = False
    """Whether a server's replicas can use several accelerators (mixed plan); needs `milpSolver`."""
    milp_solver: bool = Field(default=True, alias="milpSolver")
    """Whether limited problems are solved exactly (as a MILP) instead of greedily. Plans that are `unlimited`
    but not `heterogeneous` need no solver.
    """
    use_cplex: bool = Field(default=False, alias="useCplex")
    """Whether to use CPLEX instead of HiGHS."""
    delayed_best_effort: bool = Field(default=False, alias="delayedBestEffort")
    """Whether remaining capacity is allocated only after all priorities are solved."""
    saturation_policy: AnyCasePolicy = Field("None", alias="saturationPolicy")
    """Policy for partial service of servers that do not fit, in any case; `None`: none is served in part."""
    batch_sizing: Literal["profile", "optimal"] = Field("profile", alias="batchSizing")
    """Whether batch limits are those of the profiles, or optimised."""
    gap: Share | None = None
    """Relative gap at which the solver stops; default: 0 up to 2,000 columns of the model, then 1e-4."""
    time_limit_s: Seconds = Field(30.0, alias="timeLimit")
    """Time limit of the solver [s]."""
    transition_penalty: float = Field(0.1, alias="transitionPenalty", ge=0, le=1e6)
    """Factor on the sum of old and new cost when a server changes its accelerator."""
    estimates: EstimateEnd = Field("upper", exclude_if=lambda end: end == "upper")
    """End of the intervals of estimated profiles that plans use: `upper` is slow with little memory, `lower`
    the opposite.
    """
    max_loss: MaxLoss | None = Field(None, alias="maxLoss")
    """Maximum fraction of requests rejected by a full queue, or `none` for unlimited; default: 0.001 for
    servers with `maxQueueSize`, unlimited for others."""
