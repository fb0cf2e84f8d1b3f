"""HTTP requests of the control loop's sources of measurements, and the files with their secrets."""

from collections.abc import Mapping
from pathlib import Path

import httpx2

TIMEOUT_S = 5.0
"""Time limit of a request [s]."""


class SourceError(Exception):
    """Raised when a source or a planner does not respond, or its response cannot be read."""


def secret_in(path: Path | None, name: str) -> str | None:
    """Return the text of a file with a token or a key; None without a file.

    Raises:
        SourceError: the file cannot be read.
    """
    try:
        return None if path is None else path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path}: the {name} cannot be read: {error}") from None


class Fetcher:
    """HTTP client that keeps its connections open."""

    def __init__(self) -> None:
        self._client = httpx2.Client(timeout=TIMEOUT_S, follow_redirects=False)

    def text(
        self, url: str, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> str:
        """Return the body of a response, which must have status 200.

        Args:
            url: the address.
            form: fields of a form to send by POST; None sends a GET request.
            headers: headers of the request.

        Raises:
            SourceError: there is no such response.
        """
        method = "GET" if form is None else "POST"
        try:
            answer = self._client.request(method, url, data=form and dict(form), headers=dict(headers or {}))
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise SourceError(f"{url}: {error or type(error).__name__}") from None
        if answer.status_code != 200:
            raise SourceError(f"{url}: status {answer.status_code}: {answer.text[:200].strip()}")
        return answer.text

    def close(self) -> None:
        """Close all connections."""
        self._client.close()
