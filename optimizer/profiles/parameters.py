"""Parameter counts of a model, by use in an iteration (docs/estimate.md, section 2)."""

from dataclasses import dataclass

from optimizer.errors import SpecError
from optimizer.profiles.facts import LatentAttention, ModelFacts

MAX_DEVIATION = 0.01
"""Maximum relative difference between the counted and the declared parameters."""


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
        """All parameters that are stored."""
        return self.dense + self.routed + self.head + self.embedding


def count_parameters(model: ModelFacts) -> ParameterCounts:
    """Count the parameters of a model (eq. E1 to E3); norms and biases, below 0.5 %, are omitted."""
    matrices = 3 if model.gated else 2
    attention = model.linear_layers * _linear_attention(model)
    attention += (model.layers - model.linear_layers) * _attention(model)
    experts = model.experts
    mixed = model.layers - experts.dense_layers if experts else 0
    dense = attention + (model.layers - mixed) * matrices * model.hidden * model.ffn
    routed = 0
    if experts:
        dense += mixed * model.hidden * (matrices * experts.shared_ffn + experts.count)
        routed = mixed * experts.count * matrices * model.hidden * experts.ffn
    head = model.vocab * model.hidden
    return ParameterCounts(dense, routed, head, 0 if model.tied else head)


def check_parameters(model: ModelFacts) -> None:
    """Check the declared number of parameters against the sizes.

    Raises:
        SpecError: the numbers differ by more than 1 %.
    """
    if model.parameters_b is None:
        return
    counted = count_parameters(model).total / 1e9
    if abs(counted / model.parameters_b - 1) > MAX_DEVIATION:
        raise SpecError(
            f"{model.name or 'model'}: the sizes give {counted:.2f} billion parameters, but parametersB is "
            f"{model.parameters_b:g}; they must agree within 1 %: correct the sizes"
        )


def _attention(model: ModelFacts) -> int:
    """Return the parameters of one attention layer."""
    if model.latent:
        return _latent_attention(model, model.latent)
    queries = model.heads * model.head_dim
    keys_and_values = 2 * model.kv_heads * model.head_dim
    return model.hidden * (queries * (2 if model.query_gate else 1) + keys_and_values + queries)


def _latent_attention(model: ModelFacts, latent: LatentAttention) -> int:
    """Return the parameters of a layer that compresses keys and values to `kvRank`."""
    queries = model.heads * (latent.nope_dim + latent.rope_dim)
    rank = latent.query_rank
    query = rank * (model.hidden + queries) if rank else model.hidden * queries
    down = model.hidden * (latent.kv_rank + latent.rope_dim)
    up = latent.kv_rank * model.heads * (latent.nope_dim + latent.value_dim)
    return query + down + up + model.heads * latent.value_dim * model.hidden


def _linear_attention(model: ModelFacts) -> int:
    """Return the parameters of linear attention: q, k, v, gate, two scalars a head, and output."""
    linear = model.linear
    if linear is None:
        return 0
    keys, values = linear.key_heads * linear.key_dim, linear.value_heads * linear.value_dim
    return model.hidden * (2 * keys + 2 * values + 2 * linear.value_heads) + values * model.hidden
