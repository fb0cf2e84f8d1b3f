"""A document as independent programs read it: its items by name, and nothing of the planner."""

from typing import Any

from optimizer.spec.system import System


class DocumentCase:
    """Items of a document, by name."""

    def __init__(self, system: System) -> None:
        self.spec: dict[str, Any] = system.to_spec().model_dump(mode="json", by_alias=True)
        self.servers = {item["name"]: item for item in self.spec["servers"]}
        self.accelerators = {item["name"]: item for item in self.spec["accelerators"]}
        self.profiles = {(item["name"], item["acc"]): item for item in self.spec["models"]}
        classes = {item["name"]: item for item in self.spec["serviceClasses"]}
        self.priority = {name: classes[item["class"]]["priority"] for name, item in self.servers.items()}
        self.target = {
            name: next(t for t in classes[item["class"]]["modelTargets"] if t["model"] == item["model"])
            for name, item in self.servers.items()
        }
        self.units = {item["type"]: item["count"] for item in self.spec["count"]}
        self.penalty = self.spec["optimizer"]["transitionPenalty"]
