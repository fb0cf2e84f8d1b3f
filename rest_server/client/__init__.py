"""Clients of the service, blocking and for asyncio, typed with the service's documents.

>>> from rest_server.client import Client
>>> with Client("http://127.0.0.1:8080", api_key="KEY") as service:  # doctest: +SKIP
...     plan = service.plan("specs/small")

Both need ``httpx2`` (``pip install -e '.[client]'`` in a clone of the repository). Their errors::

    InferplanError
    ├── UnreachableError          no connection to the service, or one that broke
    │   └── ResponseTimeoutError  no answer within the time limit
    └── ServiceError              an answer with an error status, or one that cannot be read
        ├── InvalidRequestError   400, 413, 422: invalid request or document (also a SpecError)
        ├── AuthError             401, 403: no API key, an unknown one, or one without the scope
        ├── NotFoundError         404: the requested item does not exist
        ├── ConflictError         409, 412: the fleet is at another revision
        └── UnavailableError      503, 504: no free worker, a stale plan, or the time ran out
"""

from optimizer.jobs.study import FLEET
from rest_server.client.clients import AsyncClient, Client
from rest_server.client.errors import (
    AuthError,
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    ResponseTimeoutError,
    ServiceError,
    UnavailableError,
    UnreachableError,
)

__all__ = [
    "FLEET",
    "AsyncClient",
    "AuthError",
    "Client",
    "ConflictError",
    "InvalidRequestError",
    "NotFoundError",
    "ResponseTimeoutError",
    "ServiceError",
    "UnavailableError",
    "UnreachableError",
]

BusyError = UnavailableError
KeyRefusedError = AuthError
NoAnswerInTimeError = ResponseTimeoutError
NotThereError = NotFoundError
RefusedRequestError = InvalidRequestError
"""Earlier names of the errors, kept for existing programs."""
