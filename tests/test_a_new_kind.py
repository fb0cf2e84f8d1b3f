"""A kind of replica that is one folder and one edited table: everything else takes it as it is.

The tree is copied, `tests/streams` becomes a folder of `optimizer/kinds`, and the rest runs in a process of
its own: real-time streams, each of which holds a place for its duration.
"""

import json
from typing import Any

import pytest
from builders import accelerator, document
from copied_tree import answers_in, copy_tree
from queue_oracles import erlang_b

pytestmark = pytest.mark.slow

KINDS = "optimizer/kinds"
EDITS = {
    "from optimizer.documents import Document\n": (
        "from optimizer.documents import Document\nfrom optimizer.kinds import streams\n"
    ),
    "    BatchServers(),\n": "    BatchServers(),\n    streams.Streams(),\n",
    "class LawFields(": "class LawFields(streams.StreamLawFields, ",
    "class ServerFields(": "class ServerFields(streams.StreamFields, ",
    "class KindPoolFields(": "class KindPoolFields(streams.StreamPoolFields, ",
}
"""What is edited in the table of kinds."""
RATE_RPM, STREAM_MS, PLACES, LARGEST_LOSS = 120.0, 90_000.0, 24, 0.02
LOAD = {"arrivalRate": RATE_RPM}
TIMES = {"maxBatchSize": 8, "decodeParms": {"alpha": 7, "beta": 0.1}}
STREAMS = {"streamDuration": STREAM_MS, "streamCV": 1.5}
TOKENS = {"avgInTokens": 100, "avgOutTokens": 20}
SYSTEM = document(
    [
        {"name": "calls", "class": "c", "model": "voice", **STREAMS, "currentAlloc": {"load": LOAD}},
        {"name": "text", "class": "c", "model": "chat", "currentAlloc": {"load": LOAD | TOKENS}},
    ],
    [accelerator("A"), accelerator("B", cost=30)],
    {"A": 40, "B": 40},
    classes=[
        {
            "name": "c",
            "modelTargets": [
                {"model": "voice", "slo-ttft": 100, "maxLoss": LARGEST_LOSS},
                {"model": "chat", "slo-ttft": 700},
            ],
        }
    ],
    models=[
        {"name": "voice", "acc": "A", "maxBatchSize": PLACES, "streamParms": {"start": 40}},
        {"name": "voice", "acc": "B", "maxBatchSize": 2 * PLACES, "streamParms": {"start": 30}},
        {"name": "chat", "acc": "A", **TIMES},
    ],
)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what the copy answers, from a process of its own."""
    copy = tmp_path_factory.mktemp("copy")
    copy_tree(copy, {"streams": f"{KINDS}/streams"}, {f"{KINDS}/table.py": EDITS})
    return answers_in(copy, "stream_answers.py", given=json.dumps(SYSTEM))


def pool_of(plan: dict[str, Any]) -> dict[str, Any]:
    (pool,) = plan["allocations"]["calls"]
    assert isinstance(pool, dict)
    return pool


def offered(pool: dict[str, Any]) -> float:
    """Return the offered load of a replica [Erlang]."""
    return RATE_RPM / 60 / int(pool["numReplicas"]) * STREAM_MS / 1000


def test_streams_get_the_fewest_replicas_by_erlang(answers: dict[str, Any]) -> None:
    pool = pool_of(answers["plan"])
    assert (pool["accelerator"], pool["places"]) == ("A", PLACES)
    assert pool["blocked"] == pytest.approx(erlang_b(offered(pool), PLACES), rel=1e-9)
    fewer = offered(pool) * pool["numReplicas"] / (pool["numReplicas"] - 1)
    assert pool["blocked"] <= LARGEST_LOSS < erlang_b(fewer, PLACES)
    assert pool["ttftMs"] == 40
    assert "places" not in answers["plan"]["allocations"]["text"][0]


def test_a_plan_of_streams_is_verified(answers: dict[str, Any]) -> None:
    assert answers["problems"] == []
    (problem,) = answers["found out"]
    assert problem.startswith("allocations.calls.0.blocked is 0.017")


def test_simulated_loss_of_streams_matches_erlang(answers: dict[str, Any]) -> None:
    (pool,) = answers["simulation"]["pools"]
    planned = pool_of(answers["plan"])
    # 10,000 streams of one seed: the interval is the simulation's own, of 95 %, and here twice as wide.
    width = 2 * pool["loss"]["halfWidth"]
    assert pool["loss"]["value"] == pytest.approx(erlang_b(offered(planned), PLACES), abs=width)
    assert {check["target"]: check["verdict"] for check in pool["targets"]}["TTFT"] == "held"


def test_streams_are_explained_and_compared(answers: dict[str, Any]) -> None:
    (server,) = (one for one in answers["explanation"]["servers"] if one["server"] == "calls")
    assert server["pools"][0]["binding"][0]["limit"] == "loss"
    assert {option["accelerator"] for option in server["options"]} == {"A", "B"}
    assert server["nextBest"]["pools"][0]["accelerator"] == "B"
    assert answers["comparison"]["same"]


def test_a_figure_of_streams_alone_is_reported_and_drawn(answers: dict[str, Any]) -> None:
    blocked = pool_of(answers["plan"])["blocked"]
    assert f"| {blocked:.2%} |" in answers["markdown"]
    assert "## Starts of streams" in answers["markdown"]
    header, *rows = (line.split(",") for line in answers["csv"].splitlines() if line)
    (row,) = (dict(zip(header, cells, strict=True)) for cells in rows if cells[0] == "calls")
    assert (row["places"], float(row["blocked"])) == (str(PLACES), blocked)
    assert all(size > 5000 for size in answers["pictures"].values())
    assert not [note for note in answers["notes"] if "Nothing to show" in note]


def test_the_emulator_names_a_server_that_it_cannot_run(answers: dict[str, Any]) -> None:
    assert answers["emulation"] == "calls: its replicas cannot be emulated; remove the server"


def test_a_report_defines_the_utilisation_of_the_shown_kinds(answers: dict[str, Any]) -> None:
    assert "of streams the places that streams hold" in answers["markdown"]
    assert "is the places that streams hold." in answers["markdown alone"]


def test_the_service_answers_the_same_and_says_what_is_missing(answers: dict[str, Any]) -> None:
    served = answers["http"]
    assert set(served["status"]) == {200}
    assert [served[name] for name in ("plan", "simulation", "markdown")] == [
        answers[name] for name in ("plan", "simulation", "markdown")
    ]
    assert served["explanation"]["servers"] == answers["explanation"]["servers"]
    assert served["refusal"] == "servers[0].streamDuration: missing; give the mean duration of a stream"
