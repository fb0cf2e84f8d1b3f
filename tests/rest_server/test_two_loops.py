"""Several loops for one fleet: one state file is for one loop, and one Lease, too."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from commands import Run, is_one_line
from emulated import emulated
from forked import Forked, forked
from patience import until

from optimizer.errors import SpecError
from rest_server.loop.demo import FLEET
from rest_server.loop.state_file import StateFile

CONFIG = {"system": "fleet.yaml", "period": 0.5, "window": 1.0}


def started(folder: Path, name: str) -> Forked:
    return forked("loop", folder / "loop.json", "--state", folder / f"{name}.json")


def lease(loop: Forked) -> str:
    """Return what the next record of a loop says about the Lease."""
    found: dict[str, Any] = json.loads(loop.stdout.readline())
    return str(found["lease"])


@pytest.mark.slow
def test_a_second_loop_is_refused_and_a_restart_is_not(tmp_path: Path, run: Run) -> None:
    (tmp_path / "fleet.yaml").write_text(FLEET)
    with emulated(tmp_path / "fleet.yaml", "--scalable", "--startup", "0") as fleet:
        source = {"kind": "scrape", "url": f"{fleet.url}/emulator/targets"}
        config = CONFIG | {"source": source, "kubernetes": {"url": fleet.url}}
        (tmp_path / "loop.json").write_text(json.dumps(config))
        with started(tmp_path, "a") as first:
            assert lease(first) == ""
            same = run("loop", tmp_path / "loop.json", "--state", tmp_path / "a.json")
            is_one_line(same, "in use by another loop; stop it, or name another file")
            with started(tmp_path, "b") as second:
                for _ in range(2):
                    assert lease(second).startswith("lease inferplan-loop: held by ")
                    assert lease(first) == ""
                holder = json.loads((tmp_path / "a.json").read_text())["identity"]
                assert lease(second).endswith(f"-{holder}")
                first.send_signal(signal.SIGKILL)
                first.communicate()
                with started(tmp_path, "a") as again:
                    assert lease(again) == ""
                    assert lease(second).endswith(f"-{holder}")
                    again.send_signal(signal.SIGTERM)
                    again.communicate()
                until(lambda: lease(second) == "", 0.0)  # released
                second.send_signal(signal.SIGTERM)
                second.communicate()


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{}", "version None; this program reads 3; remove the file to start anew"),
        ("{", "not valid JSON"),
        ("[1]", "must be a JSON object"),
        ('{"version": 3, "identity": 3}', "identity: must be text"),
        ('{"version": 2}', "version 2; this program reads 3"),
        ('{"version": 3, "decisions": []}', "decisions"),
        ("\x00\x01", "not valid JSON"),
        ("", "not valid JSON"),
        ('{"version": 3, "version": 3}', "key 'version' occurs twice"),
        ('{"version": 3, "loads": {"x": {"measured_s": NaN}}}', "a number is not finite"),
        ('{"version": 3, "loads": {"x": {"measured_s": 1e400}}}', "a number is not finite"),
        ("[" * 50_000, "nested too deeply"),
    ],
)
def test_a_broken_state_is_named_before_measuring(text: str, problem: str, tmp_path: Path, run: Run) -> None:
    (tmp_path / "state.json").write_text(text)
    refuses(tmp_path, run, "state.json", problem)
    assert (tmp_path / "state.json").read_text() == text


@pytest.mark.parametrize(
    ("place", "problem"), [("no/state.json", "no such file or directory"), ("", "is a directory")]
)
def test_an_impossible_state_file_is_named_before_measuring(
    place: str, problem: str, tmp_path: Path, run: Run
) -> None:
    refuses(tmp_path, run, place, problem)


def refuses(folder: Path, run: Run, place: str, problem: str) -> None:
    """Check that a loop with a window of a day ends at once, with one line."""
    source = {"kind": "scrape", "url": "http://127.0.0.1:9/"}
    config = folder / "loop.json"
    config.write_text(json.dumps({"system": "sample:small", "source": source, "window": "24h"}))
    for flags in ([], ["--once"], ["--dry-run"]):
        if place == "no/state.json" and "--dry-run" in flags:
            continue  # nothing is written, so there is no state yet
        found = run("loop", config, "--state", folder / place, *flags)
        assert found.status == 2
        is_one_line(found, problem)


def test_a_state_is_for_one_loop_and_keeps_its_identity(tmp_path: Path) -> None:
    first = StateFile(tmp_path / "state.json")
    with pytest.raises(SpecError, match="in use by another loop"):
        StateFile(tmp_path / "state.json")
    assert StateFile(tmp_path / "state.json", read_only=True).suffix == first.suffix
    first.close()
    again = StateFile(tmp_path / "state.json")
    assert (again.suffix, again.state) == (first.suffix, first.state)
    assert StateFile(tmp_path / "other.json").suffix != first.suffix


def test_a_state_without_identity_gets_one(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text('{"version": 3}')
    found = StateFile(tmp_path / "state.json")
    assert json.loads((tmp_path / "state.json").read_text())["identity"] == found.suffix


def test_once_without_data_is_not_a_success(tmp_path: Path, run: Run) -> None:
    source = {"kind": "scrape", "url": "http://127.0.0.1:9/"}
    config = tmp_path / "loop.json"
    config.write_text(json.dumps({"system": "sample:small", "source": source, "window": 0.2, "period": 0.2}))
    found = run("loop", config, "--once")
    assert found.status == 3
    assert "is not scaled: SourceDown: http://127.0.0.1:9/" in found.err
