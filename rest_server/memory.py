"""Return of freed memory to the system, so that the service does not keep that of bodies."""

import ctypes
import sys

_MMAP_THRESHOLD = -3
"""The option of ``mallopt`` that says from which size on memory comes from the system by itself (glibc)."""
LARGE_BYTES = 64 * 2**10
"""Memory from this size on goes back to the system as soon as it is free [bytes]."""


def return_large_memory() -> None:
    """Let the memory of large objects go back to the system at once, where the C library is glibc.

    By itself glibc raises the size with the first large object that is freed: after a hundred large bodies
    nearly all of their memory would stay with the process, in pieces.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_MMAP_THRESHOLD, LARGE_BYTES)
