"""API keys and their scopes.

Keys come from files, one per line: ``KEY`` with all scopes, or ``SCOPES KEY`` with scopes of read, solve and
write separated by commas; ``#`` starts a comment. A changed file is read again at the next request. Only
SHA-256 hashes are stored, and each is compared in constant time.
"""

import hashlib
import hmac
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from optimizer.errors import SpecError, reason_of
from optimizer.jobs.table import STUDIES
from rest_server.description import OPEN_PAGES
from rest_server.errors import error_response
from rest_server.header_values import unsendable_at
from rest_server.logs import SERVICE

POLICY_VIOLATION = 1008
"""WebSocket close code for rejected connections."""
OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Paths that need no API key, under any host name; pages without fleet data need no key either."""
MAX_FILE_BYTES = 2**20
"""Maximum size of a key file [bytes]."""
MIN_KEY = 16
"""Minimum length of a key without a warning [characters]."""
_SOLVING = frozenset(
    {
        "/v1/plan", "/v1/candidates", "/v1/analyze", "/v1/size",
        "/v1/compare", *(f"/v1/{name}" for name in STUDIES),
        "/v1/fleet/compare", *(f"/v1/fleet/{name}" for name in STUDIES),
        "/optimizeOne", "/optimize", "/solve", "/target",
    }
)  # fmt: skip
"""POST routes that only compute from their body, and change nothing."""
_OWN_PAGES = frozenset({b"none", b"same-origin"})
"""Accepted values of ``Sec-Fetch-Site``. Browsers send this header. A local service, whose GETs can change
its fleet, must not obey arbitrary pages that its user opens. Other clients do not send it. Browsers without
it send ``Origin``, at least if a page could read the response.
"""
_CHANGING = ("add", "remove", "apply")
"""Prefixes of llm-inferno's GET routes that change the fleet."""


class KeyScope(StrEnum):
    """Scope of an API key: what requests with the key can do."""

    read = "read"
    solve = "solve"
    write = "write"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key, of which only the hash is stored."""

    digest: bytes
    """SHA-256 hash of the key."""
    scopes: frozenset[KeyScope]
    """Scopes of the key."""

    @property
    def label(self) -> str:
        """Short identifier of the key for logs, from which the key cannot be derived."""
        return self.digest.hex()[:8]


def needed_scope(method: str, path: str, writing: Collection[str]) -> KeyScope:
    """Return the scope that a request needs.

    Args:
        method: HTTP method.
        path: path of the URL, decoded.
        writing: routes of the reference that solve and also change the fleet.
    """
    if method in {"GET", "HEAD", "OPTIONS"}:
        first = path.strip("/").lower()
        return KeyScope.write if first.startswith(_CHANGING) else KeyScope.read
    solves = method == "POST" and (path in _SOLVING or path.startswith("/queue/"))
    return KeyScope.solve if solves and path not in writing else KeyScope.write


class KeyFiles:
    """API keys in a set of files; changed files are read again."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Read all key files.

        Raises:
            SpecError: a file cannot be read, a line is not a valid key, or there is no key at all.
        """
        self._paths = tuple(paths)
        self._read = {path: (_mark(path), tuple(_keys(path))) for path in self._paths}
        if self._paths and not any(keys for _, keys in self._read.values()):
            names = ", ".join(map(str, self._paths))
            raise SpecError(f"{names}: there is no API key, so every request would be rejected; add a line")

    @property
    def required(self) -> bool:
        """Whether requests need an API key, because there are key files."""
        return bool(self._paths)

    def find(self, given: bytes) -> ApiKey | None:
        """Return the API key that equals the given text; None if it is unknown."""
        digest = hashlib.sha256(given).digest()
        api_key = None
        for path in self._paths:
            for key in self._current(path):
                if hmac.compare_digest(key.digest, digest):
                    api_key = key if api_key is None else ApiKey(digest, api_key.scopes | key.scopes)
        return api_key

    def _current(self, path: Path) -> tuple[ApiKey, ...]:
        """Return the keys in a file; empty if it can no longer be read."""
        mark, (seen, keys) = _mark(path), self._read[path]
        if mark != seen:
            try:
                keys = tuple(_keys(path))
            except SpecError as error:
                keys = ()
                logging.getLogger(SERVICE).warning("%s; its keys are rejected until it is fixed", error)
            self._read[path] = mark, keys
        return keys


def _mark(path: Path) -> tuple[int, ...] | None:
    """Return a fingerprint of a file that changes with its content; None if the file does not exist."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino


