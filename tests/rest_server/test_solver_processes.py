"""Processes that solve: what may leave, what comes back, what happens when one dies or cannot be started."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S, until
from service_runs import alive

from optimizer.errors import SolverError, SpecError
from optimizer.schema.files import json_value
from rest_server import solver_processes
from rest_server.solver_processes import PRELOADED, Job, SolverProcesses, SolverUnavailableError, is_remotable


@pytest.fixture(scope="module")
def processes() -> Iterator[SolverProcesses]:
    others = set(multiprocessing.active_children())  # those of joblib, which other tests have started
    found = SolverProcesses(1)
    found.start()
    yield found
    found.close()
    assert set(multiprocessing.active_children()) <= others


def pid_of(processes: SolverProcesses) -> int:
    pid: int = processes.run(Job(partial(os.getpid)))
    return pid


def test_only_a_function_of_a_module_over_plain_values_may_leave() -> None:
    assert is_remotable(partial(json_value, "{}", ""))
    assert not is_remotable(partial(json_value, object(), ""))  # type: ignore[arg-type]
    assert not is_remotable(partial(lambda: 1))
    assert not is_remotable(partial(threading.Event().wait, 1))
    assert not is_remotable(lambda: 1)


def test_work_runs_in_another_process_and_its_errors_come_back(processes: SolverProcesses) -> None:
    assert processes.run(Job(partial(json_value, '{"a": 1}', ""))) == {"a": 1}
    assert pid_of(processes) != os.getpid()
    with pytest.raises(SpecError, match="body:1:1: not valid JSON"):
        processes.run(Job(partial(json_value, "x", "body")))


def nested(depth: int) -> list[object]:
    """Return a list in a list and so on, too deep for pickle."""
    found: list[object] = []
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "problem"),
    [
        (partial(os.listdir, "/none"), "FileNotFoundError"),
        (partial(int, "x"), r"(?s)in the solver's process:.*ValueError"),
        (partial(nested, 100_000), r"(?s)in the solver's process:.*RecursionError"),
    ],
)
def test_a_fault_ends_the_request_but_not_the_process(
    processes: SolverProcesses, work: "partial[Any]", problem: str
) -> None:
    """An error of the system, a fault of the work, a result that cannot be sent."""
    before = pid_of(processes)
    with pytest.raises(RuntimeError, match=problem):
        processes.run(Job(work))
    assert pid_of(processes) == before


def test_work_that_was_given_up_before_its_turn_is_not_begun(
    processes: SolverProcesses, tmp_path: Path
) -> None:
    job = Job(partial(os.mkdir, str(tmp_path / "made")))
    job.cancel()
    with pytest.raises(SolverError, match="the request was cancelled"):
        processes.run(job)
    assert not (tmp_path / "made").exists()


def test_what_comes_before_work_runs_here_and_may_refuse(processes: SolverProcesses) -> None:
    assert processes.run(Job(partial(divmod, 7), lambda: 2)) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        processes.run(Job(partial(divmod, 7), lambda: 1 // 0))
    assert pid_of(processes) != os.getpid()


# --- processes that die --------------------------------------------------------------------------------


def dies_until_there_is(path: str) -> int:
    """Die the first time, and say who is alive the next."""
    if Path(path).exists():
        return os.getpid()
    Path(path).touch()
    os._exit(9)


@pytest.mark.slow
def test_work_is_begun_once_more_where_its_process_died(processes: SolverProcesses, tmp_path: Path) -> None:
    before = pid_of(processes)
    comes_before = []
    job = Job(
        partial(dies_until_there_is),
        lambda: comes_before.append(1) or str(tmp_path / "begun"),  # type: ignore[func-returns-value]
    )
    assert processes.run(job) not in {before, os.getpid()}
    assert comes_before == [1]  # loads are stored once


def test_work_whose_processes_die_again_and_again_is_an_error(processes: SolverProcesses) -> None:
    with pytest.raises(SolverUnavailableError, match="two solver processes died in a row"):
        processes.run(Job(partial(os._exit, 9)))
    assert pid_of(processes)


def test_an_idle_process_that_dies_is_replaced_unasked(processes: SolverProcesses) -> None:
    before = pid_of(processes)
    os.kill(before, signal.SIGKILL)
    until(lambda: not alive(before))
    assert pid_of(processes) != before


def waits_for(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.01)


def says_so_and_sleeps(path: str) -> None:
    Path(path).write_text(str(os.getpid()), "ascii")
    time.sleep(2 * PATIENCE_S)


@pytest.mark.slow
def test_cancelling_ends_the_process_and_the_next_gets_another(
    processes: SolverProcesses, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    job = Job(partial(says_so_and_sleeps, str(begun)))
    with ThreadPoolExecutor(1) as threads:
        lost = threads.submit(processes.run, job)
        until(lambda: begun.exists() and begun.read_text("ascii") != "")
        job.cancel()
        assert isinstance(lost.exception(PATIENCE_S), SolverError)
    pid = int(begun.read_text("ascii"))
    assert pid_of(processes) != pid
    until(lambda: not alive(pid))


@pytest.mark.slow
def test_giving_up_what_is_done_ends_no_other_work(processes: SolverProcesses) -> None:
    for i in range(200):
        done = Job(partial(int))
        assert processes.run(done) == 0
        late = threading.Timer(0.0, done.cancel)
        late.start()
        assert processes.run(Job(partial(abs, -i))) == i
        late.join()


@pytest.mark.slow
def test_work_cancelled_at_any_moment_does_not_affect_the_next(processes: SolverProcesses) -> None:
    for i in range(16):
        lost = Job(partial(time.sleep, 0.005))
        with ThreadPoolExecutor(2) as threads:
            first = threads.submit(processes.run, lost)
            stranger = threads.submit(processes.run, Job(partial(abs, -i)))
            time.sleep(0.0007 * i)
            lost.cancel()
            assert stranger.result(PATIENCE_S) == i
            error = first.exception(PATIENCE_S)
            assert error is None or "the request was cancelled" in str(error)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_solver_processes_fork_from_a_preloaded_server() -> None:
    context = solver_processes._context()
    ours, theirs = context.Pipe()
    child = context.Process(target=_tell, args=(theirs,))
    child.start()
    missing, threads, server = ours.recv()
    child.join()
    assert missing == []  # before anything is imported in the process itself
    assert threads == 1  # a fork copies only one thread
    assert server not in {os.getpid(), os.getppid()}


def _tell(pipe: Any) -> None:
    """Send what a process has not got from its parent, and how many threads the parent has."""
    status = Path(f"/proc/{os.getppid()}/status").read_text("ascii")
    threads = next(line for line in status.splitlines() if line.startswith("Threads:"))
    missing = [module for module in PRELOADED if module not in sys.modules]
    pipe.send((missing, int(threads.split()[1]), os.getppid()))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_the_death_of_the_server_process_loses_nothing(processes: SolverProcesses, tmp_path: Path) -> None:
    server = int(processes.run(Job(partial(os.getppid))))
    done = tmp_path / "done"
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(processes.run, Job(partial(waits_for, str(done))))
        time.sleep(0.2)
        os.kill(server, signal.SIGKILL)
        time.sleep(0.2)
        done.touch()
        assert answer.exception(PATIENCE_S) is None
    assert processes.run(Job(partial(os.getppid))) != server
