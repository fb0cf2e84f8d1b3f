"""Prefix cache of an emulated replica: blocks of prompt tokens, found by a hash of all tokens before them.

It follows vLLM's automatic prefix caching: only full blocks are shared, the last token of a prompt is always
computed, and the least recently used block is replaced. A block counts as cached when the request that
computes it arrives.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from itertools import takewhile

BLOCK_TOKENS = 16
"""Number of tokens in a block, as in vLLM."""


class PrefixCache:
    """Cache of the first tokens of prompts."""

    def __init__(self, tokens: int) -> None:
        """Start empty.

        Args:
            tokens: capacity [tokens].
        """
        self._blocks = OrderedDict[int, None]()
        self._capacity = max(tokens // BLOCK_TOKENS, 1)

    def take(self, prompt: Sequence[Hashable]) -> int:
        """Return the number of tokens of a prompt that are cached, and cache all its full blocks."""
        keys, key = list[int](), 0
        for end in range(BLOCK_TOKENS, len(prompt) + 1, BLOCK_TOKENS):
            key = hash((key, tuple(prompt[end - BLOCK_TOKENS : end])))
            keys.append(key)
        known = list(takewhile(self._blocks.__contains__, keys))
        for key in reversed(keys):  # the first blocks of a prompt are replaced last
            self._blocks[key] = None
            self._blocks.move_to_end(key)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)
        return min(len(known), (len(prompt) - 1) // BLOCK_TOKENS) * BLOCK_TOKENS
