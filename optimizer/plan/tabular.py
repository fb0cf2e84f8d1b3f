"""Data frames from rows of plain values."""

from collections.abc import Mapping, Sequence
from typing import Any

from optimizer.errors import MissingExtraError

Row = Mapping[str, object]


def data_frame(rows: Sequence[Row], columns: Sequence[str]) -> Any:
    """Return rows as a pandas data frame.

    Raises:
        MissingExtraError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        raise MissingExtraError("pandas is not installed; pip install 'inferplan[pandas]'") from None
    return pd.DataFrame(list(rows), columns=list(columns))
