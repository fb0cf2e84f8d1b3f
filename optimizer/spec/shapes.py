"""Changes of request shapes in a system: the share of a shape, and the hit rate of its prefix."""

from collections.abc import Callable, Iterable
from typing import Any

from optimizer.errors import SpecError
from optimizer.kinds.fields import Load
from optimizer.kinds.request_shapes import RequestShape
from optimizer.schema.messages import validated
from optimizer.spec.system import System


def shape_names(system: System) -> list[str]:
    """Return the names of all request shapes of a system."""
    return sorted(
        {shape.name for server in system.documented.values() for shape in server.current.load.shapes}
    )


def prefixed_names(system: System) -> list[str]:
    """Return the names of the shapes, and of the servers without shapes, whose prompts share a prefix."""
    loads = {server.name: server.current.load for server in system.documented.values()}
    shapes = {shape.name for load in loads.values() for shape in load.shapes if shape.prefix_tokens}
    return sorted(shapes | {name for name, load in loads.items() if load.prefix_tokens})


def with_share(system: System, name: str, share: float) -> System:
    """Return a copy of a system in which a shape has another share; other shapes keep their proportions.

    Raises:
        SpecError: the share is not between 0 and 1, or the load has no other shape.
    """

    def changed(load: Load) -> tuple[RequestShape, ...]:
        rest = sum(shape.share or 0.0 for shape in load.shapes if shape.name != name)
        if not 0 <= share <= 1 or (not rest and share != 1):
            raise SpecError(f"share:{name}: must be between 0 and 1 beside other shapes, not {share:g}")
        factor = (1 - share) / rest if rest else 0.0
        return tuple(
            shape.model_copy(update={"share": share if shape.name == name else (shape.share or 0.0) * factor})
            for shape in load.shapes
        )

    return _with_shapes(system, name, changed)


def with_hits(system: System, name: str, hit_rate: float) -> System:
    """Return a copy of a system in which a shape, or a server without shapes, has another prefix hit rate.

    Raises:
        SpecError: the rate is not between 0 and 1.
    """
    if not 0 <= hit_rate <= 1:
        raise SpecError(f"hit:{name}: must be between 0 and 1, not {hit_rate:g}")

    def changed(load: Load) -> tuple[RequestShape, ...]:
        return tuple(
            shape.model_copy(update={"prefix_hit_rate": hit_rate}) if shape.name == name else shape
            for shape in load.shapes
        )

    result = _with_shapes(system, name, changed)
    alone = system.documented.get(name)
    if alone is None or not alone.current.load.prefix_tokens:
        return result
    load = alone.current.load.model_copy(update={"prefix_hit_rate": hit_rate})
    return result.with_items(alone.with_load(load))


def without_hits(system: System) -> System:
    """Return a copy of a system in which no request finds its prefix in the cache."""
    servers = []
    for server in system.documented.values():
        load, never = server.current.load, {"prefix_hit_rate": 0.0}
        if load.shapes:
            missing = (shape.model_copy(update=never if shape.prefix_tokens else {}) for shape in load.shapes)
            servers.append(server.with_load(reshaped(load, missing)))
        elif load.has_shapes:
            servers.append(server.with_load(load.model_copy(update=never)))
    return system.with_items(*servers)


def _with_shapes(system: System, name: str, changed: Callable[[Load], tuple[RequestShape, ...]]) -> System:
    """Return a copy of a system with changed shapes in every load that has a shape of the given name."""
    servers = []
    for server in system.documented.values():
        load = server.current.load
        if any(shape.name == name for shape in load.shapes):
            servers.append(server.with_load(reshaped(load, changed(load), f"servers.{server.name}.load.")))
    return system.with_items(*servers) if servers else system


def reshaped(load: Load, shapes: Iterable[RequestShape | dict[str, Any]], place: str = "") -> Load:
    """Return a load with other request shapes.

    Args:
        load: the load.
        shapes: the shapes, or their fields.
        place: prefix of messages.

    Raises:
        SpecError: the shapes contradict each other, for example because their shares do not add up to 1.
    """
    return validated(Load, load.model_dump(exclude_unset=True) | {"shapes": tuple(shapes)}, place)
