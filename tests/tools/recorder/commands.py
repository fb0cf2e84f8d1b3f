"""The questions that documents are asked, by name, and groups of them."""

from recorder.questions import Command, Conversation, Question, Request


def _levels(flags: str) -> Command:
    return Command(f"solve fleet.json --json {flags}", only_levels=True)


def _chosen(questions: dict[str, Question], names: str) -> dict[str, Question]:
    return {name: questions[name] for name in names.split(", ")}


PLANS: dict[str, Question] = {
    "check": Command("check fleet.json"),
    "check json": Command("check fleet.json --json"),
    "candidates": Command("candidates fleet.json"),
    "candidates json": Command("candidates fleet.json --json"),
    "solve": Command("solve fleet.json --json -o plan.json", writes="plan.json"),
    "solve tables": Command("solve fleet.json"),
    "solve wide": Command("solve fleet.json --wide"),
    "solve csv": Command("solve fleet.json --csv"),
    "solve mixed": Command("solve fleet.json --mixed --json"),
    "solve unlimited": Command("solve fleet.json --unlimited --json"),
    "solve greedy": Command("solve fleet.json --solver greedy --json"),
    "verify": Command("verify plan.json fleet.json --json"),
    "compare": Command("compare fleet.json"),
    "compare json": Command("compare fleet.json --json"),
    "compare load": Command("compare fleet.json --scale 1.3 --json"),
    "report": Command("report fleet.json"),
    "report json": Command("report fleet.json --json"),
    "manifests": Command("manifests plan.json --system fleet.json"),
    "manifests keda": Command("manifests plan.json --scaled-objects"),
}
"""What takes no longer than a few solves. The plan of ``solve`` is a file for what follows."""
MORE_PLANS: dict[str, Question] = {
    "candidates csv": Command("candidates fleet.json --csv"),
    "candidates sized": Command("candidates fleet.json --batch-sizing optimal --json"),
    "solve sized": Command("solve fleet.json --batch-sizing optimal --json"),
    "solve middle": Command("solve fleet.json --estimates middle --json"),
    "solve both": Command("solve fleet.json --unlimited --mixed --json"),
    "verify proof": Command(
        "verify proved.json fleet.json --proof proof.json",
        before="solve fleet.json -o proved.json --proof proof.json",
    ),
    "compare options": Command("compare fleet.json --with-options heterogeneous=true --json"),
    "compare random": Command("compare fleet.json --random-load 3"),
    "report files": Command(
        "report fleet.json -o page.html --csv pools.csv --date today", writes="page.html pools.csv"
    ),
    "manifests prometheus": Command(
        "manifests plan.json --prometheus http://prometheus:9090 --no-replicas --namespace llm"
    ),
    "convert": Command("convert fleet.json -o other.yaml", writes="other.yaml"),
}
"""Options, files and other views."""
STUDIES: dict[str, Question] = {
    "explain": Command("explain fleet.json"),
    "explain json": Command("explain fleet.json --json"),
    "explain server": Command("explain fleet.json --server {server}"),
    "simulate": Command("simulate fleet.json --plan plan.json --requests 500"),
    "simulate json": Command("simulate fleet.json --plan plan.json --requests 500 --json"),
    "simulate csv": Command("simulate fleet.json --plan plan.json --requests 500 --seed 2 --csv"),
    "repair": Command("solve fleet.json --simulate --repair --requests 500 --json"),
    "report simulated": Command("report fleet.json --simulate --requests 500"),
}
"""What solves or simulates many times."""
_OF_PLANS = ("load", "assignment", "types", "targets")
_OF_SERVERS = "batch", "latency", "distribution", "cost"
PLOTS: dict[str, Question] = {
    **{f"plot {kind}": Command(f"plot {kind} fleet.json --json") for kind in _OF_PLANS},
    **{f"plot {kind}": Command(f"plot {kind} fleet.json --json --server {{server}}") for kind in _OF_SERVERS},
}
"""The numbers of every picture."""

