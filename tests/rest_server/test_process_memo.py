"""The memo of a process that plans: no answer depends on it, nor on what was asked before."""

import json
import random
from collections.abc import Sequence
from itertools import product

import pytest
from wire_client import wire_client

from optimizer.generate import generate_document
from optimizer.schema.files import spec_from_value
from rest_server.sizing_memo import memo_of_process


def bodies(seed: int, count: int) -> list[bytes]:
    """Return requests of two fleets whose loads change."""
    rng, found = random.Random(seed), []
    fleets = [
        spec_from_value(generate_document(6, 5, 2, seed + i)).model_dump(mode="json", by_alias=True)
        for i in range(2)
    ]
    for _ in range(count):
        fleet = rng.choice(fleets)
        for server in fleet["servers"]:
            server["currentAlloc"]["load"]["arrivalRate"] *= rng.uniform(0.7, 1.4)
        found.append(json.dumps(fleet).encode())
    return found


PATHS = ("/optimizeOne", "/v1/plan", "/v1/candidates")


def answers(
    requests: Sequence[bytes], paths: Sequence[str] = PATHS, **settings: int
) -> dict[tuple[str, bytes], bytes]:
    with wire_client(**settings) as client:
        found = {}
        for path, body in product(paths, requests):
            answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
            assert answer.status_code == 200, answer.text
            found[path, body] = answer.content
        return found


@pytest.mark.slow
def test_answers_do_not_depend_on_the_memo_or_the_order() -> None:
    requests = bodies(7, 8)
    expected = answers(requests, sizing_memo_rows=0)
    assert answers(requests, sizing_memo_rows=1000) == expected
    assert answers(requests[::-1], sizing_memo_rows=7) == expected
    assert answers(requests, solver_processes=2) == expected


def test_requests_of_a_process_share_one_bounded_memo() -> None:
    answers(bodies(8, 3), PATHS[:1], sizing_memo_rows=13)
    memo = memo_of_process(13)
    assert memo is not None
    assert len(memo) == 13
    assert memo_of_process(0) is None
