"""Prompts at a terminal for the facts of `init` that no flag gives, one after the other."""

from collections.abc import Callable, Sequence
from typing import Any

from optimizer.errors import SpecError

_NAME_ONE = "name one; Tab shows the names"


class Prompter:
    """Prompts at a terminal; leaving a prompt ends the command."""

    def __init__(self) -> None:
        import questionary  # slow to import, and used only here

        self._library: Any = questionary

    def choose(self, question: str, choices: dict[str, str]) -> str:
        """Prompt for one of some names, each shown with its meaning."""
        items = [
            self._library.Choice(f"{name:<16} {text}" if text else name, value=name)
            for name, text in choices.items()
        ]
        return str(self._answer(self._library.select(question, choices=items)))

    def one(self, question: str, names: Sequence[str], check: Callable[[str], object]) -> str:
        """Prompt for a name, with completion, until `check` accepts it; `check` raises the error to show."""
        return self._name(question, names, lambda text: _problem(text, check) if text else _NAME_ONE)

    def several(self, question: str, names: Sequence[str], check: Callable[[str], object]) -> list[str]:
        """Prompt for names, one after the other as in `one`, until an empty input."""
        found: list[str] = []

        def problem(text: str) -> str | None:
            if not text:
                return None if found else _NAME_ONE
            return "already chosen" if text in found else _problem(text, check)

        while True:
            words = question if not found else f"Another one? Enter for no more than {', '.join(found)}"
            text = self._name(words, names, problem)
            if not text:
                return found
            found.append(text)

    def _name(self, question: str, names: Sequence[str], problem: Callable[[str], str | None]) -> str:
        known = {name.lower(): name for name in names}

        def valid(text: str) -> bool | str:
            return problem(known.get(text.strip().lower(), text.strip())) or True

        asked = self._library.autocomplete(question, choices=list(names), validate=valid, ignore_case=True)
        text = str(self._answer(asked)).strip()
        return known.get(text.lower(), text)

    def text(self, question: str, check: Callable[[str], object], default: str = "") -> str:
        """Prompt for text until `check` accepts it; `check` raises the error to show."""

        def valid(text: str) -> bool | str:
            return _problem(text, check) or True

        return str(self._answer(self._library.text(question, default=default, validate=valid))).strip()

    def _answer(self, question: Any) -> object:
        found = question.ask()
        if found is None:
            raise SpecError("nothing was written: the questions were not finished")
        return found


def _problem(text: str, check: Callable[[str], object]) -> str | None:
    """Return the error of a check for a text; None if it passes."""
    try:
        check(text)
    except (ValueError, SpecError) as error:
        return str(error)
    return None
