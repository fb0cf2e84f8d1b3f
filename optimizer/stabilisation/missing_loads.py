"""Loads that are reported only in part: the values that stay, and the replicas without a complete load.

A value that is missing once must not have a lasting effect. A length of 0 is no measurement: a collector that
divides the sum of lengths by a count of 0 sends it. So a server keeps its last lengths, and gets at least one
replica if requests arrive whose lengths were never known. tests/data/load_states.md has all transitions.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from optimizer.quantities import precise
from optimizer.schema import Load, ModelProfile, Server
from optimizer.schema.assumptions import lacks_lengths
from optimizer.schema.messages import validated

LENGTHS: Mapping[str, str] = {"in_tokens": "avgInTokens", "out_tokens": "avgOutTokens"}
"""Names of the mean lengths in documents, by field of a load."""


@dataclass(frozen=True, slots=True)
class MissingLoad:
    """Values that are missing in the load of a server, and what is done without them."""

    values: tuple[str, ...]
    """Names of the missing values in documents."""
    detail: str
    """Explanation of what is done without them."""
    keeps_replicas: bool = False
    """Whether the server cannot be sized, so that it keeps its replicas."""


def merged_load(last: Load, given: Mapping[str, float]) -> Load:
    """Return the load after a report: given values replace the last ones, except lengths that say nothing.

    An output length of 0 says nothing, nor does an input length of 0 without requests or beside an output
    length of 0.

    Args:
        last: the load before the report.
        given: the reported values, by field of a load.
    """
    before, new = last.model_dump(exclude_unset=True), dict(given)
    for load in (before, new):
        is_idle = not {**before, **new}.get("arrival_rate_rpm", 0.0)
        no_output = load.get("out_tokens") == 0
        if load.get("in_tokens") == 0 and (no_output or (load is new and is_idle)):
            del load["in_tokens"]
        if no_output:
            del load["out_tokens"]
    return validated(Load, before | new)


def missing_values(
    load: Load, given: Mapping[str, float] | None, profiles: Iterable[ModelProfile], *, runs: bool
) -> MissingLoad | None:
    """Return the values that are missing in the load of a server; None if there are none.

    Args:
        load: the load after the report.
        given: the reported values, by field of a load; None if the server was not in the report.
        profiles: profiles of the server's model.
        runs: whether the server has replicas.
    """
    mine = list(profiles)
    if "arrival_rate_rpm" not in load.model_fields_set:
        text = "arrivalRate was never given; its replicas stay as they are"
        return MissingLoad(("arrivalRate",), text, keeps_replicas=True) if runs else None
    if not load.arrival_rate_rpm or not lacks_lengths(_without_lengths(load), mine):
        return None
    if lacks_lengths(load, mine):
        names = _lacking(load)
        text = f"{' and '.join(names)} never known; it keeps its replicas, at least one"
        return MissingLoad(names, text, keeps_replicas=True)
    if (given or {}).get("out_tokens") == 0:
        both = (given or {}).get("in_tokens") == 0
        names = tuple(LENGTHS.values()) if both else (LENGTHS["out_tokens"],)
        lengths = f"{precise(load.in_tokens)} input and {precise(load.out_tokens)} output tokens"
        return MissingLoad(names, f"{' and '.join(names)} 0 although requests arrive; planned for {lengths}")
    return None


def _without_lengths(load: Load) -> Load:
    return Load(arrival_rate_rpm=load.arrival_rate_rpm)


def _lacking(load: Load) -> tuple[str, ...]:
    no_input = "in_tokens" not in load.model_fields_set
    names = [name for name in LENGTHS if no_input or name == "out_tokens"]
    known = [name for name in names if name == "out_tokens" and load.out_tokens]
    return tuple(LENGTHS[name] for name in names if name not in known)


def with_lengths(load: Load, in_tokens: float, out_tokens: float) -> Load:
    """Return a load whose unknown mean lengths are replaced, if an output length is given."""
    if load.out_tokens or not out_tokens:
        return load
    return load.model_copy(update={"in_tokens": in_tokens, "out_tokens": out_tokens})


def with_one_replica(server: Server) -> Server:
    """Return a server of unknown lengths as one that the plan gives at least one replica on its own cards."""
    changes = {"min_num_replicas": max(1, server.min_num_replicas), "shared_card": False}
    return server.model_copy(update=changes)
