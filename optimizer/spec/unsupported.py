"""Fields of servers and options that features do not support, and features that do not go together."""

from collections.abc import Collection, Iterable, Iterator

from optimizer.documents import Document
from optimizer.errors import SpecError
from optimizer.features.routes.feature import ROUTES
from optimizer.features.table import FEATURES
from optimizer.schema import OptimizerOptions, Server
from optimizer.schema.names import Finding
from optimizer.spec.feature import Documents, Feature


def refused_problems(documents: Documents, used: Collection[str]) -> Iterator[Finding]:
    """Yield the fields and options of documents that their features do not support.

    Args:
        documents: the documents.
        used: names of the features that they use.
    """
    index = documents.index
    routed = {name: route for _, _, route in index.routes.values() for name in (route.small, route.large)}
    for part, at, server in index.servers.values():
        owner = index.classes.get(server.service_class)
        in_class = owner is not None and owner.item.headroom_share
        mine = [feature for feature in FEATURES if feature.of_server(server)]
        mine += [ROUTES] if server.name in routed else []
        for feature in mine:
            refused = feature.refused_fields
            other = (
                f"route {routed[server.name].name!r}"
                if feature is ROUTES
                else _key(server, feature.fields[0])
            )
            for name, reason in refused.items():
                if _is_stated(server, name):
                    yield Finding(part, (*at, _key(server, name)), f"{reason}; remove it, or {other}")
            if in_class and "headroom_share" in refused:
                text = f"class {server.service_class!r} has headroomShare; {refused['headroom_share']}"
                yield Finding(part, (*at, "class"), f"{text}; remove it, or {other}")
            for text in _untried(server, feature, mine):
                yield Finding(part, (*at, _key(server, feature.fields[0])), text)
    for part in documents.parts:
        if "optimizer" in part.spec.model_fields_set:
            for key, text in _option_problems(part.spec.optimizer, used):
                yield Finding(part, ("optimizer", key), text)


def _untried(server: Server, feature: Feature, others: Iterable[Feature]) -> Iterator[str]:
    """Yield the features of a server with which one of them is not known to work."""
    for other in others:
        if feature.goes_with is not None and other.name not in {*feature.goes_with, feature.name}:
            named = _key(server, other.fields[0])
            yield f"it is not known to work with {named}; remove it, or {named}"


def check_refused_options(options: OptimizerOptions, used: Collection[str]) -> None:
    """Check that the features of a system support its options.

    Args:
        options: the options.
        used: names of the features that the system uses.

    Raises:
        SpecError: a feature does not support an option.
    """
    for key, text in _option_problems(options, used):
        raise SpecError(f"optimizer.{key}: {text}")


def _option_problems(options: OptimizerOptions, used: Collection[str]) -> Iterator[tuple[str, str]]:
    for feature in FEATURES:
        if feature.name in used:
            for name, reason in feature.refused_options.items():
                if _is_stated(options, name):
                    other = feature.name if feature is ROUTES else _field(Server, feature.fields[0])
                    yield _key(options, name), f"{reason}; remove it, or {other}"


def _is_stated(document: Document, name: str) -> bool:
    """Return whether a field differs from its default."""
    default = type(document).model_fields[name].get_default(call_default_factory=True)
    return bool(getattr(document, name) != default)


def _key(document: Document, name: str) -> str:
    """Return the name of a field in documents."""
    return _field(type(document), name)


def _field(document: type[Document], name: str) -> str:
    return document.model_fields[name].alias or name
