"""Versions of a model: division of requests by weight, fallback to another version, and roll-outs."""

import asyncio
import random
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

from optimizer.features.versions.uses import SplitUse
from optimizer.plan import Plan
from rest_server.emulator.asgi import BadRequest
from rest_server.emulator.metrics import family, labels
from rest_server.emulator.settings import FleetSettings
from rest_server.emulator.steps.forwarded import ForwardedRequest, Onward, Refusal, RouterStep

STEPS = (0.1, 0.5, 1.0)
STEP_S = 60.0
"""Time between two steps of a roll-out [s of model time]."""
MAX_ERROR_RATE = 0.05
MIN_REQUESTS = 10
"""Number of requests in a step from which the error rate of the new version counts."""


@dataclass(slots=True)
class _Rollout:
    """A roll-out: a stepwise shift of requests to a version."""

    to: str
    steps: tuple[float, ...]
    step_s: float
    max_error_rate: float
    before: dict[str, float]
    """Weights before the roll-out, which a roll-back restores."""
    state: str = "shifting"
    requests: int = 0
    """Number of requests to the version in the current step."""
    errors: int = 0
    failed: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, *, is_error: bool) -> None:
        """Count a request to the version, and whether it failed."""
        self.requests += 1
        self.errors += is_error
        if self.requests >= MIN_REQUESTS and self.errors > self.max_error_rate * self.requests:
            self.failed.set()


@dataclass(slots=True)
class _Split:
    """Versions of a server, with their weights."""

    main: str
    """Model of the server itself, which serves requests if another version fails."""
    servers: dict[str, str]
    """Planned server of each model."""
    weights: dict[str, float]
    """Current fraction of the requests that each model gets."""
    counts: dict[str, int]
    errors: dict[str, int]
    rollout: _Rollout | None = None
    task: "asyncio.Task[None] | None" = None

    @classmethod
    def of(cls, use: SplitUse) -> "_Split":
        """Return the versions that a plan states for a server."""
        servers = {version.model: version.server for version in use.versions}
        weights = {version.model: version.weight for version in use.versions}
        return cls(use.model, servers, weights, dict.fromkeys(servers, 0), dict.fromkeys(servers, 0))

    def shift(self, to: str, share: float, before: Mapping[str, float]) -> None:
        """Give a version a fraction of the requests.

        The other versions keep their proportions in `before`.
        """
        rest = sum(weight for model, weight in before.items() if model != to)
        self.weights = {
            model: share if model == to else (1 - share) * (weight / rest if rest else 0.0)
            for model, weight in before.items()
        }


