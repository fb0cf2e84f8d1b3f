"""The two clients of the service: one blocks until a response arrives, the other is for asyncio."""

from asyncio import sleep as pause
from itertools import count
from time import sleep
from types import TracebackType
from typing import Any, Literal, Self

from rest_server.client.calls import Answer, Call
from rest_server.client.methods import Methods
from rest_server.client.sending import EXTRA, ClientSettings, RetryDelay, httpx_request, outcome
from rest_server.http_client import http_module


class _Client(Methods):
    """Base of the clients for a service at an address; their errors are those of `rest_server.client`."""

    _http_class: str
    """Name of the httpx2 class that sends the requests."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = 60.0,
        retries: int = 2,
        transport: Any = None,
    ) -> None:
        """Set up the client; nothing is sent yet.

        Args:
            url: address of the service, such as ``http://127.0.0.1:8080``.
            api_key: API key that is sent with every request; printable ASCII characters without spaces.
            timeout_s: time limit for a response [s].
            retries: number of further attempts if the service is busy or a connection breaks.
            transport: httpx2 transport, such as its ``ASGITransport``; None selects the network.

        Raises:
            MissingExtraError: httpx2 is not installed.
            SpecError: the URL, the key or the time limit is invalid.
        """
        httpx = http_module(EXTRA)
        self._settings = ClientSettings(url, api_key, timeout_s, retries)
        self._http = getattr(httpx, self._http_class)(**self._settings.for_httpx(), transport=transport)
        self._transport_errors: tuple[type[Exception], ...] = (httpx.RequestError,)


class Client(_Client):
    """Client whose methods block until the response arrives."""

    blocks: Literal[True] = True
    _http_class = "Client"

    def __enter__(self) -> Self:
        """Return the client itself, for use in a ``with`` statement."""
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(self, call: Call[Answer]) -> Answer:
        """Send a request, with retries if they can help, and return the value of its response."""
        for attempt in count():
            try:
                result: Any = self._http.request(**httpx_request(call))
            except self._transport_errors as failed:
                result = failed
            answer = outcome(call, result, attempt, self._settings)
            if not isinstance(answer, RetryDelay):
                return answer
            sleep(answer.s)
        raise AssertionError


class AsyncClient(_Client):
    """Client for asyncio, whose methods are awaited."""

    blocks: Literal[False] = False
    _http_class = "AsyncClient"

    async def __aenter__(self) -> Self:
        """Return the client itself, for use in an ``async with`` statement."""
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def send(self, call: Call[Answer]) -> Answer:
        """Send a request, with retries if they can help, and return the value of its response."""
        for attempt in count():
            try:
                result: Any = await self._http.request(**httpx_request(call))
            except self._transport_errors as failed:
                result = failed
            answer = outcome(call, result, attempt, self._settings)
            if not isinstance(answer, RetryDelay):
                return answer
            await pause(answer.s)
        raise AssertionError
