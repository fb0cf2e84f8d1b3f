"""Random systems for hypothesis, which then looks for the simplest one that breaks a property."""

from builders import Json, random_document
from hypothesis import strategies as st

documents: st.SearchStrategy[Json] = st.randoms(use_true_random=False).map(random_document)
"""Small tight systems, as documents."""
