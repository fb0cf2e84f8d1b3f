"""The session of the solver at hand, which is imported only when a model is loaded."""

from optimizer.milp.model import MilpModel, RelaxingSession


def highs_session(model: MilpModel, *, lean: bool = False) -> RelaxingSession:
    """Load a model into HiGHS; `lean`: it focuses on proving the bound instead of finding solutions."""
    from optimizer.milp.highs import HighsSession

    return HighsSession(model, lean=lean)
