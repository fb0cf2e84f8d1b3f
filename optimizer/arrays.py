"""Array types and the one helper that makes an array read-only.

Every array of the library is float64, int64 or bool. Shapes are written with index letters: ``r`` row of
a batched queue computation, ``n`` occupancy, ``s`` server, ``a`` accelerator, ``t`` accelerator type,
``c`` candidate.
"""

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_Array = TypeVar("_Array", bound=npt.NDArray[Any])


def frozen(array: _Array) -> _Array:
    """Return `array` itself, made read-only."""
    array.flags.writeable = False
    return array
