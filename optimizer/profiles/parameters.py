"""Parameter counts of a model, by use in an iteration (docs/estimate.md, section 2)."""

from dataclasses import dataclass

from optimizer.profiles.layers import Matrix, ModelFacts


@dataclass(frozen=True, slots=True)
class ParameterCounts:
    """Parameters by use in an iteration."""

    dense: int
    """Parameters read in every iteration: attention, dense and shared feed-forward layers, routers."""
    routed: int
    """Parameters of routed experts, read only if a token selects them."""
    head: int
    """Parameters of the output head."""
    embedding: int
    """Embedding parameters, looked up instead of read; 0 if shared with the head."""

    @property
    def total(self) -> int:
        """All parameters of the decoder that are stored."""
        return self.dense + self.routed + self.head + self.embedding


def count_parameters(model: ModelFacts) -> ParameterCounts:
    """Return the parameters of a model's decoder, without towers and layers for speculative decoding."""
    counts = dict.fromkeys(("dense", "routed", "head", "embedding"), 0)
    for matrix, times in all_matrices(model):
        if matrix.use in counts:
            counts[matrix.use] += times * matrix.parameters
    return ParameterCounts(**counts)


def all_matrices(model: ModelFacts) -> list[tuple[Matrix, int]]:
    """Return all weights of a model, each with the number of layers that have it."""
    inside = [(matrix, layer.count) for layer in model.layers for matrix in layer.matrices]
    return inside + [(matrix, 1) for matrix in model.others]
