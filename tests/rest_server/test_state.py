"""The state of the fleet: whole snapshots, no lost update, a plan with the revision that it is for."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, replace

import pytest
from builders import accelerator, profile, server, service_class

from optimizer import load_system, solve
from optimizer.schema import Accelerator, Capacity, Server
from optimizer.schema.files import spec_from_value
from rest_server.fleet import Entities, desired_allocations
from rest_server.state import Arrival, FleetStore, RevisionConflictError

THREADS = 16
UPDATES = 50


DOCUMENT = {
    "accelerators": [accelerator("B"), accelerator("A")],
    "models": [profile("m", "A"), profile("m", "B")],
    "serviceClasses": [service_class("gold", itl=50)],
    "servers": [server("s"), server("idle", 0.0)],
    "count": [{"type": "A", "count": 5}, {"type": "B", "count": 5}],
}


def small_fleet() -> Entities:
    return Entities.of(spec_from_value(DOCUMENT))


def with_accelerator(entities: Entities, name: str) -> Entities:
    item = Accelerator(name=name, type=name)
    return replace(entities, accelerators={**entities.accelerators, name: item})


def in_threads(work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_new_fleet_is_empty_at_revision_zero() -> None:
    revision, entities = FleetStore().read()
    assert revision == 0
    assert entities == Entities()
    assert entities.optimizer.milp_solver


def test_entities_cannot_be_changed_in_place() -> None:
    entities = small_fleet()
    with pytest.raises(TypeError):
        entities.accelerators["x"] = Accelerator(name="x", type="x")  # type: ignore[index]
    with pytest.raises(TypeError):
        entities.models["m"]["x"] = entities.models["m"]["A"]  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        entities.count = {}  # type: ignore[misc]


def test_entities_are_independent_of_their_source_mapping() -> None:
    mine = {"x": Accelerator(name="x", type="x")}
    entities = Entities(accelerators=mine)
    mine.clear()
    assert list(entities.accelerators) == ["x"]


def test_entities_return_their_document_and_their_system() -> None:
    assert small_fleet().spec() == spec_from_value(DOCUMENT)
    assert small_fleet().system() == load_system(DOCUMENT)


def test_every_change_counts_and_no_change_does_not() -> None:
    fleet = FleetStore()
    assert fleet.update(lambda now: with_accelerator(now, "x"))[0] == 1
    assert fleet.update(lambda now: now)[0] == 1
    assert fleet.read()[0] == 1


def fail(_: Entities) -> Entities:
    raise KeyError


def test_a_change_that_fails_takes_no_revision() -> None:
    """Revisions count changes: after one that failed or came too late the next is the following number."""
    fleet = FleetStore(small_fleet())
    plan = solve(small_fleet().system())
    with pytest.raises(KeyError):
        fleet.update(fail)
    assert fleet.read() == (0, small_fleet())
    assert fleet.update(lambda now: with_accelerator(now, "x"))[0] == 1
    for _ in range(3):
        with pytest.raises(KeyError):
            fleet.update(fail, if_revision=1)
        with pytest.raises(RevisionConflictError, match="revision 1, not 0") as caught:
            fleet.update(lambda now: with_accelerator(now, "y"), if_revision=0)
        assert caught.value.current == 1
    assert list(fleet.read()[1].accelerators) == ["B", "A", "x"]
    # Nothing changed since revision 1, so a plan made from it stands for the fleet that it leaves behind.
    assert fleet.keep_plan(plan, {}, 1) == fleet.read()[0] == 2
    with pytest.raises(KeyError):
        fleet.update(fail)
    assert fleet.plan is not None
    assert (fleet.plan.revision, fleet.read()[0]) == (2, 2)
    assert fleet.update(lambda now: with_accelerator(now, "z"), if_revision=2)[0] == 3


@pytest.mark.slow
def test_no_concurrent_update_is_lost_or_seen_in_part() -> None:
    fleet = FleetStore()
    torn: list[int] = []

    def write(i: int) -> None:
        for k in range(UPDATES):
            name = f"{i}-{k}"
            fleet.update(
                lambda now, name=name: replace(  # type: ignore[misc]
                    with_accelerator(now, name), count={**now.count, name: Capacity(type=name, count=1)}
                )
            )
            revision, seen = fleet.read()
            if not revision >= len(seen.accelerators) == len(seen.count):
                torn.append(revision)

    in_threads(write)
    revision, entities = fleet.read()
    assert not torn
    assert revision == len(entities.accelerators) == THREADS * UPDATES


def test_of_writers_for_one_revision_one_gets_through() -> None:
    fleet = FleetStore()
    won: list[int] = []

    def write(i: int) -> None:
        try:
            fleet.update(lambda now: with_accelerator(now, str(i)), if_revision=0)
        except RevisionConflictError:
            return
        won.append(i)

    in_threads(write)
    assert len(won) == 1
    assert list(fleet.read()[1].accelerators) == [str(won[0])]


def test_a_plan_is_desired_then_applied_and_loads_stay() -> None:
    entities = small_fleet()
    system = entities.system()
    plan = solve(system)
    desired = entities.with_desired(desired_allocations(plan, system.servers))
    pool = plan.allocations["s"][0]
    assert desired.servers["s"].desired.accelerator == pool.accelerator
    assert desired.servers["s"].current == entities.servers["s"].current
    applied = desired.with_desired_applied()
    assert applied.servers["s"].current.num_replicas == pool.num_replicas
    assert applied.servers["s"].current.load == entities.servers["s"].current.load
    assert applied.system() == plan.applied_to(desired.system())


def test_desired_replicas_skip_removed_and_new_servers() -> None:
    entities = small_fleet()
    system = entities.system()
    newcomer = Server(name="new", model="m")
    since = replace(entities, servers={"s": entities.servers["s"], "new": newcomer})
    stored = since.with_desired(desired_allocations(solve(system), system.servers))
    assert list(stored.servers) == ["s", "new"]
    assert stored.servers["new"] == newcomer
    assert stored.servers["s"].desired.accelerator


def test_the_last_plan_is_that_of_the_latest_revision() -> None:
    fleet = FleetStore(small_fleet())
    plan = solve(small_fleet().system())
    assert fleet.plan is None
    desired = desired_allocations(plan, small_fleet().servers)
    stands_for = fleet.keep_plan(plan, desired, 0)
    assert (stands_for, fleet.read()[0]) == (1, 1)
    assert fleet.keep_plan(plan, {}, 0) == 0
    record = fleet.plan
    assert record is not None
    assert (record.plan, record.revision) == (plan, 1)
    assert record.made_at > 0
    assert fleet.read()[1].servers["s"].desired.accelerator


def test_an_outdated_plan_is_kept_until_a_later_one_arrives() -> None:
    fleet = FleetStore(small_fleet())
    plan = solve(small_fleet().system())
    desired = desired_allocations(plan, small_fleet().servers)
    first, _ = fleet.update(lambda now: replace(now, count={"A": Capacity(type="A", count=7)}))
    second, _ = fleet.update(lambda now: replace(now, count={"A": Capacity(type="A", count=8)}))
    assert fleet.keep_plan(plan, desired, first) == first
    assert fleet.read()[1].servers["s"].desired.accelerator
    assert fleet.keep_plan(plan, desired, second) == fleet.read()[0]


# --- who waits for whom --------------------------------------------------------------------------------


def test_building_a_fleet_does_not_block_other_fleets() -> None:
    fleet = FleetStore()
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> Arrival:
        begun.set()
        assert go_on.wait(20)
        return small_fleet(), None

    fleet.replace(slow)
    with ThreadPoolExecutor(1) as threads:
        reader = threads.submit(fleet.read)
        assert begun.wait(20)
        fleet.replace(lambda: (with_accelerator(Entities(), "x"), None))
        revision, entities = fleet.read()
        assert (revision, list(entities.accelerators)) == (2, ["x"])
        assert fleet.update(lambda now: with_accelerator(now, "y"))[0] == 3
        go_on.set()
        revision, entities = reader.result(20)
        assert (revision, list(entities.accelerators)) == (3, ["x", "y"])


def test_an_arriving_fleet_is_built_once_and_keeps_its_revision() -> None:
    fleet = FleetStore()
    plan = solve(small_fleet().system())
    built: list[int] = []
    all_there = threading.Barrier(THREADS)

    def build() -> Arrival:
        built.append(1)
        return small_fleet(), plan

    def read(_: int) -> None:
        all_there.wait()
        assert fleet.read() == (1, small_fleet())

    fleet.replace(build)
    in_threads(read)
    assert built == [1]
    record = fleet.plan
    assert record is not None
    assert (record.plan, record.revision) == (plan, 1)


def test_readers_do_not_wait_and_changes_reach_an_arriving_fleet() -> None:
    fleet = FleetStore()
    begun, go_on = threading.Event(), threading.Event()

    def slow(now: Entities) -> Entities:
        begun.set()
        assert go_on.wait(20)
        return with_accelerator(now, "y")

    with ThreadPoolExecutor(1) as threads:
        writer = threads.submit(fleet.update, slow)
        assert begun.wait(20)
        assert fleet.read() == (0, Entities())
        fleet.replace(lambda: (with_accelerator(Entities(), "x"), None))
        go_on.set()
        assert writer.result(20)[0] == 2
    assert list(fleet.read()[1].accelerators) == ["x", "y"]


def test_no_two_fleets_have_a_tag_in_common() -> None:
    one, other = FleetStore(), FleetStore()
    assert one.etag(1) == one.etag(1) != other.etag(1)
    assert one.etag(1) != one.etag(2)
