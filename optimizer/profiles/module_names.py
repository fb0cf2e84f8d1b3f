"""Matches names of modules with the patterns by which checkpoints list them."""

import re
from collections.abc import Sequence

from optimizer.errors import SpecError
from optimizer.profiles.config_keys import yaml_table

_PREFIXES = ("model.", "model.language_model.", "language_model.model.", "backbone.", "")
_LAYER = re.compile(r"layers\.(\d+)")
_OUTER = re.compile(
    r"^(?:model\.|language_model\.|backbone\.|transformer\.|thinker\.|text_model\.|decoder\.)+"
)


class ModulePatterns:
    """A list of patterns of module names: names, globs and regular expressions (``re:``)."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = {pattern: _below_the_decoder(pattern) for pattern in patterns}
        self._exact = {
            name for name in self._patterns.values() if "*" not in name and not name.startswith("re:")
        }
        self._compiled: dict[str, list[tuple[re.Pattern[str], str]]] = {}
        self._seen: set[str] = set()
        self._names: set[str] = set()
        for name in set(self._patterns.values()) - self._exact:
            layer = _LAYER.match(name)
            self._compiled.setdefault(layer[1] if layer else "", []).append((_expression(name), name))

    def match(self, name: str) -> bool:
        """Return whether any pattern matches a module or a part that contains it."""
        if not self._patterns:
            return False
        parts = name.split(".")
        runs = {".".join(parts[i:j]) for i in range(len(parts)) for j in range(i + 1, len(parts) + 1)}
        self._names |= runs
        hits = runs & self._exact
        layer = parts[1] if parts[0] == "layers" else ""
        for key in {"", layer}:
            for expression, pattern in self._compiled.get(key, ()):
                prefixes = _PREFIXES if pattern.startswith("re:") else ("",)
                if any(expression.match(prefix + name) for prefix in prefixes):
                    hits.add(pattern)
        self._seen |= hits
        return bool(hits)

    def check(self, place: str, layers: int) -> None:
        """Check the patterns that have matched no module so far.

        Args:
            place: location of the patterns, for messages.
            layers: number of layers; those beyond are for speculative decoding.

        Raises:
            SpecError: such a pattern is not for small modules or for modules outside of the decoder.
        """
        small = re.compile(yaml_table("quantisation.yaml")["small"].replace(" ", ""))
        anywhere = {_LAYER.sub("", name) for name in self._names}
        for pattern, name in self._patterns.items():
            layer = _LAYER.match(name)
            beyond = layer is not None and int(layer[1]) >= layers
            known = name in self._seen or _LAYER.sub("", name) in anywhere  # other layers have it
            if not known and not beyond and not small.search(pattern.lower()):
                raise SpecError(f"{place}: {pattern[:80]!r} names no module of this model")


def _expression(name: str) -> re.Pattern[str]:
    """Compile a glob, whose wildcards match parts between dots, or a regular expression."""
    if not name.startswith("re:"):
        glob = re.sub(r"(\d)\\\*", r"\1(?!\\d).*", re.escape(name)).replace(r"\*", ".*")
        return re.compile(rf"(?:.*\.)?{glob}(?:\..*)?$")
    try:
        return re.compile(name[3:])
    except re.error as error:
        raise SpecError(f"quantization_config: {name[:60]!r} is not a regular expression: {error}") from None


def _below_the_decoder(pattern: str) -> str:
    """Return a pattern relative to the decoder, with the module names of this package."""
    if pattern.startswith("re:"):
        return pattern
    leaves = yaml_table("quantisation.yaml")["leaves"]
    name = re.sub(r"experts\.\d+", "experts.0", _OUTER.sub("", pattern))
    return ".".join(leaves.get(part, part) for part in name.split("."))
