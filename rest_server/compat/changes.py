"""Changes of the fleet's items on llm-inferno's routes: find, add or replace, remove, reject."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from optimizer.errors import InferplanError, SpecError
from rest_server.compat.lenient import read_object
from rest_server.fleet import Entities
from rest_server.limits import check_size
from rest_server.settings import Settings

Changed = tuple[Entities, Any]
"""The items of the fleet after a change, and the body of the response."""
Change = Callable[[Entities], Changed]
"""A change of the fleet, as a function; it can be repeated if the fleet was replaced in the meantime."""


class WireRefusalError(InferplanError):
    """Raised when a request must get the status and message with which llm-inferno rejects it."""

    def __init__(self, status: int, message: str, *, bare: bool = False) -> None:
        super().__init__(message)
        self.http_status = status
        self.body = message if bare else {"message": message}
        """Body of the response: an object with the message, or on two routes only the message."""


def item_of(index: Mapping[str, Any], name: str, message: str) -> Any:
    """Return the item with a name.

    Raises:
        WireRefusalError: there is no such item; the answer is 404 with the message.
    """
    if name not in index:
        raise WireRefusalError(404, message)
    return index[name]


def echoed(items: Iterable[Any] | None, shape: Callable[[Any], Any]) -> list[Any] | None:
    """Return items in the format in which the response to a write repeats them.

    None if the body had no list.
    """
    return None if items is None else [shape(item) for item in items]


def spelled(raw: object) -> dict[str, Any]:
    """Return a JSON object with lower-case keys and without null values."""
    return {key.lower(): value for key, value in read_object(raw).items() if value is not None}


def check_fleet(entities: Entities, settings: Settings) -> None:
    """Check that a fleet does not exceed the size limits, even if it was sent in several requests.

    Raises:
        SpecError: a limit is exceeded; the message has the path, the number, the limit and the setting to
            raise.
    """
    check_size(entities.spec(), settings)
    if len(entities.models) > settings.max_models:  # models without profiles are in no document
        raise SpecError(f"models: there may be at most {settings.max_models:,}; remove some")
