"""`analyze` and `size` by the names of a model and an accelerator: as plans count, marked as estimated."""

import csv
import io

import pytest
from commands import Run, is_one_line

from optimizer import load_system, solve

NAMES = ("--model", "llama-3.1-8b", "--accelerator", "H100")


@pytest.mark.slow
@pytest.mark.parametrize("end", ["upper", "middle", "lower"])
@pytest.mark.parametrize(
    ("model", "accelerator", "slice_of", "cards"),
    [("llama-3.1-8b", "H100", "H100", 1), ("Qwen/Qwen2.5-32B-Instruct", "2xh100", "H100", 2)],
)
def test_a_replica_by_names_is_that_of_a_plan(
    model: str, accelerator: str, slice_of: str, cards: int, end: str, run: Run
) -> None:
    load = {"arrivalRate": "3/s", "avgInTokens": 500, "avgOutTokens": 100}
    system = load_system({
        "accelerators": [{"name": "slice", "type": slice_of, "multiplicity": cards, "cost": 1}],
        "models": [{"name": model, "acc": "slice", "perfParms": "estimate"}],
        "serviceClasses": [{"name": "c", "modelTargets": [{"model": model, "slo-itl": 90}]}],
        "servers": [{"name": "s", "class": "c", "model": model, "currentAlloc": {"load": load}}],
        "optimizer": {"unlimited": True, "estimates": end},
    })  # fmt: skip
    (pool,) = solve(system).allocations["s"]
    answer = run(
        "analyze", "--model", model, "--accelerator", accelerator, "--estimates", end, "--rate",
        pool.arrival_rate_rpm / 60 / pool.num_replicas, "--in-tokens", 500, "--out-tokens", 100, "--json",
    )  # fmt: skip
    found = answer.json
    assert (answer.status, answer.err) == (0, "")
    assert (found["estimated"], pool.estimated) == (end, end)
    assert found["assumed"]["tp"] == cards
    assert found["assumed"]["maxBatch"] == pool.max_batch
    assert (found["itl"], found["ttft"]) == pytest.approx((pool.itl_ms, pool.ttft_ms))


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [("analyze", *NAMES, "--rate", "2/s"), ("size", *NAMES, "--target-itl", "30ms")]
)
def test_every_form_of_output_is_marked_as_estimated(words: tuple[str, ...], run: Run) -> None:
    out = run(*words).out
    assert "H100, tp 1 ~" in out
    assert "~ token times are estimated from data sheets, not measured (cautious" in out.replace("\n", "")
    assert max(map(len, out.splitlines())) <= 80
    assert any("~" in field for row in csv.reader(io.StringIO(run(*words, "--csv").out)) for field in row)
    found = run(*words, "--json").json
    assert found["estimated"] == "upper"
    assert found["assumed"]["inTokens"] == 1024  # the default of `estimate`
    measured = run("analyze", "--iteration-base", 5, "--in-tokens", 9, "--out-tokens", 9, "--max-batch", 4,
                   "--rate", 1).out  # fmt: skip
    assert "~" not in measured


def test_what_is_known_replaces_what_is_estimated(run: Run) -> None:
    flags = ("--max-batch", 4, "--kv-capacity", 9000, "--weights", "fp8", "--out-tokens", 50)
    found = run("analyze", *NAMES, "--rate", 1, *flags, "--json").json
    assumed = found["assumed"]
    assert (assumed["maxBatch"], assumed["kvCapacity"], assumed["weights"], assumed["outTokens"]) == (
        4, 9000, "fp8", 50,
    )  # fmt: skip
    slower = run("analyze", *NAMES, "--rate", 1, *flags[:4], *flags[6:], "--json").json
    assert found["itl"] < slower["itl"]  # half the bytes of weights to read


def test_more_devices_and_a_bigger_share_of_memory_hold_more(run: Run) -> None:
    def capacity(*flags: object) -> float:
        found = run("analyze", *NAMES, "--rate", 1, *flags, "--json").json
        return float(found["assumed"]["kvCapacity"])

    assert capacity("--memory-utilization", "80%") < capacity() < capacity("--tp", 2)


@pytest.mark.parametrize(("command", "flags"), [("analyze", ("--rate", 1)), ("size", ("--target-itl", 30))])
def test_warnings_of_the_estimate_are_shown(command: str, flags: tuple[object, ...], run: Run) -> None:
    warning = "32 attention heads do not split by 3; most engines reject that"
    assert warning in run(command, *NAMES, "--tp", 3, *flags).out
    assert warning not in run(command, *NAMES, "--tp", 2, *flags).out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "llama-3.1-8b"), "--accelerator: missing"),
        (("--accelerator", "H100"), "--model: missing"),
        (("--tp", "2"), "--model: missing"),
        (("--model", "lama-3.1", "--accelerator", "H100"), "--model: 'lama-3.1' is not in the catalogue"),
        (("--model", "llama-3.1-8b", "--accelerator", "2xH10"), "--accelerator: 'H10' is not in"),
        (("--model", "llama-3.1-70b", "--accelerator", "H100"), "it fits with --tp 4"),
        ((*NAMES[:3], "2xH100", "--tp", "4"), "--tp: must be 2, the devices of"),
        ((*NAMES, "--weights", "fp7"), "did you mean 'fp8'"),
        ((*NAMES, "--scale", "2"), "unknown flag --scale"),
        ((*NAMES, "--decode-base", "5"), "--decode-base: token times are estimated from --model"),
        ((*NAMES, "--service-base", "5"), "--model: not used by a batch server"),
        ((*NAMES, "--batch", "rows"), "--batch: reads all values from its lines; remove --model"),
        ((*NAMES, "--out-tokens", "0"), "--out-tokens: must be between 1 and"),
        ((), "give --model and --accelerator, whose token times are estimated, or one latency model"),
    ],
)
def test_faults_are_one_line(words: tuple[str, ...], message: str, run: Run) -> None:
    rate = () if "--batch" in words else ("--rate", "1")
    is_one_line(run("analyze", *words, *rate), message)
