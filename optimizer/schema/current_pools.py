"""Current pools of servers: changed numbers of replicas, contradictions, and undefined accelerators."""

from collections import Counter
from collections.abc import Iterator, Mapping

from optimizer.schema import AllocationData, CurrentPool
from optimizer.schema.files import Part
from optimizer.schema.names import Finding, Names
from optimizer.schema.positions import Location


def with_replicas(current: AllocationData, replicas: Mapping[str, int], *, mixed: bool) -> AllocationData:
    """Return a current allocation with other numbers of replicas on own cards, at their accelerators' prices.

    Args:
        current: the allocation; if nothing changes, it keeps its stated cost.
        replicas: new number of replicas by accelerator.
        mixed: whether plans are mixed; otherwise only the largest pool counts.
    """
    most = max(replicas, key=lambda name: (replicas[name], name == current.accelerator), default="")
    running = {name: number for name, number in replicas.items() if number and (mixed or name == most)}
    if not running:
        return AllocationData(load=current.load)
    if running == current.replicas:
        return current
    batches = {pool.accelerator: pool.max_batch for pool in current.stated_pools}
    pools = tuple(
        CurrentPool(accelerator=name, num_replicas=number, max_batch=batches.get(name, 0))
        for name, number in sorted(running.items())
    )
    changed = {"accelerator": most, "num_replicas": replicas[most], "cost_cents_per_h": 0.0}
    return current.model_copy(update={**changed, "pools": pools if len(pools) > 1 else ()})


def of_replicas(replicas: Mapping[str, int]) -> AllocationData:
    """Return an allocation with numbers of replicas by accelerator."""
    pools = (CurrentPool(accelerator=on, num_replicas=number) for on, number in replicas.items() if number)
    return AllocationData.model_construct(pools=tuple(pools))


def undefined_accelerators(
    part: Part, at: Location, allocation: AllocationData, accelerators: Names, *, unless_priced: bool = False
) -> Iterator[Finding]:
    """Yield the pools on own cards whose accelerator is undefined.

    Args:
        part: the document.
        at: location of the allocation.
        accelerators: the defined accelerators.
        unless_priced: whether pools that state their cost, or have no replicas, can be on any accelerator.
    """
    for i, pool in enumerate(allocation.stated_pools):
        here = (*at, "pools", i, "accelerator") if allocation.pools else (*at, "accelerator")
        needs_price = pool.num_replicas and not pool.cost_cents_per_h
        if pool.mode == "own" and pool.accelerator and (needs_price or not unless_priced):
            yield from accelerators.missing(part, here, pool.accelerator)


def pool_problems(
    part: Part, at: Location, allocation: AllocationData, nodes: Names, *, has_roles: bool = False
) -> Iterator[Finding]:
    """Yield the contradictions between the pools of an allocation.

    Args:
        part: the document.
        at: location of the allocation in the document.
        allocation: the allocation.
        nodes: the defined node types.
        has_roles: whether the server can have prefill and decode pools.
    """
    own: Counter[str] = Counter()
    seen: set[tuple[str, str | None, frozenset[str], str | None]] = set()
    for i, pool in enumerate(allocation.pools):
        here, is_external = (*at, "pools", i, "accelerator"), pool.mode == "external"
        key = pool.accelerator, pool.node, frozenset(pool.shapes), pool.serving_role
        if pool.node is not None:
            yield from nodes.missing(part, (*at, "pools", i, "node"), pool.node.rpartition("/")[0])
        if pool.serving_role is not None and not (has_roles and pool.mode == "own"):
            text = f"a pool with mode {pool.mode} has no role; remove it"
            if not has_roles:
                text = "the server has no disaggregation; set that to allowed or required, or remove the role"
            yield Finding(part, (*at, "pools", i, "role"), text)
        if is_external == bool(pool.accelerator):
            need = "has no accelerator; remove it" if is_external else "needs an accelerator; add its name"
            yield Finding(part, here, f"a pool with mode {pool.mode} {need}")
        elif pool.mode == "own" and key in seen:
            on = f" on {pool.node}" if pool.node else ""
            text = f"{pool.accelerator!r}{on} occurs twice; add up its replicas in one pool"
            yield Finding(part, here, text)
        elif pool.mode == "own":
            seen.add(key)
            own[pool.accelerator] += pool.num_replicas
    stated = allocation.accelerator, allocation.num_replicas
    if allocation.pools and stated != ("", 0) and stated not in own.items():
        text = f"{stated[1]} x {stated[0]} is none of the pools with mode own"
        text += "; give the largest of them, or remove it"
        yield Finding(part, (*at, "accelerator"), text)