class Versions(RouterStep):
    """Step that chooses the version for each request by weight."""

    prefix: ClassVar[str] = "/emulator/versions"

    def __init__(self, plan: Plan, settings: FleetSettings) -> None:
        self._splits = {name: _Split.of(use) for name, use in plan.versions.items()}
        self._rng = random.Random(f"{settings.seed} versions")  # noqa: S311
        self._speed = settings.speed

    @property
    def names(self) -> Iterable[str]:
        """Names of the servers with versions."""
        return self._splits

    async def pass_on(self, call: ForwardedRequest, onward: Onward) -> Refusal | None:
        """Send a request to a version.

        If it fails before its first token, send it to the server's own model.
        """
        split = self._splits.get(call.server)
        if split is None:
            return await onward(call)
        chosen = self._rng.choices([*split.weights], [*split.weights.values()])[0]
        order = dict.fromkeys((chosen, split.main, *split.servers))
        refusal: Refusal | None = None
        for model in order:
            call.server = split.servers[model]
            call.notes["version"] = model
            try:
                refusal = await onward(call)
            except BadRequest as error:
                if error.status != 404:
                    raise
                refusal = Refusal(503, str(error))  # the version has no replica now
            is_error = refusal is not None or call.is_broken
            split.counts[model] += 1
            split.errors[model] += is_error
            rollout = split.rollout
            if rollout is not None and rollout.state == "shifting" and rollout.to == model:
                rollout.note(is_error=is_error)
            if refusal is None:
                return None
        return refusal

    async def control(self, path: str, body: Mapping[str, Any] | None) -> tuple[int, Mapping[str, Any]]:
        """Show the versions of all servers or of one, or start a roll-out.

        Return the HTTP status and the body.

        Raises:
            BadRequest: the server has no versions, or a field is wrong.
        """
        if not path:
            return 200, {name: _shown(split) for name, split in self._splits.items()}
        split = self._splits.get(path)
        if split is None:
            raise BadRequest(f"server {path!r} has no versions; GET {self.prefix} lists those that do", 404)
        if body is not None:
            split.rollout = _asked(split, body)
            if split.task is not None:
                split.task.cancel()
            split.task = asyncio.create_task(self._roll_out(split, split.rollout))
            await asyncio.sleep(0)  # so that the first step of the roll-out is taken
        return 200, _shown(split)

    async def _roll_out(self, split: _Split, rollout: _Rollout) -> None:
        for share in rollout.steps:
            split.shift(rollout.to, share, rollout.before)
            rollout.requests = rollout.errors = 0
            with suppress(TimeoutError):
                await asyncio.wait_for(rollout.failed.wait(), rollout.step_s / self._speed)
            if rollout.failed.is_set():
                split.weights, rollout.state = rollout.before, "rolled back"
                return
        rollout.state = "done"

    def metrics(self) -> list[str]:
        """Return metrics of requests, errors and weights by version."""
        lines = []
        for name, metric_type, text, field_name in (
            ("requests_total", "counter", "Requests sent to a version.", "counts"),
            ("errors_total", "counter", "Requests that a version failed to answer.", "errors"),
            ("weight", "gauge", "Share of the requests that a version gets.", "weights"),
        ):
            samples = {
                labels(server=server, version=model): value
                for server, split in self._splits.items()
                for model, value in getattr(split, field_name).items()
            }
            lines += family(f"inferplan_router_version_{name}", metric_type, text, samples)
        return lines


def _shown(split: _Split) -> dict[str, Any]:
    shown: dict[str, Any] = {"weights": split.weights, "requests": split.counts, "errors": split.errors}
    rollout = split.rollout
    if rollout is not None:
        shown["rollout"] = {
            "to": rollout.to, "state": rollout.state, "requests": rollout.requests, "errors": rollout.errors,
        }  # fmt: skip
    return shown


def _asked(split: _Split, body: Mapping[str, Any]) -> _Rollout:
    """Return the roll-out that an operator's request describes.

    Raises:
        BadRequest: a field is invalid.
    """
    to = body.get("to")
    if to not in split.servers:
        raise BadRequest(f"to: must be one of {', '.join(split.servers)}, not {to!r}")
    steps = body.get("steps", list(STEPS))
    if not isinstance(steps, list) or not steps or not all(_is_share(share) for share in steps):
        raise BadRequest(f"steps: must be a list of shares from 0 to 1, such as {[*STEPS]}, not {steps!r}")
    seconds, rate = body.get("seconds", STEP_S), body.get("maxErrorRate", MAX_ERROR_RATE)
    if type(seconds) not in {int, float} or not 0 < seconds < 1e6:
        raise BadRequest(f"seconds: must be a number above 0 and below 1e6, not {seconds!r}")
    if not _is_share(rate):
        raise BadRequest(f"maxErrorRate: must be a number from 0 to 1, not {rate!r}")
    running = split.rollout if split.rollout is not None and split.rollout.state == "shifting" else None
    before = dict(split.weights if running is None else running.before)
    return _Rollout(str(to), tuple(map(float, steps)), float(seconds), float(rate), before)


def _is_share(value: object) -> bool:
    return type(value) in {int, float} and 0 <= value <= 1  # type: ignore[operator]
