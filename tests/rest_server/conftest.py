"""A stateful service with an empty fleet, for the tests of routes that keep one."""

from collections.abc import Iterator

import pytest
from api_clients import client, state_of
from fastapi.testclient import TestClient

from rest_server.state import HeldFleet


@pytest.fixture(scope="module")
def running_service() -> Iterator[TestClient]:
    """A stateful service, whose fleet the tests of a file share."""
    with client(stateful=True) as found:
        yield found


@pytest.fixture
def service(running_service: TestClient) -> TestClient:
    """A stateful service whose fleet is empty."""
    state_of(running_service).held = HeldFleet(instance="run")
    return running_service
