"""Runs work on a dask cluster instead of in local threads."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from optimizer.errors import MissingExtraError, SpecError

if TYPE_CHECKING:
    from distributed import Client

PATIENCE_S = 10.0
"""Timeout for connecting to a dask scheduler [s]."""
ADDRESS = re.compile(r"(?:(?:tcp|tls)://)?(?:\[[0-9A-Fa-f:.]+\]|[^\s/:\[\]]+):\d{1,5}")


@contextmanager
def on_cluster(address: str) -> Iterator[None]:
    """Context in which `optimizer.parallel.as_done` runs its items on the workers of a dask cluster.

    Items are plain values with their own random streams, so results are identical to those of one process.

    Args:
        address: address of the scheduler, such as ``tcp://10.0.0.5:8786``.

    Raises:
        MissingExtraError: dask.distributed is not installed.
        SpecError: no scheduler answers at the address, or its workers have another version.
    """
    try:
        from distributed import Client
    except ModuleNotFoundError:
        raise MissingExtraError("dask.distributed", "cluster") from None
    from joblib import parallel_config

    if not ADDRESS.fullmatch(address):
        raise SpecError(f"cluster: {address!r} is not the address of a scheduler; give tcp://HOST:PORT")
    try:
        client = Client(address, timeout=PATIENCE_S, set_as_default=False)
    except OSError:
        raise SpecError(
            f"cluster: no scheduler answers at {address} within {PATIENCE_S:g} s; start one: 'dask scheduler'"
        ) from None
    with client:
        _check_workers(client, address)
        with parallel_config("dask", client=client):
            yield


def _check_workers(client: "Client", address: str) -> None:
    """Reject a cluster without workers, or with workers of another version, whose results could differ."""

    def installed() -> str | None:  # nested: pickled by value, for workers without this package
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("inferplan")
        except PackageNotFoundError:
            return None

    mine = installed()
    versions: dict[str, str | None] = client.run(installed)
    if not versions:
        raise SpecError(f"cluster: {address} has no workers; start some with 'dask worker {address}'")
    for worker, theirs in sorted(versions.items()):
        if theirs != mine:
            has = "does not have inferplan" if theirs is None else f"has inferplan {theirs}"
            raise SpecError(f"cluster: the worker {worker} {has}; install inferplan {mine} there")
