"""Iteration law of a mixture of experts: α grows with the batch, because more requests select more experts.

Like llm-inferno's iteration law it has a service time at a constant batch, so the birth-death queue supports
it. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from optimizer.arrays import BoolArray, FloatArray
from optimizer.documents import Document
from optimizer.timing.iteration import IterationFields, IterationLaw, PerfParms


@dataclass(frozen=True, slots=True)
class MixtureIterationLaw(IterationLaw):
    """Iteration law with the time to read the experts that its tokens choose (eq. 63, 104).

    Tokens choose experts independently. An iteration with part of a prompt reads all experts.
    """

    name: ClassVar[str] = "mixture iteration"

    expert_read_ms: FloatArray
    """Time to read all experts [ms], shape (R,)."""
    expert_share: FloatArray
    """Fraction of the experts that a token uses, shape (R,)."""

    @classmethod
    def applies_to(cls, document: Document) -> bool:
        """Return whether the iteration law of a document is that of a mixture of experts."""
        return isinstance(document, IterationFields) and document.is_of_a_mixture

    @classmethod
    def parameters(cls, document: Document) -> tuple[float, ...]:
        """Return α, β, γ, the token budget of an iteration, and the two expert parameters."""
        assert isinstance(document, IterationFields)
        law = document.iteration or PerfParms()
        return *IterationLaw.parameters(document), law.expert_read_ms, law.expert_share

    def _base_ms(self, occupancy: FloatArray, chunks: FloatArray) -> FloatArray:
        """Return α at a constant batch, averaged over its iterations [ms] (eq. 105); all shapes (R,)."""
        with_prompt = np.minimum(occupancy * chunks / (chunks + self.out_tokens), 1.0) * self._has_prompt
        unread = np.exp(occupancy * np.log1p(-self.expert_share)) * (1 - with_prompt)
        return np.asarray(self.base_ms + self.expert_read_ms * (1 - unread))

    @property
    def _prompt_base_ms(self) -> FloatArray:
        """α of an iteration that contains a prompt, which reads all experts [ms], shape (R,)."""
        return np.asarray(self.base_ms + self.expert_read_ms * self._has_prompt)

    @property
    def _has_prompt(self) -> BoolArray:
        return np.asarray(self.in_tokens > 0)