def _keys(path: Path) -> Iterator[ApiKey]:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        problem = reason_of(error)
        raise SpecError(f"{path}: API keys cannot be read: {problem}") from None
    except ValueError:
        raise SpecError(f"{path}: API keys cannot be read: not UTF-8 text") from None
    if len(text) > MAX_FILE_BYTES:
        raise SpecError(f"{path}: over the limit of {MAX_FILE_BYTES >> 20} MiB for a file of API keys")
    for number, line in enumerate(text.split("\n"), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) > 2:  # the line is not shown because it might contain a key
            raise SpecError(f"{path}:{number}: give 'KEY' or 'SCOPES KEY', not {len(words)} words")
        names = words[0].split(",") if len(words) == 2 else list(KeyScope)
        unknown = [name for name in names if name not in set(KeyScope)]
        if unknown:
            raise SpecError(f"{path}:{number}: scopes are read, solve and write, separated by commas")
        position = unsendable_at(words[-1])
        if position is not None:
            raise SpecError(
                f"{path}:{number}: character {position} of the key cannot be sent in a header; "
                "use printable ASCII characters only"
            )
        if len(words[-1]) < MIN_KEY:
            logging.getLogger(SERVICE).warning(
                "%s:%d: a key of %d characters is easy to guess; use at least %d: openssl rand -hex 16",
                path, number, len(words[-1]), MIN_KEY,
            )  # fmt: skip
        yield ApiKey(hashlib.sha256(words[-1].encode()).digest(), frozenset(map(KeyScope, names)))


class AuthMiddleware:
    """Middleware that checks that requests are meant for this service and have the required API key."""

    def __init__(
        self,
        app: ASGIApp,
        keys: KeyFiles,
        writing: Collection[str],
        accepts_host: Callable[[str], bool],
        page: "PageAccess | None" = None,
    ) -> None:
        self._app = app
        self._keys = keys
        self._writing = writing
        self._accepts_host = accepts_host
        self._page = page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or respond with 421, 401 or 403; WebSockets are rejected before they open."""
        refusal = None
        if scope["type"] in {"http", "websocket"} and scope["path"] not in OPEN_PATHS:
            headers = dict(reversed(scope["headers"]))
            refusal = self._misdirected(scope, headers) or self._locked_out(scope, headers)
        if refusal is not None and scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
            return
        await (refusal or self._app)(scope, receive, send)

    def _misdirected(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Response | None:
        """Return the rejection of a browser request from another site's page or under a foreign host name.

        None if the request is accepted.
        """
        host = headers.get(b"host", b"").decode("latin-1")
        if host and not self._accepts_host(_host_name(host)):
            name = _host_name(host)[:100]
            detail = f"host name not allowed: {name!r}; see INFERPLAN_ALLOWED_HOSTS"
            return error_response(scope, 421, detail)
        followed = self._page is not None and self._page.is_followed(scope, headers)
        if _is_foreign(headers) and not followed:
            detail = "a page of another site made the browser send this request; it is rejected"
            return error_response(scope, 403, detail)
        return None

    def _locked_out(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Response | None:
        """Return the rejection of a request without a known key or without the required scope.

        None if accepted.
        """
        if not self._keys.required or _is_open(scope):
            return None
        given, page = given_key(headers), self._page
        if page is not None and page.contains(scope["path"]):
            return page.locked_out(scope, headers, self._keys, given)
        key = self._keys.find(given) if given else None
        if key is None:
            problem = "this is not a known API key" if given else "an API key is needed"
            challenge = {"WWW-Authenticate": 'Bearer realm="inferplan"'}
            detail = f"{problem}; send one in X-API-KEY, or as a bearer token"
            return error_response(scope, 401, detail, headers=challenge)
        scope.setdefault("state", {})["api_key"] = key.label
        needed = needed_scope(scope["method"], scope["path"], self._writing)
        if needed not in key.scopes:
            detail = f"the API key lacks the scope {needed.value!r}, which this request needs"
            return error_response(scope, 403, detail)
        return None


def _is_open(scope: Scope) -> bool:
    """Return whether a page needs no key because it is the same for all installations."""
    return scope["path"] in OPEN_PAGES and scope.get("method") in {"GET", "HEAD"}


class PageAccess(Protocol):
    """Interface of the access to the web page, for which browsers send a cookie instead of a header."""

    def contains(self, path: str) -> bool:
        """Return whether a path belongs to the web page."""

    def is_followed(self, scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
        """Return whether a request opens the web page through a link from another site."""

    def locked_out(
        self, scope: Scope, headers: Mapping[bytes, bytes], keys: KeyFiles, given: bytes
    ) -> Response | None:
        """Return the rejection of a request without a key that has the read scope; None if it is accepted."""


def _host_name(authority: str) -> str:
    """Return the host name in ``name:port`` or ``[address]:port``."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.partition(":")[0]


def _is_foreign(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a browser sent the request for a page of another site."""
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        return site not in _OWN_PAGES
    origin = headers.get(b"origin")
    return origin is not None and origin.partition(b"://")[2].lower() != headers.get(b"host", b"").lower()


def given_key(headers: Mapping[bytes, bytes]) -> bytes:
    """Return the API key in the headers of a request; empty if there is none.

    Args:
        headers: headers by lower-case name.
    """
    own = headers.get(b"x-api-key")
    if own is not None:
        return own.strip()
    kind, _, token = headers.get(b"authorization", b"").strip().partition(b" ")
    return token.strip() if kind.lower() == b"bearer" else b""
