"""How tests wait for what must happen: until it does, however busy the machine is; only a hang ends them."""

import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 300.0
"""After how long what does not happen is taken for a hang; no assertion depends on it [s]."""
PATIENT: dict[str, Any] = {"request_timeout_s": PATIENCE_S, "body_timeout_s": PATIENCE_S}
"""Settings of a service that a busy machine does not make refuse what a test sends."""


def until(reached: Callable[[], bool], pause_s: float = 0.02) -> None:
    """Wait until something is the case."""
    end = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(pause_s)
