"""Table of the sources of measurements; a new source needs a model of its settings and an entry."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from optimizer.spec.system import System
from rest_server.loop.config import LoopConfig, PrometheusSource, ScrapeSource
from rest_server.loop.fetching import Fetcher
from rest_server.loop.prometheus import asked
from rest_server.loop.scrape import ScrapeReader
from rest_server.loop.window import Reading


class MeasurementSource(Protocol):
    """Interface of a source of measurements."""

    replicas: Mapping[tuple[str, str], int]
    """Number of replicas in the last report, by server and accelerator; empty if the source does not know it.
    """

    def read(self, system: System, now_s: float) -> dict[str, Reading]:
        """Return the window of each server up to a time, or the reason why there is none."""


def _scrape(source: ScrapeSource, config: LoopConfig) -> MeasurementSource:
    return ScrapeReader(Fetcher().text, source.url, config.window_s, source.server_label)


def _prometheus(source: PrometheusSource, config: LoopConfig) -> MeasurementSource:
    return asked(source, config.window_s, Fetcher(), config.period_s)


SOURCES: Mapping[type, Callable[[Any, LoopConfig], MeasurementSource]] = {
    ScrapeSource: _scrape,
    PrometheusSource: _prometheus,
}
"""Function that opens a source, by the type of the source's settings."""


def open_source(config: LoopConfig) -> MeasurementSource:
    """Open the source of measurements of a configuration."""
    return SOURCES[type(config.source)](config.source, config)
