"""The loop's Prometheus source, with a real Prometheus that scrapes an emulated fleet."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from emulated import Emulator, emulated
from patience import until
from prometheus_runs import needs_prometheus, scraping

from optimizer.simulation.requests import Requests
from optimizer.spec.system import System, load_system
from rest_server.emulator.driver import ServerLoad, drive
from rest_server.loop.config import PrometheusSource
from rest_server.loop.demo import FLEET
from rest_server.loop.estimators import completions_rps, offered_rps
from rest_server.loop.fetching import Fetcher
from rest_server.loop.prometheus import PrometheusReader, asked
from rest_server.loop.window import Hold, Window

WINDOW_S = 4.0
pytestmark = needs_prometheus


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    path = tmp_path_factory.mktemp("fleet") / "fleet.yaml"
    path.write_text(FLEET)
    with emulated(path, "--scalable", "--startup", "0") as found:
        yield found


@pytest.fixture(scope="module")
def system() -> System:
    from optimizer.schema.files import plain_value

    return load_system(plain_value(FLEET, "fleet"))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def url(fleet: Emulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a Prometheus that finds the replicas by HTTP discovery."""
    discovery = {"url": f"{fleet.url}/emulator/targets", "refresh_interval": "1s"}
    job = {
        "job_name": "fleet",
        "scrape_interval": "400ms",
        "scrape_timeout": "400ms",
        "http_sd_configs": [discovery],
    }
    with scraping(tmp_path_factory.mktemp("prometheus"), job, len(fleet.replicas)) as found:
        yield found


@pytest.fixture
def fetcher() -> Iterator[Fetcher]:
    found = Fetcher()
    yield found
    found.close()


def source(url: str, **more: object) -> PrometheusSource:
    return PrometheusSource.model_validate({"kind": "prometheus", "url": url, "staleAfter": 10, **more})


def window_of(reader: PrometheusReader, system: System) -> Window | None:
    found = reader.read(system, time.time())["talk"]
    return found if isinstance(found, Window) else None


@pytest.mark.slow
def test_arrivals_in_overload_are_found(fleet: Emulator, url: str, system: System, fetcher: Fetcher) -> None:
    """100 requests in 10 s at one replica that takes 4.7/s; the window ends while they arrive."""
    reader = asked(source(url), WINDOW_S, fetcher)
    until(lambda: window_of(reader, system) is not None, 0.3)
    due_ms = np.sort(np.random.default_rng(1).uniform(0, 10_000, 100))
    load = ServerLoad("talk", "chat", True, 10.0, Requests(np.full(100, 40), np.full(100, 30), due_ms))  # noqa: FBT003
    begin_s = time.time()
    sending = threading.Thread(target=lambda: drive(fleet.url, [load]))
    sending.start()
    errors, offered, of_completions = [], [], []
    while (now_s := time.time()) < begin_s + 9:
        window = window_of(reader, system)
        assert window is not None
        since_s = now_s - begin_s - WINDOW_S
        if since_s > 0:
            true_rps = ((due_ms >= 1000 * since_s) & (due_ms < 1000 * (since_s + WINDOW_S))).sum() / WINDOW_S
            offered.append(true_rps)
            errors.append(abs(offered_rps(window) - true_rps))
            of_completions.append(abs(completions_rps(window) - true_rps))
        time.sleep(0.4)
    (replica,) = fleet.replicas
    for state in ("out-of-memory", "ready"):  # what waits fails at once
        fleet.ask(f"/emulator/replicas/{replica['id']}", {"state": state})
    sending.join()
    assert np.mean(errors) < 0.1 * np.mean(offered)
    assert np.mean(of_completions) > 0.3 * np.mean(offered)
    assert window is not None
    assert window.counts.prompt_tokens / window.counts.prompts == pytest.approx(40, rel=0.03)
    assert window.reporting == 1


@pytest.mark.slow
def test_no_series_and_a_gateway_that_is_missing_are_holds(
    url: str, system: System, fetcher: Fetcher
) -> None:
    reader = asked(source(url), WINDOW_S, fetcher)
    until(lambda: window_of(reader, system) is not None, 0.3)
    for more in ({"selector": 'server="other"'}, {"gatewayLabel": "model_name"}):
        found = asked(source(url, **more), WINDOW_S, fetcher).read(system, time.time())["talk"]
        assert isinstance(found, Hold)
        assert found.reason == "NoSeries"
    too_early = asked(source(url), 3600.0, fetcher).read(system, time.time())["talk"]
    assert isinstance(too_early, Hold)
    assert too_early.reason == "WindowNotFull"


def test_a_prometheus_that_is_down_is_a_hold(system: System, fetcher: Fetcher) -> None:
    found = asked(source("http://127.0.0.1:9"), WINDOW_S, fetcher).read(system, time.time())["talk"]
    assert isinstance(found, Hold)
    assert (found.reason, found.detail.startswith("http://127.0.0.1:9/api/v1/query: ")) == (
        "SourceDown",
        True,
    )


@pytest.mark.slow
def test_a_wrong_selector_is_a_hold_with_the_message(url: str, system: System, fetcher: Fetcher) -> None:
    found = asked(source(url, selector='server="'), WINDOW_S, fetcher).read(system, time.time())["talk"]
    assert isinstance(found, Hold)
    assert "status 400" in found.detail


@pytest.mark.parametrize("text", ["{", '{"data": {}}', '{"data": {"result": [1]}}'])
def test_an_answer_that_cannot_be_read_is_a_hold(text: str, system: System) -> None:
    reader = PrometheusReader(lambda _url, _form: text, source("http://prometheus"), WINDOW_S)
    found = reader.read(system, 0.0)["talk"]
    assert isinstance(found, Hold)
    assert "cannot be read" in found.detail


def test_a_token_is_read_from_its_file(tmp_path: Path, system: System, fetcher: Fetcher) -> None:
    reader = asked(source("http://127.0.0.1:9", tokenFile=str(tmp_path / "token")), WINDOW_S, fetcher)
    found = reader.read(system, 0.0)["talk"]
    assert isinstance(found, Hold)
    assert "the token cannot be read" in found.detail
