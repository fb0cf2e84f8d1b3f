"""Random small documents with routes, shared cards, or both: their servers compete for cards of two types."""

import numpy as np
from builders import Json
from route_oracles import random_routes
from shared_card_oracles import random_document

KINDS = ("routes", "cards", "both")


def random_coupled(seed: int) -> Json:
    """Return a document with routes (seed 0, 3, ...), with shared cards (1, 4, ...), or with both."""
    kind, rng = KINDS[seed % len(KINDS)], np.random.default_rng(seed)
    routed = random_routes(seed, routes=1 + seed % 2, others=2)
    if kind == "routes":
        routed["optimizer"] |= {"heterogeneous": bool(rng.random() < 0.5)}
        return routed
    shared = random_document(rng, 3, cards=3)
    return shared if kind == "cards" else _joined(routed, shared, same_cards=bool(rng.random() < 0.7))


def _joined(routed: Json, shared: Json, *, same_cards: bool) -> Json:
    """Return one document of both, with the same types of cards or types of their own."""
    renamed = {"S": "A", "B": "B"} if same_cards else {}
    accelerators = [
        one | {"name": f"card-{one['name']}", "type": renamed.get(one["type"], f"card-{one['type']}")}
        for one in shared["accelerators"]
    ]
    for one in accelerators:
        if "slice" in one:
            one["slice"] = one["slice"] | {"card": f"card-{one['slice']['card']}"}
    cards = {one["type"] for one in accelerators}
    more = [item | {"type": f"card-{item['type']}"} for item in shared["count"]]
    listed = [
        one
        | {"name": f"card-{one['name']}", "class": f"cards-{one['class']}"}
        | {"currentAlloc": {"load": one["currentAlloc"]["load"]}}
        for one in shared["servers"]
    ]
    return {
        "accelerators": [*routed["accelerators"], *accelerators],
        "models": [*routed["models"], *(one | {"acc": f"card-{one['acc']}"} for one in shared["models"])],
        "serviceClasses": [
            *routed["serviceClasses"],
            *(one | {"name": f"cards-{one['name']}"} for one in shared["serviceClasses"]),
        ],
        "servers": [*routed["servers"], *listed],
        "routes": routed["routes"],
        "count": [*routed["count"], *(item for item in more if item["type"] in cards)],
        "optimizer": routed["optimizer"] | shared["optimizer"],
    }
