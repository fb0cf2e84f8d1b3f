"""Reads and writes YAML by the rules of YAML 1.2, with limits on size.

``1e-9`` is a number, ``no`` is text, duplicate keys are errors, and aliases can expand only to a limited
size.
"""

import math
import re
from collections.abc import Callable
from functools import cache
from typing import Any

from optimizer.errors import SpecError

MAX_ENTRIES = 1_000_000
"""Maximum number of lines and commas in a document, which limits its size and the time to read it."""
MAX_DEPTH = 100
"""Maximum nesting depth; beyond it, the recursion of the YAML parser could overflow the stack."""
MAX_ALIASED_NODES = 300_000
"""Maximum number of values that the aliases of a document can add, counting keys and items."""

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\xa0\u2028\u2029\ufeff]")
"""Pattern for characters that must be escaped in double quotes."""


class YamlSyntaxError(SpecError):
    """Raised for text that is not YAML, with the place of the error."""

    def __init__(self, source: str, line: int, column: int, problem: str) -> None:
        """Describe the error.

        Args:
            source: name of the text.
            line: line of the error, from 1.
            column: column of the error, from 1.
            problem: what is wrong.
        """
        super().__init__(source, line, column, problem)
        self.source, self.position = source, (line, column)
        self.problem = f"not valid YAML: {problem}"

    def __str__(self) -> str:
        return f"{self.source}:{self.position[0]}:{self.position[1]}: {self.problem}"


