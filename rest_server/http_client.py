"""The HTTP client httpx2, which is installed with the extras that send requests."""

import re
from types import ModuleType

from optimizer.errors import MissingExtraError


def http_module(extra: str) -> ModuleType:
    """Import and return httpx2.

    Args:
        extra: the extra of the package that installs it.

    Raises:
        MissingExtraError: httpx2 is not installed.
    """
    try:
        import httpx2
    except ImportError:
        raise MissingExtraError("httpx2", extra) from None
    return httpx2


def transport_reason(error: Exception) -> str:
    """Return why a request got no response, in lower case and without the number of the system's error."""
    text = re.sub(r"^\[errno -?\d+\] ", "", str(error).lower())
    return text or ("timed out" if "Timeout" in type(error).__name__ else type(error).__name__)
