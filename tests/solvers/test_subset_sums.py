"""What an optimum of service tells of the servers that are left out, against every set of servers."""

from itertools import product

import numpy as np
import pytest

from optimizer.solvers.subset_sums import MAX_BITS, fixed_by_subset_sum


@pytest.mark.few(15)
@pytest.mark.parametrize("seed", range(60))
def test_fixed_servers_match_subset_enumeration(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weight = rng.integers(0, 6 + 10 * (seed % 4), size=rng.integers(1, 10)).astype(np.float64)
    sets = np.array(list(product((False, True), repeat=len(weight))))
    sums = sets @ weight
    for total in {*sums.tolist(), float(sums.max() + 1), 1.0}:
        of_total = sets[sums == total]
        served, left_out = fixed_by_subset_sum(weight, total)
        if not len(of_total):
            assert not (served | left_out).any()
            continue
        counts = weight > 0
        assert served.tolist() == (~of_total.any(axis=0) & counts).tolist()
        assert left_out.tolist() == (of_total.all(axis=0) & counts).tolist()


def test_what_is_too_large_to_look_at_tells_nothing() -> None:
    most = MAX_BITS // 3
    weight = np.array([float(most), 1.0, 5.0])
    served, left_out = fixed_by_subset_sum(weight, float(most))
    assert (served.tolist(), left_out.tolist()) == ([False, True, True], [True, False, False])
    assert not np.any(fixed_by_subset_sum(weight, most + 1.0))
