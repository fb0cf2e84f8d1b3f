"""The dominance filter against plain comparison of all pairs."""

import numpy as np
import pytest

from optimizer.solvers.dominance import nondominated


@pytest.mark.few(6)
@pytest.mark.parametrize("groups", [4, 60])
@pytest.mark.parametrize("seed", range(10))
def test_rows_stay_unless_another_of_their_group_dominates_them(seed: int, groups: int) -> None:
    """Groups of 150 rows are compared block by block, groups of 10 pair by pair."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, groups, 600)
    keys = rng.integers(0, 5, (600, 3)).astype(np.float64)
    kept = nondominated(group, keys)
    for i in range(len(group)):
        dominating = (group == group[i]) & (keys <= keys[i]).all(axis=1)
        dominating[i] = False
        equal = dominating & (keys == keys[i]).all(axis=1)
        less = (dominating & ~equal).any()
        first = not equal[:i].any()
        assert kept[i] == (not less and first)


def test_nondominated_accepts_empty_input() -> None:
    assert not len(nondominated(np.zeros(0, np.int64), np.zeros((0, 2))))
