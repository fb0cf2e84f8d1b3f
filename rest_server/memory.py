"""Returns freed memory to the operating system, so that large bodies do not occupy the service's memory."""

import ctypes
import sys

_MMAP_THRESHOLD = -3
"""Number of the ``mallopt`` option for the size from which glibc maps allocations separately."""
LARGE_BYTES = 64 * 2**10
"""Size from which memory is returned to the operating system as soon as it is freed [bytes]."""


def return_large_memory() -> None:
    """Make glibc return the memory of large objects to the operating system as soon as it is freed.

    By default, glibc raises this size when the first large object is freed. After a hundred large bodies,
    almost all of their memory would stay in the process, fragmented.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_MMAP_THRESHOLD, LARGE_BYTES)
