"""Messages about the configuration of the loop: the path is that of the document."""

from pathlib import Path

import pytest

from optimizer.errors import SpecError
from rest_server.loop.config import read_config

SOURCE = "source: {kind: prometheus, url: 'http://p'}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("source: {url: 'http://p'}", "source: 'kind' is missing; this key is required"),
        ("source: {kind: x}", "source: 'kind' must be 'scrape', 'prometheus', not 'x'"),
        (
            "source: {kind: scrape, url: p}",
            'source.url: must begin with http:// or https:// and name a host, not "p"',
        ),
        (
            "source: {kind: scrape, url: 'http://p', serverLabel: a b}",
            'source.serverLabel: must match the regular expression ^[a-zA-Z_][a-zA-Z0-9_]*$, not "a b"',
        ),
        (
            "source: {kind: prometheus, url: 'http://p', tokenFile: 3}",
            "source.tokenFile: must be the path of a file, not 3",
        ),
        (
            "source: {kind: prometheus, url: 'http://p', gatewayLable: x}",
            "source.gatewayLable: unknown key; remove it or correct its spelling",
        ),
        (f"{SOURCE}\nforecast: {{level: -1}}", "forecast.level: must be more than 0, not -1"),
        (
            f"{SOURCE}\nforecast: {{lvel: 1}}",
            "forecast.lvel: unknown key; did you mean 'level'?",
        ),
        (f"{SOURCE}\nforecast: nope", "forecast: must be 'none' or an object with keys, not \"nope\""),
        (f"{SOURCE}\ncoverage: 0", "coverage: must be more than 0, not 0"),
        (f"{SOURCE}\nhost: ''", "host: must not be empty"),
        (f"{SOURCE}\nforecast: [1]", "forecast: must be 'none' or an object with keys, not a list"),
        (f"{SOURCE}\nstartup: -1", "startup: must be more than 0, not -1"),
        (f"{SOURCE}\nstartup: {{A: 0}}", "startup.A: must be more than 0, not 0"),
        (f"{SOURCE}\nqueue: shared", "queue: must be 'common' or 'own', not \"shared\""),
        (f"{SOURCE}\nqueue: {{talk: x}}", "queue.talk: must be 'common' or 'own', not \"x\""),
        (f"{SOURCE}\nlateCost: -1", "lateCost: must be at least 0, not -1"),
    ],
)
def test_an_error_names_the_path_of_the_document(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "loop.yaml"
    path.write_text(f"system: sample:small\n{text}\n", "utf-8")
    with pytest.raises(SpecError) as error:
        read_config(path)
    assert str(error.value) == f"{path}: {problem}"


def test_every_kind_of_source_and_forecast_is_read(tmp_path: Path) -> None:
    path = tmp_path / "loop.yaml"
    for source in ("scrape", "prometheus"):
        for forecast in ("none", "{level: 60}"):
            path.write_text(
                f"system: sample:small\nsource: {{kind: {source}, url: 'http://p'}}\nforecast: {forecast}\n",
                "utf-8",
            )
            found = read_config(path)
            assert found.source.kind == source
            assert (found.forecast == "none") == (forecast == "none")


def test_scaling_to_zero_without_a_gateway_is_a_warning(tmp_path: Path) -> None:
    """Nothing measures the requests that should start the server again."""
    path, kinds = tmp_path / "loop.yaml", ("scrape", "prometheus")
    for source in (f"{{kind: {kind}, url: 'http://p'}}" for kind in kinds):
        path.write_text(f"system: sample:small\nsource: {source}\nscaleToZero: true\n", "utf-8")
        (warning,) = read_config(path).warnings
        assert warning.startswith("scaleToZero: ")
        assert "source.gatewayLabel" in warning
        path.write_text(f"system: sample:small\nsource: {source}\n", "utf-8")
        assert not read_config(path).warnings
    source = "{kind: prometheus, url: 'http://p', gatewayLabel: model_name}"
    path.write_text(f"system: sample:small\nsource: {source}\nscaleToZero: true\n", "utf-8")
    assert not read_config(path).warnings


def test_settings_by_name(tmp_path: Path) -> None:
    path = tmp_path / "loop.yaml"
    text = "startup: {A: 30, B: 300}\nqueue: {talk: common}\n"
    path.write_text(f"system: sample:small\n{SOURCE}\n{text}", "utf-8")
    found = read_config(path)
    assert [found.startup_of(on) for on in ("A", "B", "C")] == [30.0, 300.0, 120.0]
    assert found.longest_startup_s == 300.0
    assert found.is_common("talk", shared=False)
    assert not found.is_common("other", shared=False)
    assert found.is_common("other", shared=True)
    assert found.releases_early
    path.write_text(f"system: sample:small\n{SOURCE}\nrules: {{scaleDownWindow: 30}}\n", "utf-8")
    assert not read_config(path).releases_early
