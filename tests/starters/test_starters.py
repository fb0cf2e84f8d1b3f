"""From few facts to a document that is valid, planned and reported; prices from files; use cases."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import LLAMA
from commands import Run, is_one_line

from optimizer import load_system, make_report, solve, verify
from optimizer.cli.main import main
from optimizer.errors import SpecError
from optimizer.money import Price
from optimizer.schema.files import plain_value
from optimizer.spec.system import System
from optimizer.starters.facts import Demand, StarterFacts
from optimizer.starters.prices import Offer, read_prices
from optimizer.starters.starter_document import document_of, notes_of
from optimizer.starters.use_cases import use_case, use_cases

H100 = Offer("H100", 1, Price(350, "USD"), "", 16)
L40S = Offer("L40S", 1, Price(110, "USD"), "", 8)
ONE = (Demand("chat", "1/s"),)


def system_of(text: str) -> System:
    raw = plain_value(text, "made")
    assert isinstance(raw, dict)
    return load_system(raw)


def start(**changes: Any) -> StarterFacts:
    facts: dict[str, Any] = {
        "models": ("llama-3.1-8b", "meta-llama/Llama-3.1-70B-Instruct"),
        "offers": (H100, L40S),
        "demands": (Demand("chat", "2/s"), Demand("batch", "60/min", "llama-3.1-8b")),
    }
    return StarterFacts(**facts | changes)


# --- documents -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("is_limited", [True, False])
def test_owned_cards_and_clouds_give_usable_documents(*, is_limited: bool) -> None:
    clouds = Offer("H100", 8, Price(2800, "USD"), "aws"), Offer("H100", 1, Price(300, "USD"), "gcp")
    system = system_of(document_of(start(offers=(H100, L40S) if is_limited else clouds)))
    assert system.options.unlimited != is_limited
    assert system.currency == "USD"
    plan = solve(system)
    assert plan.complete
    assert make_report(system).plan == plan


def test_the_document_says_what_was_asked_for() -> None:
    text = document_of(start(file="mine.yaml"))
    system = system_of(text)
    assert dict(system.capacity) == {"H100": 16, "L40S": 8}
    assert list(system.servers) == [
        "batch-llama-3.1-8b", "chat-llama-3.1-8b", "chat-meta-llama/Llama-3.1-70B-Instruct",
    ]  # fmt: skip
    chat, case = system.servers["chat-llama-3.1-8b"].current.load, use_case("chat")
    assert (chat.arrival_rate_rpm, chat.in_tokens, chat.out_tokens) == (120, case.in_tokens, case.out_tokens)
    assert system.servers["batch-llama-3.1-8b"].current.load.arrival_rate_rpm == 60
    assert system.targets["chat", "llama-3.1-8b"].ttft_ms == case.ttft_ms
    assert ("batch", "meta-llama/Llama-3.1-70B-Instruct") not in system.targets
    assert [system.service_classes[name].priority for name in ("chat", "batch")] == [1, 2]
    assert "inferplan check mine.yaml" in text
    assert "Azure LLM inference trace 2023" in text


def test_new_documents_explain_their_saturation_policy() -> None:
    text = document_of(start(demands=(Demand("chat", "5000/s"),)))
    before, _, _ = text.partition("optimizer: {saturationPolicy: PriorityExhaustive}\n")
    assert "so cards can stay idle" in before.rsplit("\n\n", 1)[1].replace("\n# ", " ")
    system = system_of(text)
    assert system.options.saturation_policy == "PriorityExhaustive"
    assert any(0 < item.served_fraction < 1 for item in solve(system).unserved)
    clouds = document_of(start(offers=(Offer("H100", 8, Price(2800, "USD"), "aws"),)))
    assert "saturationPolicy" not in clouds


def test_slices_are_offered_as_far_as_cards_exist_and_models_fit() -> None:
    system = system_of(document_of(start(offers=(Offer("H100", 1, Price(350, "USD"), "", 4), L40S))))
    big = [acc for model, acc in system.profiles if model.startswith("meta")]
    assert big == ["4xH100"]  # two cards of any kind do not hold it, and four L40S have only PCIe
    assert "8xH100" not in system.accelerators
    assert system.accelerators["4xH100"].cost_cents_per_h == 1400
    assert all(profile.is_estimated for profile in system.profiles.values())


def test_a_config_is_named_relative_to_the_document(tmp_path: Path) -> None:
    config = LLAMA | {"torch_dtype": "bfloat16"}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(json.dumps(config))
    path = tmp_path / "docs" / "system.yaml"
    path.parent.mkdir()
    flags = ["--accelerator", "H100:8:3.50USD/h", "--rate", "chat=1/s"]
    assert main(["init", str(path), "--model", str(tmp_path / "mine" / "config.json"), *flags]) == 0
    assert "config: ../mine/config.json" in path.read_text()
    plan = solve(load_system(path))
    assert list(plan.allocations) == ["chat-mine"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"models": ()}, "give a model"),
        ({"models": ("lama-3.1-8b",), "demands": ONE}, "did you mean"),
        ({"models": ("llama-3.1-405b",), "demands": ONE}, "fits none of the accelerators"),
        ({"demands": (Demand("chatt", "1/s"),)}, "did you mean 'chat'"),
        ({"demands": (Demand("chat", "1 parsec"),)}, "rate of chat: '1 parsec'"),
        ({"demands": (Demand("chat", "-1/s"),)}, "rate of chat: must be more than 0, not -1/s"),
        ({"demands": (Demand("chat", "10"),)}, "rate of chat: 10 has no unit; write 10/s or 10/min"),
        (
            {"offers": (H100, Offer("H100", 8, Price(2400, "USD")))},
            "a rented card costs less than an owned one, so owned ones would never be used",
        ),
        ({"offers": (H100, Offer("L4", 1, Price(90, "EUR"), "", 8))}, "its price is in EUR, that of H100 in"),
        ({"offers": (Offer("H100", 1, Price(-1, "USD"), "", 8),)}, "the price must be at least 0"),
        ({"offers": (Offer("H100", 0, Price(1, "USD"), "", 8),)}, "must have at least one card"),
        (
            {"offers": (H100, Offer("H100", 8, Price(20, "USD"), "", 8))},
            "16 cards for H100, but 8 for 8xH100",
        ),
        ({"offers": (Offer("H100", 8, Price(20, "USD"), "", 4),)}, "it takes 8 cards, but 4 exist"),
        ({"weights": "fp7"}, "format of the weights: 'fp7' does not exist"),
        ({"percentiles": {"agents": 95.0}}, "percentile of agents: there are no requests of this use case"),
        ({"demands": (Demand("chat", "1/s"), Demand("chat", "2/s", "llama-3.1-8b"))}, "given twice"),
        ({"demands": (Demand("chat", "1/s", "phi-4"),)}, "'phi-4' is not among the models"),
        ({"demands": (Demand("chat", "1/s", "llama-3.1-8b"),)}, "has no requests"),
    ],
)
def test_what_cannot_be_started_from_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(SpecError) as refused:
        document_of(start(**changes))
    assert problem in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("offer", "said"),
    [
        (L40S, "2xL40S: it needs 69.3 GiB per device, but the engine may use 40.0"),
        (L40S, "4xL40S, 8xL40S: at most 2 devices can share a model over PCIe"),
        (L40S, "with fp8 weights it fits on 2xL40S"),
        (Offer("L40S", 4, Price(400, "USD"), "", 8), "4xL40S: at most 2 devices can share a model over PCIe"),
        (Offer("H100", 3, Price(900, "USD"), "", 9), "H100: it needs 137.6 GiB per device"),
    ],
)
def test_a_model_that_fits_nothing_is_told_why_slice_by_slice(offer: Offer, said: str) -> None:
    facts = start(models=("llama-3.1-70b",), offers=(offer,), demands=ONE)
    with pytest.raises(SpecError) as refused:
        document_of(facts)
    assert said in str(refused.value)
    assert "it fits on" in str(refused.value)
    assert "--tp" not in str(refused.value)  # init has no such flag
    if "with fp8 weights" in said:
        assert list(system_of(document_of(replace(facts, weights="fp8"))).profiles) == [
            ("llama-3.1-70b", "2xL40S")
        ]


@pytest.mark.slow
def test_what_is_left_out_is_named_with_its_reason() -> None:
    facts = start(offers=(H100, L40S, Offer("H100", 8, Price(2000, "USD"), "", 16)))
    notes = notes_of(facts)
    offered = set(system_of(document_of(facts)).profiles)
    for model in facts.models:
        for item in ("H100", "2xH100", "4xH100", "8xH100", "L40S", "2xL40S", "4xL40S", "8xL40S"):
            named = any(
                item in note.removeprefix(f"{model} is not offered on ").partition(":")[0].split(", ")
                for note in notes
                if note.startswith(model)
            )
            assert named == ((model, item) not in offered), (model, item)
    assert "8xH100 at 28.00 USD/h is omitted: there is a cheaper offer" in notes
    assert system_of(document_of(facts)).accelerators["8xH100"].cost_cents_per_h == 2000
    words = " ".join(document_of(facts).replace("# ", "").split())
    assert all(note in words for note in notes)


def test_a_slice_of_more_cards_than_exist_is_omitted() -> None:
    for cards, count, text in ((1, 0, "takes 1 card, but 0 exist"), (2, 1, "takes 2 cards, but 1 exists")):
        notes = notes_of(start(offers=(H100, Offer("L4", cards, Price(60, "USD"), "", count))))
        assert any(note.endswith(f"is omitted: it {text}") for note in notes)


def test_cards_that_nothing_runs_on_are_not_counted() -> None:
    facts = start(models=("llama-3.1-70b",), offers=(H100, Offer("L4", 1, Price(60, "USD"), "", 8)),
                  demands=ONE)  # fmt: skip
    assert dict(system_of(document_of(facts)).capacity) == {"H100": 16}


def test_targets_weights_and_saturation_are_those_given() -> None:
    facts = start(
        weights="fp8",
        targets_ms={"ttft": {"chat": 500.0, None: 2500.0}, "itl": {"batch": 0.0}, "e2e": {None: 30_000.0}},
        percentiles={"chat": 95.0},
        saturation="PriorityExhaustive",
    )
    text = document_of(facts)
    system = system_of(text)
    chat, batch = (system.targets[name, "llama-3.1-8b"] for name in ("chat", "batch"))
    assert (chat.ttft_ms, chat.itl_ms, chat.e2e_ms) == (500, use_case("chat").itl_ms, 30_000)
    assert chat.percentile == 95
    assert (batch.ttft_ms, batch.itl_ms, batch.percentile) == (2500, 0, None)
    assert system.options.saturation_policy == "PriorityExhaustive"
    for profile in system.profiles.values():
        assert profile.iteration is not None
        assert profile.iteration.estimate is not None
        assert profile.iteration.estimate.weights == "fp8"
    assert "Its targets are as requested." in text
    assert use_case("chat").why[:40] not in text
    assert solve(system).complete


def test_names_that_yaml_would_misread_are_quoted() -> None:
    offers = (Offer("H100", 1, Price(350, "USD"), "eu: west #1"),)
    made = document_of(start(models=("llama-3.1-8b",), offers=offers, demands=ONE))
    assert list(system_of(made).accelerators) == ["eu: west #1/H100"]


# --- the command ---------------------------------------------------------------------------------------

FLAGS = ["--model", "llama-3.1-8b", "--accelerator", "H100:8:3.50USD/h", "--rate", "chat=10/s"]


def test_the_command_writes_once(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "system.yaml"
    assert run("init", path, *FLAGS).status == 0
    before = path.read_bytes()
    is_one_line(run("init", path, *FLAGS), "already exists")
    assert run("init", path, *FLAGS, "--rate", "batch=1/s", "--force").status == 0
    assert path.read_bytes() != before
    assert run("init", tmp_path / "system.json", *FLAGS).status == 2
    assert system_of(run("init", "-", *FLAGS).out.partition("\n")[2]).capacity == {"H100": 8}


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ([], "--model, --accelerator, --rate: missing; for example inferplan init --model"),
        (["--model", "phi-4"], "--accelerator, --rate: missing"),
        ([*FLAGS[:2], "--accelerator", "H100", *FLAGS[4:]], "no price; write H100:8:2.50USD/h"),
        ([*FLAGS[:2], "--accelerator", "H100:8:3", *FLAGS[4:]], "the time is missing"),
        ([*FLAGS[:2], "--accelerator", "H100:8:300cents/h", *FLAGS[4:]], "must name its currency"),
        ([*FLAGS[:2], "--accelerator", "H1:8:3USD/h", *FLAGS[4:]], "'H1' is not in the catalogue"),
        ([*FLAGS[:4], "--rate", "chat"], "'chat' is not USE-CASE=RATE"),
        ([*FLAGS[:4], "--rate", "chat=10"], "rate of chat: 10 has no unit; write 10/s or 10/min"),
        (FLAGS[:4], "--rate: missing; for example inferplan init --model"),
        ([*FLAGS, "--percentile", "0.95"], "less than 100, not '0.95'; did you mean 95?"),
        ([*FLAGS, "--percentile", "95", "--percentile", "99"], "--percentile 99: given twice"),
        ([*FLAGS, "--target-ttft", "soon"], "--target-ttft soon: 'soon'"),
        ([*FLAGS, "--target-itl", "agents=50"], "itl of agents: there are no requests of this use case;"),
    ],
)
def test_a_wrong_or_missing_fact_is_one_line(
    run: Run, flags: list[str], problem: str, tmp_path: Path
) -> None:
    is_one_line(run("init", tmp_path / "system.yaml", *flags), problem)
    assert not (tmp_path / "system.yaml").exists()


RENTED = "H200::3.90USD/h"


@pytest.mark.few(1)
@pytest.mark.parametrize("unit", ["10/s", "600/min", "10 rps", "600rpm"])
def test_the_unit_of_a_rate_that_the_message_offers_works(unit: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "system.yaml"
    assert run("init", path, *FLAGS[:4], "--rate", f"chat={unit}").status == 0
    (server,) = load_system(path).servers.values()
    assert server.current.load.arrival_rate_rpm == 600


@pytest.mark.slow
def test_owned_and_rented_types_keep_what_was_said(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "system.yaml"
    cards = ["--accelerator", "H100:24:2.10USD/h", "--accelerator", RENTED]
    assert run("init", path, *FLAGS[:2], *cards, "--rate", "chat=900/s").status == 0
    system = load_system(path)
    assert {kind: system.card_limit(kind) for kind in system.capacity} == {"H100": 24, "H200": None}
    plan = solve(system)
    assert (plan.complete, plan.capacity[0].limit, plan.capacity[1].limit) == (True, 24, None)
    assert plan.capacity[1].used > 0
    assert is_without_notes(run("init", path, *FLAGS[:2], *cards, "--rate", "chat=900/s", "--force").err)


def is_without_notes(text: str) -> bool:
    return "note:" not in text


@pytest.mark.few(1)
@pytest.mark.parametrize("order", [1, -1])
def test_more_of_an_owned_type_costs_the_rent_once(order: int, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "system.yaml"
    both = ["H100:4:2.10USD/h", "H100::3.90USD/h"][::order]
    cards = [part for text in both for part in ("--accelerator", text)]
    assert run("init", path, "--model", "llama-3.1-70b", *cards, "--rate", "chat=4/s").status == 0
    system = load_system(path)
    assert {"H100", "2xH100", "4xH100", "8xH100"} >= {item for _, item in system.profiles}
    assert "8xH100" in system.accelerators  # beyond the owned cards, too
    plan = solve(system)
    (use,) = plan.tiers
    assert use.used > 4
    assert plan.total_cost_cents_per_h == pytest.approx(4 * 210 + (use.used - 4) * 390)


def test_rented_slices_are_priced_by_the_card_with_a_note(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "system.yaml"
    cards = ["--accelerator", "H100:8:2.10USD/h", "--accelerator", "8xH100::31.20USD/h"]
    found = run("init", path, *FLAGS[:2], *cards, *FLAGS[4:])
    assert "note: cards of 8xH100 are rented one by one, at 3.90 USD/h each" in found.err
    assert load_system(path).to_spec().count[0].more_cents_per_h == 390


def test_flags_give_targets_weights_and_saturation(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "system.yaml"
    flags = ["--weights", "FP8", "--target-ttft", "chat=500ms", "--target-itl", "40", "--percentile", "95"]
    assert run("init", path, *FLAGS, *flags, "--saturation", "roundrobin").status == 0
    system = load_system(path)
    target = system.targets["chat", "llama-3.1-8b"]
    assert (target.ttft_ms, target.itl_ms, target.percentile) == (500, 40, 95)
    assert system.options.saturation_policy == "RoundRobin"
    said = "not 'RoundRobbin'; did you mean 'RoundRobin'?"
    is_one_line(run("init", path, *FLAGS, "--saturation", "RoundRobbin"), said)


def test_what_is_left_out_is_said_on_stderr(run: Run, tmp_path: Path) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text("accelerator,price,count\nH100,3 USD/h,8\nH900,1 USD/h,8\n")
    found = run("init", "-", *FLAGS[:2], *FLAGS[4:], "--prices", prices)
    assert "note: left out: H900 (not in the catalogue)\n" in found.err
    found = run("init", "-", *FLAGS[:2], "--accelerator", "L40S:8:1USD/h", *FLAGS[4:])
    assert "note: llama-3.1-8b is not offered on 4xL40S, 8xL40S: at most 2 devices" in found.err


def test_counts_of_price_files_are_defaults_for_flags(tmp_path: Path) -> None:
    prices, path = tmp_path / "prices.csv", tmp_path / "system.yaml"
    prices.write_text("accelerator,price,count\nH100,3 USD/h,8\n")
    flags = [*FLAGS[:2], "--accelerator", "H100", *FLAGS[4:], "--prices", str(prices)]
    assert main(["init", str(path), *flags]) == 0
    assert load_system(path).capacity == {"H100": 8}


def test_the_document_passes_check_without_warnings(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "system.yaml"
    cards = ["--accelerator", "H100:16:3.50USD/h", "--accelerator", "L4:8:0.60USD/h"]
    flags = ["--model", "llama-3.1-8b", "--model", "llama-3.1-70b", *cards, "--rate", "chat=10/s"]
    assert run("init", path, *flags).status == 0
    checked = run("check", path)
    assert (checked.status, checked.err) == (0, "")


def test_use_cases_have_reasons_and_sources(run: Run) -> None:
    assert {"chat", "code-completion", "retrieval", "summaries", "agents", "batch"} <= use_cases().keys()
    for case in use_cases().values():
        assert case.why.endswith(".")
        assert case.source.startswith("lengths")
        assert case.ttft_ms > 0
        assert case.itl_ms > 0
    out = run("init", "--use-cases").out
    assert all(name in out for name in use_cases())


def test_missing_folders_are_rejected(run: Run, tmp_path: Path) -> None:
    is_one_line(run("init", tmp_path / "none" / "system.yaml"), "there is no directory")


# --- prices --------------------------------------------------------------------------------------------

SKYPILOT = """\
InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Price,SpotPrice,Region,AvailabilityZone
p5.48xlarge,192.0,2048.0,H100,8.0,"{'Gpus': []}",98.32,40.5,us-east-1,us-east-1a
p5.48xlarge,192.0,2048.0,H100,8.0,"{'Gpus': []}",110.0,,eu-west-1,eu-west-1a
p4d.24xlarge,96.0,1152.0,A100,8.0,,32.7726,9.9,us-east-1,us-east-1b
p4de.24xlarge,96.0,1152.0,A100-80GB,8.0,,40.97,12.3,us-east-1,us-east-1c
g6.xlarge,4.0,16.0,L4,1.0,,0.8048,0.3,us-east-1,us-east-1b
p3.2xlarge,8.0,61.0,V100,1.0,,3.06,0.9,us-east-1,us-east-1b
half,1,1,L4,0.5,,0.5,0.1,us-east-1,us-east-1b
m5.large,2.0,8.0,,,,0.096,0.04,us-east-1,us-east-1a
"""
"""Rows as in github.com/skypilot-org/skypilot-catalog, schema v5; prices invented."""


def test_skypilot_files_give_the_cheapest_offers(tmp_path: Path) -> None:
    path = tmp_path / "vms.csv"
    path.write_text(SKYPILOT)
    found = read_prices(path)
    assert {offer.name: str(offer.price) for offer in found.offers} == {
        "8xA100-40": "32.7726 USD/h", "8xA100-80": "40.97 USD/h", "8xH100": "98.32 USD/h",
        "L4": "0.8048 USD/h",
    }  # fmt: skip
    assert found.notes == ("left out: 0.5 L4 (part of a card), V100 (not in the catalogue)",)
    spot = {offer.name: float(offer.price) for offer in read_prices(path, spot=True).offers}
    assert spot["8xH100"] == 4050
    (there,) = read_prices(path, region="eu-west-1").offers
    assert (float(there.price), there.place) == (11_000, "eu-west-1")
    with pytest.raises(SpecError, match="no offers in 'mars'; the file has eu-west-1, us-east-1"):
        read_prices(path, region="mars")


VARIANTS = """\
InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice
gpu_1x_h100_pcie,H100,1.0,26.0,200.0,2.49,us-east-1,"{'Gpus': [{'MemoryInfo': {'SizeInMiB': 81920}}]}",
lambdalabs_H100-sxm5x8,H100,8.0,208.0,1800,31.92,us-1,"{'Gpus': [{'MemoryInfo': {'SizeInMiB': 80}}]}",12.0
1x_H100_SECURE,H100-SXM,1.0,16.0,80,2.99,CA,"{'Gpus': [{'Name': 'H100-SXM'}]}",
NC40ads_H100_v5,H100,1.0,40.0,320.0,6.98,eastus,"{'Gpus': [{'MemoryInfo': {'SizeInMiB': 96256}}]}",
pcie_H200,H200,1.0,16.0,80,3.5,CA,"H200 PCIe",
gpu_8x_v100,V100,8.0,92.0,448.0,6.32,us-east-1,"{'Gpus': [{'MemoryInfo': {'SizeInMiB': 16384}}]}",
"""
"""Columns of github.com/skypilot-org/skypilot-catalog, schema v8 (Lambda, Shadeform, RunPod, Azure)."""


def test_one_name_of_two_cards_gives_two_offers(tmp_path: Path) -> None:
    path = tmp_path / "vms.csv"
    path.write_text(VARIANTS)
    found = read_prices(path)
    assert {offer.name: float(offer.price) for offer in found.offers} == {
        "H100-PCIe": 249, "8xH100": 3192, "H100": 299, "H100-NVL": 698,
    }  # fmt: skip
    assert found.notes == (
        "left out: H200 (its variant PCIE is not in the catalogue), V100 (not in the catalogue)",
    )
    spot = read_prices(path, spot=True)
    assert [offer.name for offer in spot.offers] == ["8xH100"]
    assert "1 H100 in us-east-1 (no SpotPrice)" in spot.notes[0]


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("NVIDIA H100 PCIe", "H100-PCIe"), ("NVIDIA H100 80GB HBM3", "H100"), ("H100 SXM", "H100"),
        ("NVIDIA A100-SXM4-80GB", "A100-80"), ("A100 80GB PCIe", "A100-80-PCIe"), ("H100 NVL", "H100-NVL"),
        ("A100 40GB SXM4", "A100-40"), ("NVIDIA L40S", "L40S"), ("L4 PCIe", "L4"),
        ("AMD Instinct MI300X", "MI300X"), ("H100 94GB", "H100-NVL"),
    ],
)  # fmt: skip
def test_variant_and_memory_of_a_name(name: str, card: str, tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text(f"accelerator,price\n{name},2 EUR/h\n")
    assert [offer.name for offer in read_prices(path).offers] == [card]


def test_the_description_states_the_variant(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("accelerator,price,description\nH100,2 EUR/h,80 GB PCIe\nH100,3 EUR/h,80 GB SXM5\n")
    assert [offer.name for offer in read_prices(path).offers] == ["H100", "H100-PCIe"]


def test_a_plain_file_names_its_currency(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("accelerator,price,count\nh100,2.50 EUR/h,16\n8xA100,12 EUR/h,\n")
    found = read_prices(path)
    assert [(offer.name, str(offer.price), offer.count) for offer in found.offers] == [
        ("8xA100-80", "12.00 EUR/h", None), ("H100", "2.50 EUR/h", 16),
    ]  # fmt: skip
    made = [*FLAGS[:2], "--accelerator", "H100:8", "--prices", str(path), "--rate", "chat=1/s"]
    assert main(["init", str(tmp_path / "system.yaml"), *made]) == 0
    assert load_system(tmp_path / "system.yaml").accelerators["2xH100"].cost_cents_per_h == 500


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("accelerator,price\nH100,2.50\n", ":2: price: '2.50'"),
        ("accelerator,price\nH100,250 cents/h\n", "must have a currency"),
        ("gpu,price\nH100,2\n", "the header must name accelerator and price"),
        ("accelerator,price\n", "has no prices"),
        ("accelerator,price\nH100\n", ":2: 1 field, the header has 2"),
        ("accelerator,price,cards\nH100,2 EUR/h,0\n", "cards: must be an integer, at least 1"),
        ("AcceleratorName,AcceleratorCount,Price\nH100,8,dear\n", "Price: must be a number"),
    ],
)
def test_a_wrong_file_of_prices_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text(text)
    with pytest.raises(SpecError) as refused:
        read_prices(path)
    assert problem in str(refused.value)


AMBIGUOUS = """\
InstanceType,AcceleratorName,AcceleratorCount,Price,Region,GpuInfo,SpotPrice
a100_1x,A100,1,1.10,eu-north,"{'Gpus': [{'Name': 'A100', 'MemoryInfo': {'SizeInMiB': 81920}}]}",
a100_4x,A100,4,4.40,eu-north,"{'Gpus': [{'Name': 'A100', 'MemoryInfo': {'SizeInMiB': 81920}}]}",
a100_40,A100,1,0.90,eu-north,"{'Gpus': [{'Name': 'A100', 'MemoryInfo': {'SizeInMiB': 40960}}]}",
"""
"""One family name for cards of two memory sizes, as small clouds write it; prices invented."""


def test_a_name_and_a_memory_can_mean_two_cards(tmp_path: Path) -> None:
    path = tmp_path / "vms.csv"
    path.write_text(AMBIGUOUS)
    found = read_prices(path)
    assert {offer.name: float(offer.price) for offer in found.offers} == {
        "A100-40": 90, "A100-80": 110, "4xA100-80": 440, "A100-80-PCIe": 110, "4xA100-80-PCIe": 440,
    }  # fmt: skip
    assert found.notes == (
        "A100-80 and A100-80-PCIe share family and memory, and the file does not say which it means",
    )


def test_prices_in_two_currencies_are_not_compared(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("accelerator,price\nH100,2.50 EUR/h\nH100,2.60 USD/h\nH100,2.40 EUR/h\n")
    found = read_prices(path)
    assert [str(offer.price) for offer in found.offers] == ["2.40 EUR/h", "2.60 USD/h"]
    assert found.notes == ("prices in EUR and USD are not compared; --currency EUR shows one",)
    (offer,) = read_prices(path, currency="usd").offers
    assert str(offer.price) == "2.60 USD/h"
    with pytest.raises(SpecError, match="no offers in 'GBP'; the file has EUR, USD"):
        read_prices(path, currency="GBP")
    made = [*FLAGS[:2], "--prices", str(path), "--rate", "chat=1/s"]
    assert main(["init", str(tmp_path / "a.yaml"), *made]) != 0
    assert main(["init", str(tmp_path / "a.yaml"), *made, "--currency", "EUR"]) == 0
    path.write_text("accelerator,price,region\nH100,2.50 EUR/h,fr\nH100,2.70 EUR/h,us\n")
    assert [offer.place for offer in read_prices(path, region="us").offers] == ["us"]


def test_messages_show_whole_examples_of_prices(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("accelerator,price\nH100,250 cents/h\n")
    with pytest.raises(SpecError, match=r"must have a currency; write \$2.50/h or 2.50 EUR/h$"):
        read_prices(path)


def test_the_command_shows_prices(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "vms.csv"
    path.write_text(SKYPILOT)
    shown = run("prices", path)
    assert "12.29 USD/h" in shown.out
    assert "left out: 0.5 L4 (part of a card), V100 (not in the catalogue)" in shown.err
    (offer,) = run("prices", path, "--json", "--region", "eu-west-1").json
    assert offer == {
        "accelerator": "H100",
        "cards": 8,
        "price": "110.00 USD/h",
        "place": "eu-west-1",
        "instance": "p5.48xlarge",
    }


def test_two_clouds_stand_side_by_side(tmp_path: Path) -> None:
    for name, price in (("one", 98.32), ("two", 80)):
        rows = f"AcceleratorName,AcceleratorCount,Price,Region\nH100,8,{price},east\n"
        (tmp_path / f"{name}.csv").write_text(rows)
    prices = [f"--prices={name}={tmp_path / f'{name}.csv'}" for name in ("one", "two")]
    path = tmp_path / "clouds.yaml"
    assert main(["init", str(path), "--model", "llama-3.1-70b", *prices, "--rate", "chat=2/s"]) == 0
    system = load_system(path)
    assert list(system.nodes) == ["one/8xH100-node", "two/8xH100-node"]
    plan = solve(system)
    (pool,) = plan.allocations["chat-llama-3.1-70b"]
    assert pool.accelerator == "two/4xH100"
    assert plan.total_cost_cents_per_h == 8000


def test_an_offer_of_several_cards_is_a_node(run: Run, tmp_path: Path) -> None:
    """One replica of four cards and one of one card share a rented node of eight; three cards are free."""
    path = tmp_path / "system.yaml"
    models = ["--model", "llama-3.1-8b", "--model", "llama-3.1-70b"]
    rates = ["--rate", "llama-3.1-8b:chat=10/s", "--rate", "llama-3.1-70b:chat=2/s"]
    found = run("init", path, *models, "--accelerator", "8xH100::28EUR/h", *rates)
    assert "note: 8xH100 is a node: several replicas share its cards" in found.err
    system = load_system(path)
    plan = solve(system)
    (use,) = plan.nodes
    assert (use.node, use.num_nodes, use.free_cards) == ("8xH100-node", 1, 3)
    assert (plan.total_cost_cents_per_h, plan.currency, plan.status) == (2800, "EUR", "optimal")
    assert verify(plan, system) == []


def test_owned_and_rented_nodes_and_single_cards() -> None:
    owned, rented = Offer("H100", 8, Price(2000, "USD"), "", 20), Offer("H100", 8, Price(2800, "USD"))
    facts = start(models=("llama-3.1-8b",), offers=(owned, rented), demands=ONE)
    nodes = system_of(document_of(facts)).nodes
    assert {name: (one.cards, one.max_nodes) for name, one in nodes.items()} == {
        "8xH100-node": (8, 2), "8xH100-rented": (8, None)
    }  # fmt: skip
    assert "4 cards of 8xH100 fill no node of 8 and are not used" in notes_of(facts)
    single = Offer("H100", 1, Price(390, "USD"))
    facts = start(models=("llama-3.1-8b",), offers=(single, rented), demands=ONE)
    system = system_of(document_of(facts))
    assert {one.cards: one.cost_cents_per_h for one in system.nodes.values()} == {
        1: 390, 2: 780, 4: 1560, 8: 2800
    }  # fmt: skip
    assert {card.cost_cents_per_h for card in system.accelerators.values()} == {0}
    two = (owned, Offer("H100", 4, Price(1100, "USD"), "", 8))
    facts = start(models=("llama-3.1-8b",), offers=two, demands=ONE)
    assert [one.max_nodes for one in system_of(document_of(facts)).nodes.values()] == [2, 2]


@pytest.mark.slow
def test_instances_of_a_skypilot_file_are_nodes(tmp_path: Path) -> None:
    path = tmp_path / "vms.csv"
    path.write_text(SKYPILOT)
    offers = read_prices(path, region="us-east-1").offers
    system = system_of(document_of(start(models=("llama-3.1-8b",), offers=offers, demands=ONE)))
    assert {name: (one.type, one.cards) for name, one in system.nodes.items()} == {
        "us-east-1/p4d.24xlarge": ("us-east-1/A100-40", 8),
        "us-east-1/p4de.24xlarge": ("us-east-1/A100-80", 8),
        "us-east-1/p5.48xlarge": ("us-east-1/H100", 8),
    }
    assert "us-east-1/L4" in system.accelerators  # instances of one card need no nodes
    assert verify(solve(system), system) == []
