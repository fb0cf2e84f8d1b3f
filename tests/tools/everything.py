"""The five systems of the samples as one document; run it to write ``specs/everything``."""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from builders import Json  # noqa: E402

SPECS = ROOT / "specs"
EVERYTHING = SPECS / "everything"
SYSTEMS = {
    "batching-platform": "platform",
    "multi-model-service": "service",
    "queue-servers": "queue",
    "serving-fleet": "fleet",
    "small": "small",
}
"""Systems, and the word before those of their names that another system has, too."""
CARDS = {("batching-platform", "GPU"): 24, ("queue-servers", "GPU"): 20}
"""Cards of systems whose own plans are not limited."""
OPTIONS = ("rollout", "networkMs")
"""Options that concern servers of one system only; the others must be the same for all."""
USES = {
    "type": (("accelerators", "type"), ("count", "type")),
    "accelerators": (("accelerators", "name"), ("models", "acc")),
    "serviceClasses": (("serviceClasses", "name"), ("servers", "class")),
}
"""Where names that occur in several systems are used."""


def parts() -> dict[str, Json]:
    """Return the documents of the systems, each joined from its files."""
    return {name: _joined(SPECS / name) for name in SYSTEMS}


def _joined(folder: Path) -> Json:
    document: Json = {}
    for file in sorted(folder.glob("*.yaml")):
        for section, items in yaml.safe_load(file.read_text(encoding="utf-8")).items():
            document[section] = document.get(section, []) + items if isinstance(items, list) else items
    return document


def names_of(document: Json, section: str, field: str) -> set[str]:
    return {item[field] for item in document.get(section, ())}


def shared_names(documents: dict[str, Json], section: str, field: str) -> set[str]:
    """Return the names, without regard to case, that several documents give to items of their own."""
    names = [
        {name.casefold() for name in names_of(document, section, field)} for document in documents.values()
    ]
    count = Counter(name for mine in names for name in mine)
    return {name for name, systems in count.items() if systems > 1}


def renamed() -> dict[str, Json]:
    """Return the documents with names that no two of them have."""
    documents = parts()
    for name, document in documents.items():
        document.setdefault("count", []).extend(
            {"type": kind, "count": cards} for (system, kind), cards in CARDS.items() if system == name
        )
    renames = {
        "type": shared_names(documents, "accelerators", "type"),
        "accelerators": shared_names(documents, "accelerators", "name"),
        "serviceClasses": shared_names(documents, "serviceClasses", "name"),
    }
    for system, document in documents.items():
        for what, names in renames.items():
            for section, field in USES[what]:
                for item in document.get(section, ()):
                    if item.get(field, "").casefold() in names:
                        item[field] = f"{SYSTEMS[system]}-{item[field]}"
        for item in document.get("accelerators", ()):
            if isinstance(item["cost"], int | float):  # beside the dollars of other systems
                item["cost"] = f"{item['cost']} cents/h"
    return documents


def options(documents: dict[str, Json]) -> Json:
    """Return the options of all systems together."""
    found: Json = {}
    for document in documents.values():
        given = document.get("optimizer", {})
        found |= {key: given[key] for key in OPTIONS if key in given}
    return found


def files() -> Iterator[tuple[str, str]]:
    documents = renamed()
    yield "options.yaml", _text("Options of all systems.", {"optimizer": options(documents)})
    for name, document in documents.items():
        document.pop("optimizer", None)
        yield f"{name}.yaml", _text(f"The system specs/{name}.", document)


def _text(title: str, document: Json) -> str:
    note = f"# {title} Written by tests/tools/everything.py.\n"
    return note + yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)


if __name__ == "__main__":
    EVERYTHING.mkdir(exist_ok=True)
    for file, text in files():
        (EVERYTHING / file).write_text(text, encoding="utf-8")
