"""Read a config.json: each fact under any of its names, or an error that names the key."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from optimizer.errors import SpecError


@dataclass(frozen=True, slots=True)
class Config:
    """Non-null values of a config.json."""

    values: Mapping[str, Any]
    kind: str
    """`model_type` in lower case."""
    source: str
    """The file, for messages."""

    REQUIRED: ClassVar[Any] = object()
    """Sentinel: the key has no default."""

    def get(self, *names: str, default: Any = REQUIRED) -> Any:
        """Return the value of the first key that the config has.

        Raises:
            SpecError: the config has none of the keys, and there is no default.
        """
        for name in names:
            if name in self.values:
                return self.values[name]
        if default is Config.REQUIRED:
            raise SpecError(f"{self.source}: {names[0]}: missing; this key is required")
        return default

    def whole(self, *names: str, default: Any = REQUIRED) -> int | None:
        """Return the value of the first key that the config has, which must be an integer.

        Raises:
            SpecError: the config has none of the keys and there is no default, or the value is not an
                integer.
        """
        value = self.get(*names, default=default)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        name = next((name for name in names if name in self.values), names[0])
        raise SpecError(f"{self.source}: {name}: must be an integer, not {value!r}")

    def not_understood(self, name: str, value: object) -> SpecError:
        """Return the error for a value whose meaning an estimate would have to guess."""
        return SpecError(f"{self.source}: {name}: {str(value)[:60]!r} is not understood")
