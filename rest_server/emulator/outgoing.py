"""HTTP requests of the emulator's clients, which block until the response has arrived."""

import urllib.error
import urllib.request
from collections.abc import Mapping


def response_to(
    method: str, url: str, content: bytes | None, headers: Mapping[str, str], timeout_s: float
) -> bytes:
    """Send a request, and return the body of the response.

    Args:
        method: HTTP method.
        url: the address.
        content: body of the request; None for none.
        headers: headers of the request.
        timeout_s: maximum time to wait for a part of the response [s].

    Raises:
        OSError: there is no response in time, or it is an error.
    """
    request = urllib.request.Request(url, content, dict(headers), method=method)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310
            response: bytes = answer.read()
            return response
    except urllib.error.HTTPError as error:
        error.close()  # otherwise its connection stays open
        raise
    except urllib.error.URLError as error:
        raise error.reason if isinstance(error.reason, OSError) else error from None
