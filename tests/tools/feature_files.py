"""Count files that name a feature elsewhere: ``python tests/tools/feature_files.py [NAME ...]``.

A file names a feature if it imports from the feature's folder, or if one of its identifiers is a field that
the feature adds to documents, or a section of plans with its documents. Words in strings and comments do not
count, nor do those in `ELSEWHERE`, `ELSEWHERE_IN` and the tables of features. With names, it lists the files;
``tests/data/feature_files.yaml`` has the reason for each.
"""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from parsed_sources import parsed  # noqa: E402

FEATURES = ROOT / "optimizer" / "features"
PLAN = ROOT / "optimizer" / "plan" / "document.py"
ELSEWHERE = {
    "place": "locations in documents",
    "split": "`str.split`",
    "deadline": "time limits",
    "caches": "KV caches",
    "versions": "versions of programs",
    "shares": "shares of an iteration",
    "slice": "slices of sequences",
    "shapes": "request shapes of loads",
    "memory_gb": "memory of accelerators",
    "handover": "handovers in queue models",
    "links": "links of pages",
}
"""Identifiers that mostly mean something else, and what."""
_LEFT = "load that a server can take in addition, not the headroom that it requires"
_TREE, _STATIONS = "nodes of a tree", "nodes of a network of queues"
_CLUSTER = "nodes of a Kubernetes cluster"
_HTTP, _BY_THE_HOUR = "routes of the HTTP server", "cards that are rented by the hour"
_REPLICAS = "replicas that a request passes"
ELSEWHERE_IN = {
    ("nodes", "optimizer/solvers/branch_and_price/nodes.py"): _TREE,
    ("nodes", "optimizer/solvers/branch_and_price/search.py"): _TREE,
    ("nodes", "optimizer/queueing/bulk/answers.py"): _STATIONS,
    ("nodes", "optimizer/queueing/bulk/steady.py"): _STATIONS,
    ("nodes", "optimizer/queueing/bulk/tandem.py"): _STATIONS,
    ("nodes", "optimizer/render/cluster_table.py"): _CLUSTER,
    ("nodes", "optimizer/render/deployments.py"): _CLUSTER,
    ("nodes", "optimizer/render/manifests.py"): _CLUSTER,
    ("headroom_share", "optimizer/studies/explanation/explanation_document.py"): _LEFT,
    ("headroom_share", "optimizer/render/explanation_sections.py"): _LEFT,
    ("headroom_share", "optimizer/render/server_sections.py"): _LEFT,
    ("routes", "rest_server/v1/v1_routes.py"): _HTTP,
    ("routes", "rest_server/loop/serving.py"): _HTTP,
    ("routes", "optimizer/simulation/pools.py"): _REPLICAS,
    ("routes", "optimizer/simulation/requests.py"): _REPLICAS,
    ("rented", "optimizer/starters/facts.py"): _BY_THE_HOUR,
    ("rented", "optimizer/starters/slices.py"): _BY_THE_HOUR,
    ("rented", "optimizer/starters/starter_document.py"): _BY_THE_HOUR,
    ("rented", "optimizer/studies/horizon/horizon.py"): _BY_THE_HOUR,
    ("rented", "optimizer/studies/horizon/horizon_document.py"): _BY_THE_HOUR,
    ("rented", "optimizer/studies/horizon/horizon_figure.py"): _BY_THE_HOUR,
    ("rented", "optimizer/render/horizon_sections.py"): _BY_THE_HOUR,
}
"""Identifiers that mean something else in one file, and what."""


def features() -> list[str]:
    """Return the names of all features."""
    return sorted(path.name for path in FEATURES.iterdir() if (path / "__init__.py").exists())


def names_of(feature: str) -> set[str]:
    """Return the fields of a feature, and its sections of plans."""
    found, documents = set(), set()
    for name in ("fields", "uses"):
        path = FEATURES / feature / f"{name}.py"
        for node in parsed(path).body if path.exists() else ():
            if isinstance(node, ast.ClassDef) and name == "uses":
                documents.add(node.name)
            elif isinstance(node, ast.ClassDef) and node.name.endswith(("Field", "Fields")):
                found |= set(_fields(node))
    (plan,) = (node for node in parsed(PLAN).body if isinstance(node, ast.ClassDef) and node.name == "Plan")
    for node in plan.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            words = {item.id for item in ast.walk(node.annotation) if isinstance(item, ast.Name)}
            found |= {node.target.id} if words & documents else set()
    return found - ELSEWHERE.keys()


def files_naming(feature: str) -> dict[str, list[str]]:
    """Return the files that name a feature outside its folder, with these names."""
    found, names = {}, names_of(feature)
    for package in ("optimizer", "rest_server"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if (FEATURES / feature) not in path.parents and path.parent != FEATURES:
                file = str(path.relative_to(ROOT))
                used = {name for name in names & _identifiers(path) if (name, file) not in ELSEWHERE_IN}
                found[file] = sorted(used | _imported(path, feature))
    return {path: used for path, used in found.items() if used}


def _fields(document: ast.ClassDef) -> Iterator[str]:
    for node in document.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def _imported(path: Path, feature: str) -> set[str]:
    home = f"optimizer.features.{feature}."
    return {name for module, name in _imports(path) if f"{module}.".startswith(home)}


@cache
def _imports(path: Path) -> list[tuple[str, str]]:
    nodes = (node for node in ast.walk(parsed(path)) if isinstance(node, ast.ImportFrom))
    return [(node.module or "", alias.name) for node in nodes for alias in node.names]


@cache
def _identifiers(path: Path) -> frozenset[str]:
    found = set()
    for node in ast.walk(parsed(path)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                found.add(name)
            case ast.keyword(arg=str(name)):
                found.add(name)
    return frozenset(found)


def main() -> None:
    """Print the number of files for each feature, or the files of the named ones."""
    for feature in sys.argv[1:] or features():
        found = files_naming(feature)
        print(f"{feature:14} {len(found):3} files")
        for path, names in found.items() if sys.argv[1:] else ():
            print(f"  {path}: {', '.join(names)}")


if __name__ == "__main__":
    main()
