"""Measure how many changes of a fleet are acknowledged a second: ``python tests/benchmarks/state.py``.

The fleet of specs/large, in memory and with a state file in FOLDER (`.`), on whose disk it depends: every
change waits for a sync. One writer; several take turns.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from optimizer import load_system
from optimizer.schema import Server
from rest_server.fleet import Entities
from rest_server.state import FleetStore
from rest_server.state_file import open_state

CHANGES = {"one server": 400, "all loads": 60}


def loaded(server: Server, rate_rpm: float) -> Server:
    """Return a server with another load."""
    load = server.current.load.model_copy(update={"arrival_rate_rpm": rate_rpm})
    return server.model_copy(update={"current": server.current.model_copy(update={"load": load})})


def changes(number: int) -> dict[str, Callable[[Entities], Entities]]:
    """Return a change of one server, and one of the loads of all."""

    def one(now: Entities) -> Entities:
        name = list(now.servers)[number % len(now.servers)]
        return replace(now, servers={**now.servers, name: loaded(now.servers[name], number + 1.0)})

    def every(now: Entities) -> Entities:
        return replace(now, servers={name: loaded(item, number + 2.0) for name, item in now.servers.items()})

    return {"one server": one, "all loads": every}


def measure(held: FleetStore, entities: Entities) -> str:
    """Return how many changes of each kind are made a second."""
    held.update(lambda _: entities)
    rates = []
    for what, times in CHANGES.items():
        begin = time.perf_counter()
        for i in range(times):
            held.update(changes(i)[what])
        rates.append(f"{times / (time.perf_counter() - begin):,.0f}/s ({what})")
    held.close()
    return ", ".join(rates)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Changes of the fleet's state per second.")
    parser.add_argument("folder", nargs="?", default=".", help="where the state file is written")
    chosen = parser.parse_args().folder
    fleet = Entities.of(load_system("specs/large").to_spec())
    print("in memory:", measure(FleetStore(), fleet))
    with tempfile.TemporaryDirectory(dir=chosen) as folder:
        print("with a file:", measure(open_state(Path(folder) / "fleet.db"), fleet))
