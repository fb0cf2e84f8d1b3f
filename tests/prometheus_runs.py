"""A real Prometheus that scrapes what a test runs, and evaluates the rules of the manifests."""

import contextlib
import json
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from patience import PATIENCE_S, until

Json = dict[str, Any]
COMPONENT = Path(__file__).resolve().parents[1] / "manifests" / "components" / "prometheus"

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="prometheus is not installed (Debian's prometheus)",
)


@contextmanager
def scraping(place: Path, job: Json, targets: int) -> Iterator[str]:
    """Run a Prometheus with a scrape job; give its address when it has scraped all targets twice."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    rules = yaml.safe_load((COMPONENT / "prometheusrule.yaml").read_text())["spec"]
    (place / "rules.yaml").write_text(yaml.safe_dump(rules))
    scrape = {"scrape_interval": "200ms", "evaluation_interval": "200ms"}
    config = {"global": scrape, "scrape_configs": [job], "rule_files": ["rules.yaml"]}
    (place / "config.yaml").write_text(yaml.safe_dump(config))
    command = [
        "prometheus", f"--config.file={place / 'config.yaml'}", f"--storage.tsdb.path={place / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            until_scraped(url, targets)
            yield url
        finally:
            process.kill()


def until_scraped(url: str, targets: int) -> None:
    def scraped_twice() -> bool:
        with contextlib.suppress(OSError):
            counts = [float(row["value"][1]) for row in asked(url, "count_over_time(up[1h])")]
            return len(counts) == targets and min(counts) >= 2
        return False

    until(scraped_twice, 0.1)


def asked(url: str, query: str) -> list[Json]:
    """Return the rows that a query has as its answer."""
    text = urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(f"{url}/api/v1/query?{text}", timeout=PATIENCE_S) as answer:  # noqa: S310
        found = json.load(answer)
    assert found["status"] == "success", (query, found)
    rows: list[Json] = found["data"]["result"]
    return rows
