"""Pools simulated on a cluster: the bytes of one process, and one line for what is wrong with a cluster."""

import builtins
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence

import pytest
from doc_pages import ROOT
from patience import PATIENCE_S

from optimizer.cli.main import main
from optimizer.cluster import on_cluster
from optimizer.errors import MissingExtraError, SpecError
from optimizer.jobs.effort import EffortOptions
from optimizer.jobs.simulating import SimulateOptions, repair_plan, simulate_plan
from optimizer.jobs.sweeping import SweepOptions, sweep_system
from optimizer.pipeline import solve
from optimizer.spec.system import load_system

SMALL = str(ROOT / "specs/small")
SHORT = 1_000


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.slow)])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the address of a scheduler with a worker or two, each a process of its own."""
    distributed = pytest.importorskip("distributed", reason="the extra 'cluster' is not installed")
    with (
        pytest.MonkeyPatch.context() as patched,
        distributed.LocalCluster(
            n_workers=request.param, threads_per_worker=2, processes=True, dashboard_address=":0"
        ) as cluster,
    ):
        patched.setattr("optimizer.cluster.PATIENCE_S", PATIENCE_S)
        yield cluster.scheduler_address


@pytest.mark.slow
def test_worker_processes_give_the_bytes_of_one_process(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    system = load_system(SMALL)
    request = system, SimulateOptions(requests=SHORT), solve(system)
    alone = simulate_plan(*request).to_json()
    with on_cluster(address):
        assert simulate_plan(*request).to_json() == alone
    assert main(["simulate", SMALL, "--requests", str(SHORT), "--json", "--cluster", address]) == 0
    assert capsys.readouterr().out == alone + "\n"


@pytest.mark.slow
def test_the_workers_do_the_work(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    system = load_system(SMALL)
    request = system, SimulateOptions(requests=SHORT), solve(system)
    alone = simulate_plan(*request)

    def stays_here(*_: object) -> None:
        raise AssertionError("simulated in the process that asked")

    monkeypatch.setattr("optimizer.studies.simulation.pools.run_replica", stays_here)
    with on_cluster(address):
        assert simulate_plan(*request) == alone


@pytest.mark.slow
def test_a_plan_is_repaired_on_a_cluster_as_elsewhere(address: str) -> None:
    request = load_system(SMALL), EffortOptions(requests=SHORT)
    alone = repair_plan(*request).to_json()
    with on_cluster(address):
        assert repair_plan(*request).to_json() == alone


@pytest.mark.slow
def test_sweeps_on_a_cluster_have_the_bytes_of_one_process(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = load_system(SMALL), SweepOptions(vary=("load=0.5..1/12",), samples=12, load_cv=0.2)
    alone = sweep_system(*request).to_json()

    def stays_here(*_: object) -> None:
        raise AssertionError("planned in the process that asked")

    monkeypatch.setattr("optimizer.studies.sweep.points.plan_point", stays_here)
    monkeypatch.setattr("optimizer.studies.sweep.days.solve", stays_here)
    with on_cluster(address):
        assert sweep_system(*request).to_json() == alone


def test_what_is_wrong_with_a_cluster_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("distributed", reason="the extra 'cluster' is not installed")
    assert main(["simulate", SMALL, "--cluster", "somewhere"]) == 2
    assert "'somewhere' is not the address of a scheduler; give tcp://HOST:PORT" in capsys.readouterr().err
    monkeypatch.setattr("optimizer.cluster.PATIENCE_S", 0.2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(SpecError, match=r"no scheduler answers at tcp://127\.0\.0\.1:"), on_cluster(nobody):
        pass
    assert main(["solve", SMALL, "--cluster", nobody]) == 2
    assert "--cluster: requires --simulate" in capsys.readouterr().err


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002  as in builtins
        locals: Mapping[str, object] | None = None,  # noqa: A002
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> object:
        if name == "distributed":
            raise ModuleNotFoundError(name)
        return real(name, globals, locals, fromlist, level)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"pip install -e '\.\[cluster\]'"), on_cluster("a:1"):
        pass


@pytest.mark.slow
def test_importing_costs_nothing_where_no_cluster_is_asked_for() -> None:
    code = (
        "import sys, optimizer.cluster, optimizer.cli.study\n"
        "from optimizer.jobs import simulating, sweeping\n"
        "sys.exit('distributed' in sys.modules or 'joblib' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True)
    assert run.returncode == 0, run.stderr
