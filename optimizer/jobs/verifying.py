"""Job that verifies a plan, and the proof of its bounds."""

from dataclasses import dataclass

from optimizer.plan import Plan, verify
from optimizer.plan.proof import Proof, check_proof
from optimizer.spec.arguments import checks_documents
from optimizer.spec.system import System


@checks_documents
def verify_plan(plan: Plan, system: System, proof: Proof | None = None) -> "Verified":
    """Check a plan against its system by recomputing its values; also check the proof of its bounds if given.

    Args:
        system: the planned system, with the same options.
        proof: dual multipliers that prove the bounds of the plan.
    """
    wrong = verify(plan, system)
    if wrong or proof is None:
        return Verified(tuple(wrong))
    mistakes, open_points = check_proof(plan, system, proof)
    return Verified(tuple(f"proof: {item}" for item in mistakes), tuple(open_points))


@dataclass(frozen=True, slots=True)
class Verified:
    """Result of a verification."""

    wrong: tuple[str, ...]
    """Errors in the plan or the proof, one line each."""
    open_points: tuple[str, ...] = ()
    """Bounds that the multipliers do not prove, one line each."""
