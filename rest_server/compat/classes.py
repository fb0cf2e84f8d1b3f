"""Handlers of llm-inferno's routes for service classes; `entities` explains their interface."""

import re
from collections.abc import Iterable
from typing import Any

from optimizer.schema import ModelTarget, ServiceClass
from rest_server.compat.bodies import classes_by_name, read_list
from rest_server.compat.changes import Change, Changed, WireRefusalError, echoed, item_of, spelled
from rest_server.compat.entities import SERVICE_CLASSES
from rest_server.compat.lenient import read_entity, read_object
from rest_server.compat.serializers import plain_json, service_class_json, target_json
from rest_server.fleet import Entities

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


def add_service_class(entities: Entities, name: str, priority: str) -> Changed:
    """Carry out ``/addServiceClass/:name/:priority``, which adds a class without targets."""
    if not _WHOLE_NUMBER.fullmatch(priority):
        raise WireRefusalError(400, f"service class priority {priority} invalid")
    item = read_entity(ServiceClass, {"name": name, "priority": int(priority)}, "", [])
    return SERVICE_CLASSES.put(entities, [item]), service_class_json(item)


def set_service_classes(raw: object, ignored: list[str]) -> Change:
    """Read the body of ``/setServiceClasses``; the response repeats it, even priorities out of range."""
    items: list[ServiceClass] | None = read_list("serviceClasses", raw, ignored)
    answer = {"serviceClasses": echoed(items, service_class_json)}
    posted = next((value for key, value in spelled(raw).items() if key == "serviceclasses"), ())
    named = classes_by_name(items or (), posted)
    for item, shape, given in zip(items or (), answer["serviceClasses"] or (), posted, strict=True):
        shape["priority"] = plain_json(spelled(given).get("priority", 0))
        if "model_targets" not in item.model_fields_set:
            shape["modelTargets"] = None
    return lambda entities: (entities.with_items("service_classes", named), answer)


def add_targets(raw: object, ignored: list[str]) -> Change:
    """Read the body of ``/addServiceClassModelTargets``.

    Its name and priority must match an existing class.
    """
    spec = read_entity(ServiceClass, read_object(raw), "", ignored)
    priority = plain_json(spelled(raw).get("priority", 0))

    def change(entities: Entities) -> Changed:
        item = entities.service_classes.get(spec.name)
        if item is None:
            raise WireRefusalError(404, f"service class {spec.name} not found", bare=True)
        if item.priority != priority:
            text = f"inconsistent specs: svcName={spec.name} ; svcPrio={priority}"
            raise WireRefusalError(400, text, bare=True)
        added = {target.model: target for target in (*item.model_targets, *spec.model_targets)}
        return _retargeted(entities, item, added.values())

    return change


def _retargeted(entities: Entities, item: ServiceClass, targets: Iterable[ModelTarget]) -> Changed:
    changed = item.model_copy(update={"model_targets": tuple(targets)})
    return SERVICE_CLASSES.put(entities, [changed]), service_class_json(changed)


def target(entities: Entities, name: str, model: str) -> Any:
    """Return the response to ``/getServiceClassModelTarget/:name/:model``."""
    targets = {item.model: item for item in SERVICE_CLASSES.item(entities, name).model_targets}
    return target_json(item_of(targets, model, f"model {model} not found"))


def remove_target(entities: Entities, name: str, model: str) -> Changed:
    """Carry out ``/removeServiceClassModelTarget/:name/:model``."""
    answer, item = target(entities, name, model), SERVICE_CLASSES.item(entities, name)
    changed, _ = _retargeted(entities, item, (each for each in item.model_targets if each.model != model))
    return changed, answer
