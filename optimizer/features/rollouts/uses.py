"""What a plan states of roll-outs."""

from optimizer.documents import Document


class RolloutUse(Document):
    """Extra replicas of a server during its roll-out."""

    replicas: int
    """Number of extra replicas."""
    cards: dict[str, int]
    """Cards of the extra replicas by accelerator type."""
