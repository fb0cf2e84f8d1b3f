"""The part of a plan about roll-outs."""

from optimizer.documents import OutputDocument


class RolloutUse(OutputDocument):
    """Extra replicas of a server during its roll-out."""

    replicas: int
    """Number of extra replicas."""
    cards: dict[str, int]
    """Number of cards of the extra replicas, by accelerator type."""
