"""List what a release promises to keep: ``python tests/tools/promise.py`` writes ``tests/data/promise.json``.

The file lists the keys of documents and plans with their paths, routes, exit codes and public names.
Run it when something is added; what a release has promised may only vanish with a new major version.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optimizer
from optimizer import Plan
from optimizer.cli.main import EXIT_CODES
from optimizer.schema import SystemSpec
from rest_server.app import create_app
from rest_server.settings import Settings

FILE = Path(__file__).parents[1] / "data" / "promise.json"


def keys(schema: dict[str, Any]) -> list[str]:
    """Return the paths of all keys in the instances of a JSON schema, such as ``servers[].name``."""
    return sorted({*_keys(schema, schema["$defs"], "", ())})


def _keys(schema: dict[str, Any], known: dict[str, Any], path: str, above: tuple[str, ...]) -> Iterator[str]:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in above:
            yield from _keys(known[name], known, path, (*above, name))
    for part in ("anyOf", "oneOf", "allOf"):
        for choice in schema.get(part, ()):
            yield from _keys(choice, known, path, above)
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        yield here
        yield from _keys(field, known, here, above)
    for part, mark in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(schema.get(part), dict):
            yield from _keys(schema[part], known, path + mark, above)


def promise() -> dict[str, list[str]]:
    """Return everything that is promised, sorted."""
    paths = create_app(Settings()).openapi()["paths"]
    return {
        "documents": keys(SystemSpec.model_json_schema(by_alias=True)),
        "plans": keys(Plan.model_json_schema(by_alias=True, mode="serialization")),
        "routes": sorted(f"{method.upper()} {path}" for path, item in paths.items() for method in item),
        "exit codes": sorted(map(str, EXIT_CODES)),
        "names": sorted(optimizer.__all__),
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(promise(), indent=1) + "\n", "utf-8")
