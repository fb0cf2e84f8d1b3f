"""A live replica of the simulator that runs in real time, and its requests."""

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from optimizer.simulation.live.replica import LiveReplica
from rest_server.emulator.asgi import Dropped, Receive, hung_up
from rest_server.emulator.metrics import Histogram

TIMER_S = 0.0006
"""Time by which a timer of the event loop can fire too early [s]."""
LAG_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Upper bounds of the histogram buckets of delays [s]."""


class EngineCall:
    """A request in an engine, which wakes its task when tokens are made."""

    def __init__(self, sent_ms: float) -> None:
        """Start without tokens.

        Args:
            sent_ms: model time at which the request arrives [ms].
        """
        self.sent_ms = sent_ms
        self.last_ms = sent_ms
        """Model time of the last token, or of the arrival [ms]."""
        self.made = 0
        """Number of tokens so far."""
        self.ended = False
        self._error: Exception | None = None
        self._woken: asyncio.Future[None] | None = None

    def token(self, at_ms: float, *, ended: bool) -> None:
        """Handle a token that was made at a model time [ms]."""
        self.last_ms = at_ms
        self.made += 1
        self.ended = ended
        self._wake()

    def fail(self, error: Exception) -> None:
        """Handle the end of a request that gets no further tokens."""
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def until(self, made: int) -> None:
        """Wait until the request has a number of tokens, or its last one.

        Raises:
            Exception: the request has failed before that.
        """
        while self.made < made and not self.ended and self._error is None:
            self._woken = asyncio.get_running_loop().create_future()
            await self._woken
        if self._error is not None and not self.ended:
            raise self._error


class LateRejection(Exception):  # noqa: N818
    """Raised when a full server rejects a request after its earlier stages."""


class Engine:
    """Runs a live replica in real time: it has the model clock and the timer of the next step."""

    def __init__(self, new: Callable[[], LiveReplica], speed: float, lag: Histogram) -> None:
        """Start with an empty replica.

        Args:
            new: function that returns an empty live replica.
            speed: factor by which model time passes faster than real time.
            lag: histogram of the delays of steps on a busy machine [s].
        """
        self._lag = lag
        self._new = new
        self.live = new()
        self._speed = speed
        self.slowdown = 1.0
        self._since_s, self._at_ms = time.monotonic(), 0.0
        self._calls: dict[int, EngineCall] = {}
        self._rows: dict[int, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.is_stuck = False

    def now_ms(self) -> float:
        """Return the model time [ms]; it passes more slowly in a slow replica, and stops in a stuck one."""
        if self.is_stuck:
            return self._at_ms
        return self._at_ms + (time.monotonic() - self._since_s) * 1000 * self._speed / self.slowdown

    def change(self, slowdown: float = 1.0, *, stuck: bool = False) -> None:
        """From now on, multiply all times by a factor, or generate no tokens until the next change."""
        self._at_ms, self._since_s = self.now_ms(), time.monotonic()
        self.slowdown, self.is_stuck = slowdown, stuck
        self._arm()

    async def sleep(self, seconds: float) -> None:
        """Wait for a duration in model time [s]; a slow replica does not change this clock."""
        await asyncio.sleep(seconds / self._speed)

    def add(self, call: EngineCall, *request: int, **named: int) -> bool:
        """Add a request that arrives now, as in `LiveReplica.add`; return False if it is rejected."""
        now_ms = self.now_ms()
        self._run(now_ms)
        row = self.live.add(now_ms, *request, **named)
        if row is None:
            return False
        self._calls[row] = call
        self._rows[id(call)] = row
        self._arm()
        return True

    def apply(self, change: Callable[[float], None]) -> None:
        """Change the live replica now; `change` gets the model time [ms]."""
        now_ms = self.now_ms()
        self._run(now_ms)
        change(now_ms)
        self._arm()

    def scheduled_ms(self, call: EngineCall) -> float:
        """Return the time at which a request that makes a token now first joined the batch [ms].

        It is the current time for a request that is in no batch.
        """
        row = self._rows.get(id(call))
        return self.now_ms() if row is None else self.live.scheduled_ms(row)

    @contextmanager
    def watched(self, call: EngineCall, receive: Receive) -> Iterator[None]:
        """Context that fails a request when its client hangs up, and at last removes it from the engine."""

        async def wait() -> None:
            await hung_up(receive)
            call.fail(Dropped())

        watch = asyncio.create_task(wait())
        try:
            yield
        finally:
            watch.cancel()
            now_ms = self.now_ms()
            self._run(now_ms)
            row = self._rows.pop(id(call), None)
            if row is not None:
                del self._calls[row]
                self.live.cancel(row, now_ms)
                self._arm()

    def reset(self, error: Exception) -> None:
        """Fail all requests, as if the process had ended."""
        calls = list(self._calls.values())
        self._calls, self._rows, self.live = {}, {}, self._new()
        self._at_ms, self._since_s = 0.0, time.monotonic()
        self._arm()
        for call in calls:
            call.fail(error)

    def _arm(self) -> None:
        """Set the timer to the time of the next step."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ms = self.live.next_ms()
        if due_ms < math.inf and not self.is_stuck:
            wait_s = max((due_ms - self.now_ms()) * self.slowdown / (1000 * self._speed), 0.0)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._run(self.now_ms() + TIMER_S * 1000 * self._speed / self.slowdown)
        self._arm()

    def _run(self, until_ms: float) -> None:
        """Deliver the tokens that were made up to a model time [ms]."""
        s_per_ms = self.slowdown / (1000 * self._speed)
        for at_ms, made, ended, rejected in self.live.run_until(until_ms):
            over = set(ended)
            self._lag.observe(max(self.now_ms() - at_ms, 0.0) * s_per_ms)
            for row in made:
                self._calls[row].token(at_ms, ended=row in over)
            for row in ended:
                del self._rows[id(self._calls.pop(row))]
            for row in rejected:
                call = self._calls.pop(row)
                del self._rows[id(call)]
                call.fail(LateRejection())
