"""Measure the core time of one request in its solver process: ``python tests/benchmarks/request.py``.

What a request on specs/small or specs/large costs from the bytes of its body to those of its answer, with and
without the memo of sizings, every request with other loads and each one done both ways in turn: a busy
machine slows both alike, so the ratio is steadier than the times. HTTP and the pipe to the process are not
in it; ``tests/benchmarks/load.py`` has them.
"""

import statistics
import time

from load import bodies

from rest_server.compat.planning import plan_document
from rest_server.settings import Settings

REQUESTS = {"small": 100, "large": 20}
WARM_UP = 4
WAYS = {"without": Settings(sizing_memo_rows=0), "with": Settings()}


def core_ms(body: bytes, settings: Settings) -> tuple[float, bytes]:
    """Return the core time of a request [ms], and its plan."""
    begin = time.process_time()
    outcome = plan_document(body, settings)
    return 1000 * (time.process_time() - begin), outcome.plan


def compared(name: str, *, exact: bool) -> str:
    """Measure requests on a system, and check that both ways give the same plans."""
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for i, body in enumerate(bodies(name, REQUESTS[name] + WARM_UP, exact=exact)):
        answers = {way: core_ms(body, settings) for way, settings in WAYS.items()}
        assert len({plan for _, plan in answers.values()}) == 1, "the plan depends on the memo"
        for way, (spent_ms, _) in answers.items():
            if i >= WARM_UP:
                times[way].append(spent_ms)
    ratios = [with_ms / without_ms for without_ms, with_ms in zip(*times.values(), strict=True)]
    middle = {way: statistics.median(all_ms) for way, all_ms in times.items()}
    return (
        f"specs/{name}, {'exact' if exact else 'greedy'}: {middle['without']:.1f} ms without the memo, "
        f"{middle['with']:.1f} ms with it; {statistics.median(ratios):.2f} times as much "
        f"({REQUESTS[name]} requests)"
    )


if __name__ == "__main__":
    for system in REQUESTS:
        for way in (True, False):
            print(compared(system, exact=way), flush=True)
