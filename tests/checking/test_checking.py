"""What `check` finds: all that is wrong at once, with its line, and what is odd in what is valid."""

from pathlib import Path
from typing import Any

import pytest
from builders import accelerator, document, server

from optimizer import SpecError, load_system
from optimizer.checking.checks import check_documents
from optimizer.spec.writing import write_document

A = [accelerator("A")]
BROKEN = """\
accelerators:
  - {name: H100, type: H100, cost: 250}
  - name: L4
    type: L4
    cost: cheap
    colour: red
models:
  - {name: llama, acc: H10, decodeParms: {alpha: 1, beta: 1}, prefillParms: {gamma: 1, delta: 0}}
servers:
  - name: s
    modle: llama
    currentAloc: {load: {arrivalrate: 5}}
  - name: t
    model: lama
    class: Gold
  - {name: t, model: llama, class: Premium, currentAlloc: {load: {arivalRate: 1, avgOutTokens: 0.3}}}
serviceClases: []
serviceClasses:
  - {name: Premium, modelTargets: [{model: llama, slo-itl: -1}, {model: llama}]}
optimizer: {saturationPolicy: RoundRobbin}
"""
FOUND = [
    ("5:5: accelerators[1].cost", 'must be a number, not "cheap"'),
    ("6:5: accelerators[1].colour", "unknown key; remove it or correct its spelling"),
    ("8:19: models[0].acc", "accelerator 'H10' does not exist; did you mean 'H100'?"),
    ("10:5: servers[0].model", "missing; this key is required"),
    ("11:5: servers[0].modle", "unknown key; did you mean 'model'?"),
    ("12:5: servers[0].currentAloc", "unknown key; did you mean 'currentAlloc'?"),
    ("14:5: servers[1].model", "model 'lama' does not exist; did you mean 'llama'?"),
    ("15:5: servers[1].class", "service class 'Gold' does not exist; add it, or correct 'class'"),
    ("16:5: servers[2]", "'t' occurs twice; it is also at PATH:13:5: servers[1]"),
    ("16:67: servers[2].currentAlloc.load.arivalRate", "unknown key; did you mean 'arrivalRate'?"),
    ("17:1: serviceClases", "unknown key; did you mean 'serviceClasses'?"),
    ("19:51: serviceClasses[0].modelTargets[0].slo-itl", "must be at least 0, not -1"),
    ("19:66: serviceClasses[0].modelTargets[1].model", "'llama' occurs twice in class 'Premium'"),
    (
        "20:13: optimizer.saturationPolicy",
        (
            "must be 'None', 'PriorityExhaustive', 'PriorityRoundRobin' or 'RoundRobin', "
            "not \"RoundRobbin\"; did you mean 'RoundRobin'?"
        ),
    ),
]


def faults(path: Path) -> list[str]:
    return [str(fault) for fault in check_documents(path).faults]


def warnings(source: dict[str, Any], folder: Path) -> list[str]:
    path = folder / "system.yaml"
    write_document(source, path)
    found = check_documents(path)
    assert not found.faults
    return [f"{warning.path}: {warning.problem}" for warning in found.warnings]


