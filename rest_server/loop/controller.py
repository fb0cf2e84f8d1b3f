"""Cycles of the control loop: read, decide, store the state, scale, and record."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from optimizer.candidates import SizingMemo
from optimizer.errors import SpecError
from optimizer.features.disaggregation.streams import check_without_roles
from optimizer.render.manifests import workload_pairs
from optimizer.spec.system import System
from rest_server.loop.config import LoopConfig, RemotePlanner
from rest_server.loop.deciding import (
    CycleInputs,
    CycleOutcome,
    Existing,
    ExistingReplicas,
    LoopState,
    RemoteTargets,
    WorkloadDecision,
    decide,
    decide_remotely,
)
from rest_server.loop.drift import events_between, key_of
from rest_server.loop.fetching import SourceError
from rest_server.loop.kubernetes import ClusterError
from rest_server.loop.loads import EstimatedLoad
from rest_server.loop.records import MEMO_ROWS, record_of
from rest_server.loop.remote import asked_targets
from rest_server.loop.sources import MeasurementSource
from rest_server.loop.state_file import StateFile
from rest_server.loop.window import Hold, HoldReason, Reading, Window

SCALED, REFUSED, WOULD_SCALE = "scaled", "refused", "dry run"


class ScaledFleet(Protocol):
    """Interface of workloads that can be read and scaled."""

    def read(self) -> tuple[Existing, dict[str, Hold]]:
        """Return the replicas of all workloads, and the servers whose workloads cannot be read."""

    def scale(self, server: str, accelerator: str, replicas: int) -> None:
        """Set the number of replicas of a workload.

        Raises:
            ClusterError: the API server does not respond, or rejects the change.
        """

    def announce(self, server: str, accelerator: str, reason: str, message: str) -> None:
        """Create an Event about a workload.

        Raises:
            ClusterError: the API server does not respond, or rejects the Event.
        """

    def may_act(self) -> str | None:
        """Return the reason why this loop must not scale; None if it can scale."""

    @property
    def has_lease(self) -> bool:
        """Whether this loop can still scale, because its Lease is valid."""

    def release(self) -> None:
        """Release the Lease, so that another loop can act."""


def check_supported(system: System, config: LoopConfig) -> None:
    """Check that the loop can measure and scale every server of a system, and that names in settings exist.

    Raises:
        SpecError: the system has pools by role, routes or shared cards, or a setting has an unknown name.
    """
    named = {"startup": system.accelerators, "queue": system.servers, "routing": system.servers}
    for key, known in named.items():
        given = getattr(config, key)
        for name in given if isinstance(given, Mapping) else ():
            if name not in known:
                what = "accelerator" if key == "startup" else "server"
                raise SpecError(f"{key}.{name}: the system has no {what} {name!r}; correct the name")
    check_without_roles(system.servers.values(), "the control loop")
    for route in system.routed.values():
        raise SpecError(
            f"routes.{route.name}: the loop cannot measure routes; define their models as separate servers, "
            "or send the loads of routes to a stateful service (inferplan serve), whose targets KEDA applies"
        )
    for name, server in system.servers.items():
        if getattr(server, "shared_card", False):
            raise SpecError(
                f"servers.{name}.sharedCard: the loop cannot scale shared cards; remove sharedCard, so that "
                "this server gets its own cards, or apply the manifests of 'inferplan manifests'"
            )


@dataclass(slots=True)
class Controller:
    """Control loop for one system."""

    system: System
    config: LoopConfig
    source: MeasurementSource
    fleet: ScaledFleet | None
    """Workloads to scale; None if there are none."""
    write: Callable[[dict[str, Any]], None]
    """Function that is called with the record of each cycle."""
    state_file: StateFile | None = None
    dry_run: bool = False
    state: LoopState | None = None
    """State after the last cycle; None before the first."""
    last: dict[str, Any] | None = None
    """Record of the last cycle; None before the first."""
    last_s: float = field(default_factory=time.time)
    """Start of the last cycle, or of the loop before the first cycle [s since the epoch]."""
    cycles: int = 0
    scalings: dict[str, int] = field(default_factory=lambda: {SCALED: 0, REFUSED: 0})
    """Number of workloads that were scaled, and number of rejected changes."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Lock that is held during a cycle."""
    _memo: SizingMemo | None = None

    def run(self, stop: threading.Event) -> None:
        """Run cycles until stopped; each one starts a period after the start of the last one."""
        try:
            while not stop.is_set():
                begun_s = time.monotonic()
                self.cycle(time.time())
                stop.wait(max(0.0, self.config.period_s - (time.monotonic() - begun_s)))
        finally:
            if self.fleet is not None:
                self.fleet.release()

    def once(self) -> dict[str, Any]:
        """Measure one time window, run one cycle, and return its record."""
        end_s = time.time() + self.config.window_s
        while (left_s := end_s - time.time()) > 0:
            self.source.read(self.system, time.time())
            time.sleep(min(left_s, self.config.period_s))
        try:
            return self.cycle(time.time())
        finally:
            if self.fleet is not None:
                self.fleet.release()

    def now(self) -> dict[str, Any]:
        """Run a cycle now, and return its record."""
        return self.cycle(time.time())

    def is_late(self, periods: int) -> bool:
        """Return whether no cycle has started for a number of periods."""
        return time.time() - self.last_s > periods * self.config.period_s

    def cycle(self, now_s: float) -> dict[str, Any]:
        """Run one cycle, and return its record."""
        with self.lock:
            self.last_s = now_s
            self.last = self._cycle(now_s)
            self.cycles += 1
        self.write(self.last)
        return self.last

    def _cycle(self, now_s: float) -> dict[str, Any]:
        begun_s = time.monotonic()
        before = self.state
        if before is None:
            before = LoopState() if self.state_file is None else self.state_file.state
            self._memo = SizingMemo(MEMO_ROWS)
        lease = None if self.fleet is None or self.dry_run else self.fleet.may_act()
        seen = self._seen(now_s)
        if self.config.planner is None:
            outcome = decide(self.system, self.config, before, seen, self._memo)
        else:
            ask = partial(_ask, self.config.planner, self.system)
            outcome, seen = decide_remotely(self.system, self.config, before, seen, ask)
        if self.state_file is not None and lease is None and not self.dry_run:
            self.state_file.write(outcome.state)
        results = {} if self.fleet is None else self._scaled(self.fleet, outcome, lease)
        events = self._announced(before, outcome, lease)
        first = before if self.state is None else None
        self.state = outcome.state
        return record_of(seen, first, outcome, results) | {
            "events": events,
            "lease": lease or "",
            "tookSeconds": round(time.monotonic() - begun_s, 3),
        }

    def _seen(self, now_s: float) -> CycleInputs:
        """Return the inputs of a cycle.

        Workloads are read first, so that the source does not miss a new replica.
        """
        there, problems = ({}, {}) if self.fleet is None else self.fleet.read()
        readings = self.source.read(self.system, now_s)
        if self.fleet is None:
            there = {name: self._counted(name, reading) for name, reading in readings.items()}
        expected = {name: sum(item.ready for item in items.values()) for name, items in there.items()}
        return CycleInputs(
            now_s, {n: _expecting(r, expected.get(n)) for n, r in readings.items()}, there, problems
        )

    def _counted(self, name: str, reading: Reading) -> Mapping[str, ExistingReplicas]:
        """Return the replicas that the source sees, for use if no cluster is configured."""
        seen = self.source.replicas.items()
        existing_replicas = {
            on: ExistingReplicas(number, number) for (server, on), number in seen if server == name
        }
        allowed = [on for server, on in workload_pairs(self.system) if server == name]
        none = ExistingReplicas(0, 0) if isinstance(reading, Window) or existing_replicas else None
        return existing_replicas | {
            on: none for on in allowed if on not in existing_replicas and none is not None
        }

    def _announced(self, before: LoopState, outcome: CycleOutcome, lease: str | None) -> list[dict[str, str]]:
        """Announce drifts and refits as Events of a workload with the profile; return them with results."""
        events = []
        for key, reason, message in events_between(before.drifts, outcome.state.drifts):
            place = next(
                (item.server, item.accelerator)
                for item in outcome.workloads
                if key_of(self.system.servers[item.server].model, item.accelerator) == key
            )
            result = "no cluster" if self.fleet is None else "dry run" if self.dry_run else lease or "created"
            if self.fleet is not None and result == "created":
                try:
                    self.fleet.announce(*place, reason, message)
                except ClusterError as error:
                    result = str(error)
            events.append({"reason": reason, "message": message, "result": result})
        return events

    def _scaled(
        self, fleet: ScaledFleet, outcome: CycleOutcome, lease: str | None
    ) -> dict[tuple[str, str], str]:
        """Scale the workloads that change, increases first, and return the result for each."""
        changes = [item for item in outcome.workloads if item.changes]
        results = {}
        for item in sorted(changes, key=lambda item: item.existing - item.replicas):
            results[item.server, item.accelerator] = self._scaled_one(fleet, item, lease)
        return results

    def _scaled_one(self, fleet: ScaledFleet, item: WorkloadDecision, lease: str | None) -> str:
        if self.dry_run:
            return WOULD_SCALE
        if lease is not None or not fleet.has_lease:
            return lease or "the lease has expired during the cycle"
        try:
            fleet.scale(item.server, item.accelerator, item.replicas)
        except ClusterError as error:
            self.scalings[REFUSED] += 1
            return str(error)
        self.scalings[SCALED] += 1
        return SCALED


def _ask(
    planner: RemotePlanner, system: System, loads: Mapping[str, EstimatedLoad], existing: Existing
) -> RemoteTargets | Hold:
    """Return the targets of a remote planner, or the reason why there are none."""
    try:
        return asked_targets(planner, system, loads, existing)
    except SourceError as error:
        return Hold(HoldReason.plan_failed, str(error))


def _expecting(reading: Reading, ready: int | None) -> Reading:
    """Return a window that expects the ready replicas, if these are more than its source expects.

    A window with a value that is not a number is a reason to hold, because records cannot contain it.
    """
    if isinstance(reading, Hold):
        return reading
    if not reading.is_finite:
        return Hold(HoldReason.not_a_number, "a metric is not a number")
    return reading if ready is None else replace(reading, expected=max(ready, reading.expected or 0))
