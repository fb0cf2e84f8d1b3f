"""Returns freed memory to the system, so that the service does not retain that of large bodies."""

import ctypes
import sys

_MMAP_THRESHOLD = -3
"""The ``mallopt`` option for the size from which allocations are mapped separately (glibc)."""
LARGE_BYTES = 64 * 2**10
"""Size from which memory is returned to the system as soon as it is freed [bytes]."""


def return_large_memory() -> None:
    """Make glibc return the memory of large objects to the system as soon as it is freed.

    By default, glibc raises this size when the first large object is freed. After a hundred large bodies,
    nearly all of their memory would remain in the process, fragmented.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_MMAP_THRESHOLD, LARGE_BYTES)