_READ = tuple(
    Request("GET", path)
    for path in (
        "/getAccelerators", "/getAccelerator/{accelerator}", "/getCapacities", "/getModels",
        "/getModel/{model}", "/getServiceClasses", "/getServiceClass/{class}",
        "/getServiceClassModelTarget/{class}/{model}", "/getServers", "/getServer/{server}",
        "/getModelAcceleratorPerf/{model}/{accelerator}",
    )
)  # fmt: skip
_WRITTEN = {
    "/setAccelerators": "accelerators",
    "/setModels": "models",
    "/setServiceClasses": "serviceClasses",
    "/setServers": "servers",
    "/setCapacities": "count",
    "/optimize": "optimizer",
}
"""Routes of the reference that take a section."""
_NEW_TARGET = {"name": "new", "modelTargets": [{"model": "m"}]}
_NEW_SERVER = {"name": "added", "class": "none", "model": "none"}
_COMPUTED = (
    "plan", "candidates", "compare", "report", "plan?solver=greedy", "plan?mixed=true&unlimited=true",
    "report?format=markdown", "report?format=csv", "figure?kind=targets",
)  # fmt: skip
_STUDIED = ("explain", "simulate?requests=500")
_HELD = ("fleet", "plan", "targets", "history", "servers", "optimizer", "targets/{server}/{accelerator}")
WIRE: dict[str, Question] = {
    "wire": Conversation((Request("POST", "/optimizeOne", section="*"), *_READ)),
    "wire fleet": Conversation(
        (
            *(Request("POST", path, section=section) for path, section in _WRITTEN.items()),
            *_READ,
            Request("GET", "/applyAllocation"),
            Request("GET", "/getServers"),
            Request("POST", "/addServiceClassModelTargets", _NEW_TARGET),
            Request("POST", "/addServer", _NEW_SERVER),
            Request("GET", "/removeServer/{server}"),
            Request("GET", "/removeAccelerator/{accelerator}"),
            Request("GET", "/removeAccelerator/unknown"),
            Request("POST", "/optimize", {}),
        ),
        stateful=True,
    ),
    "v1": Conversation(tuple(Request("POST", f"/v1/{name}", section="*") for name in _COMPUTED)),
    "v1 studies": Conversation(tuple(Request("POST", f"/v1/{name}", section="*") for name in _STUDIED)),
    "v1 fleet": Conversation(
        (
            Request("GET", "/v1/plan"),
            Request("PUT", "/v1/fleet", section="*"),
            Request("POST", "/v1/loads", {}),
            *(Request("GET", f"/v1/{name}") for name in _HELD),
            Request("POST", "/v1/plan/apply"),
            Request("POST", "/v1/fleet/compare?scale=1.2"),
            Request("POST", "/v1/fleet/report?format=markdown"),
            Request("DELETE", "/v1/servers/{server}"),
            Request("DELETE", "/v1/servers/{server}"),
            Request("POST", "/v1/loads", {"unknown": {"arrivalRate": 5}}),
            Request("GET", "/v1/history"),
        ),
        stateful=True,
    ),
}
"""The reference's routes and those of the project's own API."""

SMALL = PLANS | MORE_PLANS | STUDIES | PLOTS | WIRE
"""Everything."""
GIVEN_BATCHES = {name: one for name, one in SMALL.items() if not name.endswith(" sized")}
"""Everything but batch sizes to choose, for what takes long to size."""
FEW_SOLVES = _chosen(
    PLANS, "candidates json, solve, solve mixed, solve unlimited, solve greedy, verify, manifests"
)
"""For large fleets."""
STOPPED = _chosen(PLANS, "candidates json, solve unlimited, solve greedy") | {
    "levels": _levels("--limited"),
    "levels mixed": _levels("--mixed"),
}
"""For fleets whose best plan is not proved in bounded time."""
REFUSED = _chosen(SMALL, "check, check json, candidates, solve, explain, wire, wire fleet, v1, v1 fleet")
"""For documents that are wrong."""