def yaml_value(text: str, source: str) -> object:
    """Parse YAML text to plain values.

    Raises:
        SpecError: the text is not YAML, or exceeds a limit of size, depth or alias expansion.
    """
    import yaml  # slow to import, and JSON needs none of it

    if text.count("\n") + text.count(",") > MAX_ENTRIES:
        raise SpecError(f"{source}: more than {MAX_ENTRIES:,} lines and commas; use JSON")
    if _nested_too_deeply(text):
        raise SpecError(f"{source}: not supported: nested more than {MAX_DEPTH} deep")
    loader = _loader()(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return None
        _check_aliases(root, source)
        return loader.construct_document(root)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        parts = [getattr(error, name, None) for name in ("context", "problem", "reason")]
        problem = ", ".join(str(part).splitlines()[0] for part in parts if part)
        problem = problem or str(error).splitlines()[0]
        if mark is None:
            raise SpecError(f"{source}: not valid YAML: {problem}") from None
        raise YamlSyntaxError(source, mark.line + 1, mark.column + 1, problem) from None
    except RecursionError:
        raise SpecError(f"{source}: not valid YAML: nested too deeply") from None
    except ValueError:
        raise SpecError(f"{source}: not valid YAML: a number has too many digits") from None
    finally:
        loader.dispose()


def yaml_root(text: str) -> Any:
    """Return the root of YAML text as a PyYAML node, which states its position.

    Raises:
        SpecError: the text is not YAML.
    """
    import yaml

    loader = _loader()(text)
    try:
        return loader.get_single_node()
    except yaml.YAMLError as error:
        raise SpecError(f"not valid YAML: {str(error).splitlines()[0]}") from None
    finally:
        loader.dispose()


def _check_aliases(root: Any, source: str) -> None:
    """Check that the expansion of a document's aliases is limited.

    The nodes form a graph, in which an alias is the node of its anchor. Expanded sizes are summed from the
    leaves, each node once, so the time is linear in the text, not in the expansion.

    Raises:
        SpecError: the expansion is too large.
    """
    sizes: dict[int, int] = {}
    depths: dict[int, int] = {}
    opened: set[int] = set()
    stack = [root]
    while stack:
        node = stack[-1]
        here = id(node)
        parts = _parts(node)
        if here in sizes:
            stack.pop()
        elif here not in opened:
            opened.add(here)
            if any(id(part) in opened and id(part) not in sizes for part in parts):
                raise SpecError(f"{source}:{_place(node)}: not supported: an alias is inside its own anchor")
            stack += parts
        else:
            stack.pop()
            sizes[here] = 1 + sum(sizes[id(part)] for part in parts)
            depths[here] = 1 + max((depths[id(part)] for part in parts), default=0)
            if depths[here] > MAX_DEPTH:
                raise SpecError(f"{source}:{_place(node)}: not supported: nested more than {MAX_DEPTH} deep")
    if sizes[id(root)] > len(sizes) + MAX_ALIASED_NODES:
        raise SpecError(
            f"{source}: its aliases expand to more than {MAX_ALIASED_NODES:,} additional values; "
            "use fewer of them, or JSON"
        )


def _parts(node: Any) -> list[Any]:
    """Return the children of a node: the items of a list, or the keys and values of a mapping."""
    if node.id == "sequence":
        return list(node.value)
    return [part for pair in node.value for part in pair] if node.id == "mapping" else []


def _place(node: Any) -> str:
    return f"{node.start_mark.line + 1}:{node.start_mark.column + 1}"


def _nested_too_deeply(text: str) -> bool:
    """Return whether brackets, dashes on one line or indentation exceed the maximum depth."""
    depth = 0
    for bracket in re.finditer(r"[\[\]{}]", text):
        depth += 1 if bracket.group() in "[{" else -1
        if depth > MAX_DEPTH:
            return True
    return (
        re.search(rf"(?:[-?][ \t]+){{{MAX_DEPTH},}}|^ {{{5 * MAX_DEPTH},}}", text, re.MULTILINE) is not None
    )


def _rules() -> list[tuple[str, Any, list[str]]]:
    """Return the implicit types of the core schema of YAML 1.2: tag, pattern and first characters of each."""
    digits = list("-+0123456789")
    return [
        ("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
        ("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
        ("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]+$"), digits),
        (
            "tag:yaml.org,2002:float",
            re.compile(
                r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
                r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
            ),
            [*digits, "."],
        ),
        ("tag:yaml.org,2002:merge", re.compile(r"^<<$"), ["<"]),
    ]


@cache
def _loader() -> Any:
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  the attribute that PyYAML defines

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:  # noqa: FBT001, FBT002  PyYAML's signature
            seen: set[str] = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                    if key.value in seen:
                        raise yaml.constructor.ConstructorError(
                            None, None, f"key {key.value!r} occurs twice", key.start_mark
                        )
                    seen.add(key.value)
            return super().construct_mapping(node, deep=deep)

    for tag, pattern, first in _rules():
        Loader.add_implicit_resolver(tag, pattern, first)
    # Only the core types: other tags are errors.
    Loader.yaml_constructors = {
        None: base.yaml_constructors[None],
        **{
            f"tag:yaml.org,2002:{name}": base.yaml_constructors[f"tag:yaml.org,2002:{name}"]
            for name in ("null", "str", "seq", "map")
        },
        "tag:yaml.org,2002:bool": _constructor({"true": True, "false": False}.__getitem__),
        "tag:yaml.org,2002:int": _constructor(int),
        "tag:yaml.org,2002:float": _constructor(
            lambda text: float(text.replace(".inf", "inf").replace(".nan", "nan"))
        ),
    }
    return Loader


def _constructor(parse: Callable[[str], object]) -> Any:
    """Return a PyYAML constructor of scalars.

    Text that `parse` rejects becomes an error with its position.
    """
    import yaml

    def construct(loader: Any, node: Any) -> object:
        text = loader.construct_scalar(node)
        try:
            return parse(text.lower())
        except KeyError:
            raise yaml.constructor.ConstructorError(
                None, None, f"not a value: {text!r}", node.start_mark
            ) from None

    return construct


def yaml_text(raw: object) -> str:
    """Write plain values as YAML."""
    import yaml

    return yaml.dump(raw, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=120)


def yaml_flow(raw: object) -> str:
    """Write plain values as YAML on one line."""
    import yaml

    text: str = yaml.dump(
        raw, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=math.inf, default_flow_style=True
    )
    return text.removesuffix("\n...\n").rstrip("\n")


@cache
def _dumper() -> Any:
    """Return a PyYAML dumper that quotes text which YAML 1.1 or 1.2 would read as another type."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  PyYAML's signature
            return True

    def represent(dumper: Any, text: str) -> Any:
        style = '"' if _UNPRINTABLE.search(text) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent)
    for tag, pattern, first in _rules():
        Dumper.add_implicit_resolver(tag, pattern, first)
    return Dumper
