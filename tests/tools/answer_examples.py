"""Record an answer of each route for OpenAPI: ``python tests/tools/answer_examples.py``.

The requests are the examples of bodies in `rest_server.v1.examples`, to a service that keeps their fleet.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

from fastapi.testclient import TestClient

from rest_server.app import create_app
from rest_server.description import ANSWERS
from rest_server.settings import Settings
from rest_server.v1.examples import SERVER

ITEMS = {
    "service-classes": "Premium", "servers": SERVER["name"], "routes": "chat", "accelerators": "A100",
    "capacity": "A100", "models": "llama_8b", "targets": SERVER["name"], "plans": "3",
}  # fmt: skip
"""Name of the item in paths, by the part of the path before it."""
QUERIES: dict[str, Any] = {
    "memory": {"model": "llama-3.1-8b", "accelerators": "H100"},
    "simulate": {"requests": 500},
    "sweep": {"vary": ["load=0.5,1"]},
    "horizon": {"factors": [0.5, 1]},
    "figure": {"kind": "targets"},
    "report": {"brief": True},
}
"""Query parameters by the last part of the path."""
SKIPPED = ("/metrics", "/v1/routes", "/v1/fleet/")
"""Starts of paths without an example of their own: studies of a fleet have those of the same study."""


def path_of(path: str) -> str:
    """Return a path with the names of items."""
    parts = path.split("/")
    return "/".join(
        part if not part.startswith("{") else "A100" if part == "{accelerator}" else ITEMS[parts[i - 1]]
        for i, part in enumerate(parts)
    )


def requests_of(paths: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield method, path and body of an example of each operation; the fleet and its loads come first."""
    operations = [(path, method, paths[path][method]) for path in paths for method in paths[path]]
    first = {("/v1/fleet", "put"): 0, ("/v1/loads", "post"): 1}
    for path, method, operation in sorted(operations, key=lambda item: first.get(item[:2], 2)):
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        examples = [each["value"] for each in content.get("examples", {}).values()]
        if method != "delete" and not path.startswith(SKIPPED):
            yield method, path, examples[0] if examples else None


def recorded() -> dict[str, Any]:
    """Return the answers of all routes, by method and path."""
    app = create_app(Settings(stateful=True))
    found = {}
    with TestClient(app, base_url="http://localhost") as client:
        for method, path, body in requests_of(app.openapi()["paths"]):
            query = QUERIES.get(path.rpartition("/")[2])
            answer = client.request(method, path_of(path), json=body, params=query)
            assert answer.is_success, (method, path, answer.text)
            found[f"{method} {path}"] = answer.json()
    return found


if __name__ == "__main__":
    ANSWERS.write_text(json.dumps(recorded(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.stdout.write(f"{ANSWERS}\n")
