"""Changes of entities on the reference's routes: find, add or replace, remove, reject."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from optimizer.errors import InferplanError, SpecError
from rest_server.compat.lenient import read_object
from rest_server.fleet import Entities
from rest_server.limits import check_size
from rest_server.settings import Settings

Changed = tuple[Entities, Any]
"""The entities after a change, and the answer."""
Change = Callable[[Entities], Changed]
"""A change of the state; it can be repeated if another fleet has arrived in the meantime."""


class WireRefusalError(InferplanError):
    """Raised when the reference answers a request with its own status and message."""

    def __init__(self, status: int, message: str, *, bare: bool = False) -> None:
        super().__init__(message)
        self.http_status = status
        self.body = message if bare else {"message": message}
        """Body of the answer: an object with the message, or on two routes only the message."""


def found(index: Mapping[str, Any], name: str, message: str) -> Any:
    """Return the item with a name.

    Raises:
        WireRefusalError: there is no such item; the answer is 404 with the message.
    """
    if name not in index:
        raise WireRefusalError(404, message)
    return index[name]


def with_items(entities: Entities, section: str, changed: Mapping[str, Any]) -> Entities:
    """Return the entities with some items of a section added or replaced."""
    changes: dict[str, Any] = {section: {**getattr(entities, section), **changed}}
    return replace(entities, **changes)


def without_item(entities: Entities, section: str, name: str) -> Entities:
    """Return the entities without one item of a section."""
    kept = {key: value for key, value in getattr(entities, section).items() if key != name}
    changes: dict[str, Any] = {section: kept}
    return replace(entities, **changes)


def echoed(items: Iterable[Any] | None, shape: Callable[[Any], Any]) -> list[Any] | None:
    """Return items as repeated in the answer to a write; null if there was no list."""
    return None if items is None else [shape(item) for item in items]


def spelled(raw: object) -> dict[str, Any]:
    """Return an object with lower-case keys and without nulls."""
    return {key.lower(): value for key, value in read_object(raw).items() if value is not None}


def check_fleet(entities: Entities, settings: Settings) -> None:
    """Reject a fleet that exceeds the size limits, even if it was sent in several requests.

    Raises:
        SpecError: a limit is exceeded; the message has the path, the number, the limit and the setting to
            raise.
    """
    check_size(entities.spec(), settings)
    if len(entities.models) > settings.max_models:  # models without profiles are in no document
        raise SpecError(f"models: there may be at most {settings.max_models:,}; remove some")
