"""Questions at a terminal, for the facts of `init` that no flag gave; asked one after the other."""

from collections.abc import Callable, Sequence
from typing import Any

from optimizer.errors import SpecError


class Asker:
    """Asks at a terminal; whoever leaves a question ends the command."""

    def __init__(self) -> None:
        import questionary  # slow to import, and needed by nobody else

        self._library: Any = questionary

    def choose(self, question: str, choices: dict[str, str]) -> str:
        """Ask for one of some names, each with what it means."""
        items = [
            self._library.Choice(f"{name:<16} {text}" if text else name, value=name)
            for name, text in choices.items()
        ]
        return str(self._answer(self._library.select(question, choices=items)))

    def several(self, question: str, names: Sequence[str]) -> list[str]:
        """Ask for names, one after the other, until an empty answer; each is completed while it is typed."""
        found: list[str] = []
        known = {name.lower(): name for name in names}

        def check(text: str) -> bool | str:
            if not text and found:
                return True
            return text.lower() in known or text.endswith(".json") or "not known; Tab shows the names"

        while True:
            words = question if not found else f"Another one? Enter for no more than {', '.join(found)}"
            asked = self._library.autocomplete(words, choices=list(names), validate=check, ignore_case=True)
            text = str(self._answer(asked)).strip()
            if not text:
                return found
            found.append(known.get(text.lower(), text))

    def text(self, question: str, check: Callable[[str], object], default: str = "") -> str:
        """Ask for text until `check` takes it; what it raises as a ValueError is shown."""

        def valid(text: str) -> bool | str:
            try:
                check(text)
            except ValueError as error:
                return str(error)
            return True

        return str(self._answer(self._library.text(question, default=default, validate=valid))).strip()

    def _answer(self, question: Any) -> object:
        found = question.ask()
        if found is None:
            raise SpecError("nothing was written: the questions were not finished")
        return found