def test_all_errors_are_found_with_line_and_suggestion(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(BROKEN)
    assert faults(path) == [f"{path}:{where}: {text.replace('PATH', str(path))}" for where, text in FOUND]


def test_every_other_command_says_the_first_of_them(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(BROKEN)
    with pytest.raises(SpecError) as caught:
        load_system(path)
    where, text = FOUND[0]
    assert str(caught.value) == f"{path}:{where}: {text} (and 8 more errors)"


def test_invalid_yaml_hides_no_errors_of_other_files(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.yaml").write_text("servers:\n- {name: s, model: [}\n")
    (tmp_path / "b.json").write_text('{"count": [{"type": "A", "count": 1},\n{"type": "A", "count": -2}]}')
    again = tmp_path / "c.yaml"
    again.write_text("models:\n- {name: m, acc: Q}\n- {name: m, acc: Q}\n")
    assert faults(tmp_path) == [
        (
            f"{tmp_path}/a.yaml:2:21: "
            "not valid YAML: while parsing a flow node, did not find expected node content"
        ),
        f"{tmp_path}/b.json:2:15: count[1].count: must be at least 0, not -2",
        f"{again}:3:3: models[1]: 'm' on 'Q' occurs twice; it is also at {again}:2:3: models[0]",
    ]


def test_names_of_broken_items_are_not_reported_missing(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("accelerators: [{nme: A, type: A}]\nmodels: [{name: m, acc: A}]\n")
    assert faults(path) == [
        f"{path}:1:16: accelerators[0].name: missing; this key is required",
        f"{path}:1:17: accelerators[0].nme: unknown key; did you mean 'name'?",
    ]


def test_no_more_than_a_thousand_faults_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"servers": [' + ",".join(["7"] * 5000) + "]}")
    assert len(faults(path)) == 1000


# --- warnings ------------------------------------------------------------------------------------------


def test_the_samples_are_without_warnings(specs: Path) -> None:
    for name in ("small", "long-prompts.yaml"):
        found = check_documents(specs / name)
        assert (found.faults, found.warnings) == ((), ())
    found = check_documents(specs / "large")  # its replicas of 70B take two slices of two cards
    assert [warning.path for warning in found.warnings] == ["models[136].accCount"]


def test_unservable_servers_are_named_with_the_nearest_miss(tmp_path: Path) -> None:
    source = document([server("s"), server("t", service="fast")], A, {"A": 9})
    source["serviceClasses"].append({"name": "fast", "modelTargets": [{"model": "m", "slo-itl": 1}]})
    assert warnings(source, tmp_path) == [
        (
            "servers[1]: no accelerator can serve it (slo_unattainable): "
            "A: best ITL at batch 1 is 10.5 ms, target 1 ms"
        )
    ]


def test_missing_capacities_and_token_times_are_named_once(tmp_path: Path) -> None:
    slices = [accelerator("A"), accelerator("B"), accelerator("2xB", "B", multiplicity=2)]
    source = document([server("s")], slices, {"A": 9})
    source["models"][2] = {"name": "m", "acc": "2xB"}
    assert warnings(source, tmp_path) == [
        "accelerators[1].type: type 'B' is not listed in count, so a limited plan has no card of it",
        "models[2]: no token times are given, so the model cannot run there; give perfParms or decodeParms",
    ]


LAW = {"name": "m", "acc": "A", "perfParms": {"alpha": 10, "beta": 0.5}, "maxBatchSize": 8}


def with_rate(rate: object) -> dict[str, Any]:
    load = {"arrivalRate": rate, "avgInTokens": 0, "avgOutTokens": 64}
    return document([server("s") | {"currentAlloc": {"load": load}}], A)


def with_target(**target: object) -> dict[str, Any]:
    classes = [{"name": "gold", "modelTargets": [{"model": "m"} | target]}]
    return document([server("s", rate=0)], A, models=[LAW], classes=classes)


def with_card(**card: object) -> dict[str, Any]:
    return document([server("s")], [{"type": card["name"]} | card])


def with_cards(name: str, multiplicity: int) -> dict[str, Any]:
    return document([server("s")], [accelerator(name, "A", multiplicity=multiplicity)])


def with_counted(multiplicity: int, count: int) -> dict[str, Any]:
    found = with_cards("A", multiplicity)
    found["models"] = [{**entry, "accCount": count} for entry in found["models"]]
    return found


DOLLARS = "cost is in cents, not dollars"
PER_MINUTE = "write 8/s if the rate is per second"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (with_card(name="H100", cost=2.5), DOLLARS),  # by the catalogue's bandwidth of 3.35 TB/s
        (with_card(name="H100", cost=250.0), None),
        # half a p5 on demand, in dollars
        (with_card(name="4xH100", type="H100", cost=49.16, multiplicity=4), DOLLARS),
        (with_card(name="L4", cost=0.71), DOLLARS),
        (with_card(name="L4", cost=6.0), None),  # as in the samples
        (with_card(name="own", memBW=2000.0, cost=1.9), DOLLARS),
        (with_card(name="own", memBW=2000.0, cost=40.0), None),
        (with_card(name="own", cost=0.9), DOLLARS),
        (with_card(name="own", cost=1.1), None),
        (with_rate(8), PER_MINUTE),  # of about 540 requests/min that a replica carries (builders.profile)
        (with_rate(60), None),
        (with_rate("8/min"), None),  # says its unit
        (with_rate("0.14/s"), None),
        (with_rate(0), None),
        (with_cards("4xA", 1), "'4xA' has one card, although its name says 4"),
        (with_cards("4xA", 2), "'4xA' has 2 cards, although its name says 4"),
        (with_cards("4xA", 4), None),
        (with_cards("A", 4), None),
        (
            with_counted(4, 4),
            "a replica takes 16 cards, accCount 4 of 'A' with 4 cards each",
        ),
        (with_counted(4, 1), None),
        (with_counted(1, 4), None),
        (with_target(**{"slo-ttft": "5ms", "slo-itl": "900us"}), None),  # say their units
        (with_target(**{"slo-itl": 20, "maxLoss": "none"}), None),
        (with_target(**{"slo-itl": 20, "maxLoss": "60%"}), None),
        (with_target(**{"slo-itl": 20, "percentile": 50}), None),
        (with_target(**{"slo-itl": 20, "goodputShare": 0.5}), None),
    ],
)
def test_only_what_is_odd_is_noticed(tmp_path: Path, source: dict[str, Any], said: str | None) -> None:
    found = warnings(source, tmp_path)
    assert len(found) == (said is not None)
    assert all(said in text for text in found if said is not None)


def test_a_missing_price_among_priced_accelerators_warns(tmp_path: Path) -> None:
    free = {"name": "B", "type": "B"}
    source = document([server("s")], [accelerator("A"), free])
    said = "accelerators[1]: 'B' has no cost and counts as free beside others that have one"
    assert warnings(source, tmp_path) == [said]
    assert warnings(document([server("s")], [free]), tmp_path) == []


SLIPS = """\
accelerators:
  - {name: H100, type: H100, cost: 350}
  - {name: h100, type: h100, cost: 350}
  - {name: 4xH100, type: H100, cost: 1400}
  - {name: L4, type: L4, cost: 60}
models:
  - {name: m, acc: H100, maxBatchSize: 8, perfParms: {alpha: 10, beta: 0.5}}
  - {name: m, acc: h100, maxBatchSize: 8, perfParms: {alpha: 10, beta: 0.5}}
  - {name: m, acc: 4xH100, maxBatchSize: 8, perfParms: {alpha: 10, beta: 0.5}}
  - {name: old, acc: H100, maxBatchSize: 8, perfParms: {alpha: 10, beta: 0.5}}
serviceClasses:
  - name: gold
    modelTargets:
      - {model: m, slo-itl: 20, percentile: 0.95}
      - {model: mm, slo-itl: 20}
      - {model: old, slo-ttft: 0.5, goodputShare: 0.05}
  - {name: silver}
  - {name: Gold, modelTargets: [{model: m, slo-itl: 20, maxLoss: 1}]}
servers:
  - {name: a, class: gold, model: m, currentAlloc: {accelerator: B, load: {arrivalRate: 8, avgInTokens: 0, avgOutTokens: 64}}}
  - {name: b, class: silver, model: m, currentAlloc: {load: {avgInTokens: 16, avgOutTokens: 64}}}
count:
  - {type: H100, count: 8}
  - {type: A10, count: 8}
"""  # noqa: E501 - places are those of one line
SAID = [
    "3:6: accelerators[1].name: 'h100' and 'H100' are two different accelerators",
    "3:18: accelerators[1].type: type 'h100' is not listed in count",
    "3:18: accelerators[1].type: 'h100' and 'H100' are two different accelerator types",
    "4:5: accelerators[2]: '4xH100' has one card, although its name says 4",
    "5:5: accelerators[3]: no model has a profile on 'L4', so nothing can run there",
    "5:16: accelerators[3].type: type 'L4' is not listed in count",
    "10:5: models[3]: no server uses the model 'old'",
    (
        "14:33: serviceClasses[0].modelTargets[0].percentile: only the fastest 0.95 % of requests must meet "
        "the target; did you mean 95?"
    ),
    (
        "15:10: serviceClasses[0].modelTargets[1].model: the target has no effect: model 'mm' "
        "does not exist; did you mean 'm'?"
    ),
    "16:22: serviceClasses[0].modelTargets[2].slo-ttft: 0.5 is in milliseconds; write 0.5s for seconds",
    (
        "16:37: serviceClasses[0].modelTargets[2].goodputShare: 95% of requests may miss their targets; did "
        "you mean 0.95?"
    ),
    "17:5: serviceClasses[1]: the class 'silver' is empty",
    "18:6: serviceClasses[2].name: 'Gold' and 'gold' are two different service classes",
    "18:57: serviceClasses[2].modelTargets[0].maxLoss: 100% of requests may be rejected; this is a share",
    "20:53: servers[0].currentAlloc.accelerator: the server cannot stay on it: accelerator 'B' does",
    (
        "20:76: servers[0].currentAlloc.load.arrivalRate: 8 requests/min take at most 1.5% of one replica; "
        "write 8/s if the rate is per second, or 8/min"
    ),
    "21:5: servers[1]: no arrivalRate is given, so the server counts as idle",
    "24:6: count[1].type: nothing can run on these cards: accelerator type 'A10' does not exist",
]


def test_likely_slips_are_named_with_their_places(tmp_path: Path) -> None:
    path = tmp_path / "mistakes.yaml"
    path.write_text(SLIPS)
    found = check_documents(path)
    assert not found.faults
    for warning, said in zip(found.warnings, SAID, strict=True):
        assert str(warning).startswith(f"{path}:{said}")


def test_servers_of_routes_need_no_rate() -> None:
    found = check_documents(Path(__file__).parents[2] / "specs" / "routes.yaml")
    assert (found.faults, found.warnings) == ((), ())


def test_rates_are_judged_by_their_text_in_every_format(tmp_path: Path) -> None:
    source = document([server("s", rate=8)], A)
    load = source["servers"][0]["currentAlloc"]["load"]
    source["servers"][0]["currentAlloc"]["load"] = {key.upper(): value for key, value in load.items()}
    assert (
        len(warnings({"system": {"serverData": {"servers": source.pop("servers")}}} | source, tmp_path)) == 1
    )


def test_a_document_without_servers_may_be_a_part(tmp_path: Path) -> None:
    source = document([], A)
    assert warnings(source, tmp_path) == []
    assert warnings({"accelerators": source["accelerators"]}, tmp_path) == []


def test_a_class_of_offline_work_needs_no_targets(tmp_path: Path) -> None:
    path, text = tmp_path / "offline.yaml", SLIPS.partition("servers:")
    load = "currentAlloc: {load: {avgInTokens: 16, avgOutTokens: 64}}"
    work = f"deadline: {{requests: 1000, hours: 8}}, {load}"
    for given, is_said in ((load, True), (work, False)):
        path.write_text(f"{text[0]}servers:\n  - {{name: b, class: silver, model: m, {given}}}\n")
        said = [str(warning) for warning in check_documents(path).warnings]
        assert any("the class 'silver' is empty" in line for line in said) == is_said


def test_targets_of_unknown_shapes_are_named(tmp_path: Path) -> None:
    """A misspelt name of a shape would otherwise promise nothing, without a word."""
    shapes = [
        {"name": "docs", "share": 0.1, "avgInTokens": 4000, "avgOutTokens": 30},
        {"name": "chat", "share": 0.9, "avgInTokens": 300, "avgOutTokens": 30},
    ]
    own = server("s") | {"currentAlloc": {"load": {"arrivalRate": "1/s", "shapes": shapes}}}
    target = {
        "model": "m",
        "slo-ttft": 9000,
        "shapes": {"doc": {"slo-ttft": "1s"}, "chat": {"slo-ttft": "1s"}},
    }
    law = {"name": "m", "acc": "A", "maxBatchSize": 8, "perfParms": {"alpha": 10, "beta": 0.1, "gamma": 1e-4}}
    source = document([own], A, classes=[{"name": "gold", "modelTargets": [target]}], models=[law])
    path = tmp_path / "fleet.json"
    write_document(source, path)
    assert [fault.problem for fault in check_documents(path).warnings] == [
        "the target has no effect: shape 'doc' does not exist; did you mean 'docs'?"
    ]
