"""Prefill and decode pools in plans: the choice against enumeration, what plans say, refusals, simulation."""

from typing import Any

import numpy as np
import pytest
import role_oracles
from builders import Json, without_hash
from role_oracles import LAW, best_bill, document, random_role_document, random_running_document
from slow_cases import mostly_slow

from optimizer import SpecError, compare, load_system, simulate, solve, verify
from optimizer.candidates import find_candidates
from optimizer.candidates.arrays import profile_of
from optimizer.compat.disaggregated_rows import DisaggregatedRow
from optimizer.features.disaggregation.parts import RoleTable
from optimizer.features.disaggregation.sections import role_section
from optimizer.features.disaggregation.streams import ROLES
from optimizer.features.disaggregation.topology import RolePoolTopology
from optimizer.features.disaggregation.uses import TtftParts
from optimizer.features.hourly import check_hours
from optimizer.kinds.replicas import LatencyFigures
from optimizer.render.deployments import Deployments, starting_table
from optimizer.render.manifests import variants, with_unused_roles
from optimizer.render.shape_sections import shape_sections
from optimizer.schema.messages import validated
from optimizer.simulation.replicas import Effort
from optimizer.studies.current import current_service


@pytest.mark.parametrize("seed", mostly_slow(range(100), 1))
def test_choice_matches_enumeration_of_all_ways(seed: int) -> None:
    _check_by_enumeration(random_role_document(seed))


@pytest.mark.parametrize("seed", mostly_slow(range(100), 1))
def test_choice_matches_enumeration_where_pools_run_now(seed: int) -> None:
    _check_by_enumeration(random_running_document(seed))


def _check_by_enumeration(source: Json) -> None:
    system = load_system(source)
    plan = solve(system)
    assert plan.status == "optimal"
    assert verify(plan, system) == []
    short, value, changes = best_bill(source)
    levels = {level.name: level.value for level in plan.levels}
    service = [
        levels.pop(name, 0.0)
        for priority in (1, 2)
        for name in (f"priority {priority}: unserved rate", f"priority {priority}: unserved servers")
    ]
    assert service == pytest.approx(short)
    assert [*levels.values()] == pytest.approx([value, changes], abs=1e-4)


@pytest.mark.parametrize("seed", mostly_slow(range(40), 1))
def test_chosen_pools_are_served_together_or_not_at_all(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One share is chosen; each pool of an unserved server counts as unserved."""
    source = random_running_document(seed)
    for server in source["servers"]:
        server["disaggregation"] = "required"
    source["optimizer"]["saturationPolicy"] = ("None", "RoundRobin")[seed % 2]  # nobody is served in part
    monkeypatch.setattr(role_oracles, "SHARES", ("0.2",))
    chosen = tuple((role, "0.2") for role in ROLES)
    system = load_system(source)
    plan = solve(system.partitioned({server["name"]: chosen for server in source["servers"]}))
    for name in system.servers:
        prefill, decode = (plan.allocations.get(f"{name} ({role})") for role in ROLES)
        assert bool(prefill) == bool(decode)
    short, value, changes = best_bill(source)
    levels = {level.name: level.value for level in plan.levels}
    found = [
        levels.get(f"priority {p}: unserved {what}", 0.0) for p in (1, 2) for what in ("rate", "servers")
    ]
    assert found == pytest.approx([2 * missed for missed in short])
    assert (levels["value"], levels["changes"]) == pytest.approx((value, changes), abs=1e-4)


@pytest.mark.parametrize("policy", ["PriorityExhaustive", "PriorityRoundRobin", "RoundRobin"])
@pytest.mark.parametrize("seed", mostly_slow(range(30), 1))
def test_policies_serve_only_other_servers_in_part(seed: int, policy: str) -> None:
    """Full service is that of the enumeration; a server without replicas fits on no cards that are left."""
    source = random_role_document(seed)
    source["optimizer"] |= {"unlimited": False, "saturationPolicy": policy, "delayedBestEffort": True}
    for item in source["count"]:
        item["count"] //= 2
    system = load_system(source)
    plan = solve(system)
    assert verify(plan, system) == []
    wishes = {server["name"]: server.get("disaggregation") for server in source["servers"]}
    partly = {item.server for item in plan.unserved if item.served_fraction}
    assert all(wishes[name] is None for name in partly)
    left = {use.type: use.limit - use.used for use in plan.capacity if use.limit is not None}
    sized = find_candidates(system)
    names = sized.arrays.server_names, sized.arrays.accelerator_names
    able = {(names[0][s], names[1][a]) for s, a in sized.table.pairs()}
    for item in plan.unserved:
        if wishes[item.server] is None and item.server not in partly:
            assert not any(left[name] for name in left if (item.server, name) in able)
    short, _, _ = best_bill(source)
    levels = {level.name: level.value for level in plan.levels}
    whats = [f"priority {p}: unserved {what}" for p in (1, 2) for what in ("rate", "servers")]
    assert [levels.get(what, 0.0) for what in whats] == pytest.approx(short)


def test_left_out_candidates_do_not_change_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the rules that leave out candidates and prefill pools, the levels are the same."""
    source = random_role_document(8)
    with_rules = solve(load_system(source))
    monkeypatch.setattr(RoleTable, "needed", lambda _, server, __: np.ones(len(server), np.bool_))
    monkeypatch.setattr(RolePoolTopology, "usable", lambda _, table: np.ones(len(table), np.bool_))
    assert [level.value for level in solve(load_system(source)).levels] == pytest.approx(
        [level.value for level in with_rules.levels]
    )


# --- what the plan says ----------------------------------------------------------------------------------


def test_a_strict_itl_target_separates_prompts_and_answers() -> None:
    system = load_system(document())
    plan = solve(system)
    assert set(plan.allocations) == {"s (prefill)", "s (decode)"}
    use = plan.disaggregation["s"]
    assert use.reason == "itl"
    assert [pool.role for pool in use.pools] == ["prefill", "decode"]
    assert use.aggregated_alternative is not None
    assert use.disaggregated_alternative is not None
    assert (
        use.cost_cents_per_h == use.disaggregated_alternative.cost_cents_per_h == plan.total_cost_cents_per_h
    )
    assert use.cost_cents_per_h < use.aggregated_alternative.cost_cents_per_h
    alone = solve(load_system(document(None)))
    assert alone.total_cost_cents_per_h == use.aggregated_alternative.cost_cents_per_h
    (prefill,), (decode,) = plan.allocations["s (prefill)"], plan.allocations["s (decode)"]
    parts = use.ttft_parts
    assert parts is not None
    assert parts.handover_ms == 20
    total = parts.prefill_wait_ms + parts.prefill_and_transfer_ms + parts.handover_ms + parts.first_step_ms
    assert total == pytest.approx(prefill.ttft_ms + decode.ttft_ms)
    assert total <= 2000
    assert any("because ITL limits replicas that do both" in note for note in role_section(plan).notes)


def test_both_pools_together_hold_the_target() -> None:
    """The pools of a plan, as a row of `analyze --batch`, meet the percentile whose parts they hold."""
    source = document(itl_ms=14)
    source["serviceClasses"][0]["modelTargets"][0]["percentile"] = 95
    use = solve(load_system(source)).disaggregation["s"]
    prefill, decode = (pool.num_replicas for pool in use.pools)
    pools = {
        "prefillReplicas": prefill, "decodeReplicas": decode, "linkBandwidth": 50, "kvBytesPerToken": 131_072,
        "fixedMs": 20,
    }  # fmt: skip
    row = LAW | {"RPS": 20, "avgInputTokens": 4000, "avgOutputTokens": 250, "inTokensCV": 0,
                 "maxBatchSize": 256, "disaggregated": pools}  # fmt: skip
    found = validated(DisaggregatedRow, row)
    answer, simulated = found.analyze(), found.simulate(Effort(8000))
    for each in (answer, simulated):
        assert isinstance(each, LatencyFigures)
        assert each.p95_ttft_ms <= 2000 * 1.1
        assert each.p95_itl_ms <= 14 * 1.1


def test_a_loose_itl_target_keeps_replicas_that_do_both() -> None:
    use = solve(load_system(document(itl_ms=60))).disaggregation["s"]
    assert (use.pools, use.ttft_parts, use.reason) == ((), None, "cheaper")
    plan = solve(load_system(document("required", itl_ms=60)))
    assert (set(plan.allocations), plan.disaggregation["s"].reason) == (
        {"s (prefill)", "s (decode)"}, "required",
    )  # fmt: skip


@pytest.mark.slow
def test_a_server_is_served_in_full_or_not_at_all() -> None:
    system = load_system(document(cards=2))
    plan = solve(system)
    assert [(item.server, item.reason) for item in plan.unserved] == [("s", "capacity")]
    assert (plan.disaggregation["s"].reason, verify(plan, system)) == ("unserved", [])


@pytest.mark.slow
def test_without_the_field_nothing_changes() -> None:
    source = document("never")
    plain = document(None)
    del plain["models"][0]["kvBytesPerToken"], plain["optimizer"]
    assert without_hash(solve(load_system(source))) == without_hash(solve(load_system(plain)))


LIES: tuple[dict[str, Any], ...] = (
    {"reason": "ttft"},
    {"cost_cents_per_h": 1.0},
    {"decode_share": 0.4},
    {"ttft_parts": TtftParts(prefill_wait_ms=1, prefill_and_transfer_ms=1, handover_ms=20, first_step_ms=1)},
    {"aggregated_alternative": None},
    {"pools": ()},
)


@pytest.mark.slow
@pytest.mark.parametrize("lie", mostly_slow(range(len(LIES)), 1))
def test_a_falsified_plan_is_found(lie: int) -> None:
    system = load_system(document())
    plan = solve(system)
    use = plan.disaggregation["s"].model_copy(update=LIES[lie])
    assert verify(plan.model_copy(update={"disaggregation": {"s": use}}), system)


@pytest.mark.slow
def test_pools_without_a_link_are_found() -> None:
    plan = solve(load_system(document()))
    unlinked = load_system(document() | {"accelerators": [{"name": "H100", "type": "H100", "cost": 300,
                                                            "linkBandwidth": 0}]})  # fmt: skip
    assert any("no link from H100 to H100" in line for line in verify(plan, unlinked))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"models": {"kvBytesPerToken": None}}, "models 'm' on 'H100' has no kvBytesPerToken"),
        ({"accelerators": {"type": "X"}, "count": {"type": "X"}}, "the linkBandwidth of accelerator 'H100'"),
        ({"serviceClasses": {"slo-e2e": 9000}}, "slo-e2e of class 'c' is not planned with it"),
        ({"serviceClasses": {"goodputShare": 0.9}}, "goodputShare of class 'c' is not planned with it"),
    ],
)
def test_what_cannot_be_planned_is_refused_by_name(change: dict[str, Json], message: str) -> None:
    source = document()
    for section, values in change.items():
        item = source[section][0]
        (item["modelTargets"][0] if section == "serviceClasses" else item).update(values)
    with pytest.raises(SpecError) as error:
        load_system(source)
    assert message in str(error.value)
    assert "servers[0].disaggregation" in str(error.value)


def test_studies_of_running_fleets_refuse_the_pools() -> None:
    with pytest.raises(SpecError, match="horizon does not support prefill and decode pools"):
        check_hours(load_system(document()))


@pytest.mark.slow
def test_one_node_holds_both_pools() -> None:
    """Three prefill and three decode replicas fit into a node of eight cards, and another server, too."""
    source = document("required", itl_ms=14)
    del source["accelerators"][0]["cost"], source["count"]
    source["nodes"] = [{"name": "n", "type": "H100", "cards": 8, "cost": 2800, "maxNodes": 1}]
    small = {"load": {"arrivalRate": "1/s", "avgInTokens": 500, "avgOutTokens": 100}}
    source["servers"].append({"name": "t", "class": "c", "model": "m", "currentAlloc": small})
    system = load_system(source)
    plan = solve(system)
    assert verify(plan, system) == []
    assert {name: pools[0].num_replicas for name, pools in plan.allocations.items()} == {
        "s (decode)": 3, "s (prefill)": 3, "t": 1,
    }  # fmt: skip
    use = plan.disaggregation["s"]  # in nodes, a card costs its part of the node
    assert use.cost_cents_per_h == pytest.approx(6 * 2800 / 8)
    assert use.aggregated_alternative is not None
    assert use.aggregated_alternative.cost_cents_per_h > use.cost_cents_per_h
    assert [(use.node, use.num_nodes) for use in plan.nodes] == [("n", 1)]
    source["nodes"][0]["cards"] = 4
    assert solve(load_system(source)).disaggregation["s"].reason == "unserved"


def running(*roles: str, count: int = 3, wish: str = "allowed", itl_ms: float = 14) -> Json:
    """Return the document of `document` with replicas of some roles that run now."""
    source = document(wish, itl_ms)
    source["servers"][0]["currentAlloc"]["pools"] = [
        {"accelerator": "H100", "numReplicas": count, "role": role} for role in roles
    ]
    return source


def test_a_plan_is_applied_with_its_roles() -> None:
    system = load_system(document(itl_ms=14))
    plan = solve(system)
    after = plan.applied_to(system)
    assert [(pool.serving_role, pool.num_replicas) for pool in after.servers["s"].current.pools] == [
        ("prefill", 3), ("decode", 3),
    ]  # fmt: skip
    again = solve(after)
    assert again.changes == ()
    assert verify(again, after) == []


@pytest.mark.slow
def test_pools_that_run_now_are_left_if_replicas_do_both() -> None:
    source = running("prefill", "decode", itl_ms=60)
    source["optimizer"]["transitionPenalty"] = 0
    plan = solve(load_system(source))
    assert {change.server for change in plan.changes} == {"s", "s (decode)", "s (prefill)"}
    assert plan.disaggregation["s"].pools == ()
    after = plan.applied_to(load_system(source)).servers["s"].current
    assert [pool.serving_role for pool in after.stated_pools] == [None]
    source["optimizer"]["transitionPenalty"] = 1  # moving costs more than it saves
    assert {pool.role for pool in solve(load_system(source)).disaggregation["s"].pools} == {
        "prefill",
        "decode",
    }


@pytest.mark.slow
def test_requests_of_both_pools_count_once_in_comparisons() -> None:
    both, alone = load_system(document(itl_ms=14)), load_system(document(None, itl_ms=14))
    found = compare(alone, both)
    assert found.equal_service
    assert found.notes == ()
    total = found.total
    for side in (total.first, total.second):
        assert side is not None
        assert (side.servers, side.served_in_full) == (1, 1)
        assert (side.arrival_rate_rpm, side.carried_rate_rpm) == (1200, 1200)


@pytest.mark.slow
def test_an_idle_server_leaves_both_pools() -> None:
    source = running("prefill", "decode")
    source["servers"][0]["currentAlloc"]["load"]["arrivalRate"] = 0
    system = load_system(source)
    plan = solve(system)
    assert [(change.before[0].num_replicas, change.after) for change in plan.changes] == [(6, ())]
    assert verify(plan, system) == []


@pytest.mark.slow
def test_running_pools_are_measured_as_the_client_sees_them() -> None:
    source = running("prefill", "decode")
    source["serviceClasses"][0]["modelTargets"][0]["percentile"] = 95
    decode, prefill = current_service(load_system(source)).pools
    assert [figure.metric for figure in prefill.targets] == ["ttft"]
    assert [figure.metric for figure in decode.targets] == ["itl"]
    assert prefill.targets[0].limit == pytest.approx(2000)
    parts = solve(load_system(source)).allocations
    own = {role: parts[f"s ({role})"][0] for role in ("prefill", "decode")}
    assert prefill.ttft_ms == pytest.approx(own["prefill"].ttft_ms + own["decode"].ttft_ms)
    assert current_service(load_system(running("prefill", "decode"))).holds
    alone = current_service(load_system(running("prefill")))
    assert [row.problem for row in alone.pools if row.server == "s (decode)"] == ["nothing runs for its load"]


@pytest.mark.slow
def test_running_pools_without_a_link_are_named() -> None:
    source = running("prefill", "decode")
    source["accelerators"][0]["links"] = {"H100": 0}
    rows = {row.server: row.problem for row in current_service(load_system(source)).pools}
    assert rows == {"s (decode)": None, "s (prefill)": "no link to H100"}


def test_a_link_to_an_unknown_type_is_an_error() -> None:
    source = document()
    source["accelerators"][0]["links"] = {"H1O0": 20}
    with pytest.raises(SpecError, match="no accelerator has the type 'H1O0'"):
        load_system(source)


@pytest.mark.slow
def test_prompts_of_a_prefill_pool_stall_no_outputs() -> None:
    source = document("required")
    shapes = [{"name": "chat", "share": 0.9, "avgInTokens": 2000, "avgOutTokens": 250},
              {"name": "docs", "share": 0.1, "avgInTokens": 16000, "avgOutTokens": 250}]  # fmt: skip
    source["servers"][0]["currentAlloc"]["load"] = {"arrivalRate": "10/s", "shapes": shapes}
    (section,) = shape_sections(solve(load_system(source)))
    assert not [note for note in section.notes if "(prefill)" in note]


def test_a_role_needs_pools_by_role() -> None:
    with pytest.raises(SpecError, match=r"pools\[0\].role.*the server has no disaggregation"):
        load_system(running("prefill", wish="never"))


@pytest.mark.slow
def test_each_pool_has_a_deployment_and_a_simulation() -> None:
    system = load_system(document())
    plan = solve(system)
    found, chosen = variants(plan, system), with_unused_roles(plan.planned_in(system))
    assert {(each.server, bool(each.replicas)) for each in found} == {
        ("s", False), ("s (prefill)", True), ("s (decode)", True),
    }  # fmt: skip
    for each in (each for each in found if each.replicas):
        written = Deployments(chosen, starting_table(system), "serving", "vllm").of(each)
        (container,) = written["spec"]["template"]["spec"]["containers"]
        role = written["spec"]["template"]["metadata"]["labels"]["llm-d.ai/role"]
        assert each.server == f"s ({role})"
        assert written["metadata"]["annotations"]["inferplan.dev/role"] == role
        assert any("NixlConnector" in argument for argument in container["command"])
        assert "VLLM_NIXL_SIDE_CHANNEL_HOST" in {one["name"] for one in container["env"]}
    alone = load_system(document(None))
    (both,) = variants(solve(alone), alone)
    assert "kv-transfer" not in str(Deployments(alone, starting_table(alone), "serving", "vllm").of(both))


@pytest.mark.slow
def test_simulated_pools_hold_their_targets() -> None:
    system = load_system(document())
    plan = solve(system)
    names = set(plan.allocations)
    simulated = simulate(system, requests=4000)
    assert {pool.server: pool.verdict for pool in simulated.pools}.keys() == names
    assert all(pool.verdict != "missed" for pool in simulated.pools)


@pytest.mark.slow
def test_estimated_token_times_can_have_links() -> None:
    """Accelerators with links are keys of estimates."""
    source = document()
    source["accelerators"][0] |= {"memSize": 80, "links": {"H100": 40}}
    source["models"][0] |= {"name": "llama-3.1-8b", "perfParms": "estimate"}
    source["serviceClasses"][0]["modelTargets"][0] |= {"model": "llama-3.1-8b", "slo-itl": 30}
    source["servers"][0]["model"] = "llama-3.1-8b"
    stated = solve(load_system(source))
    assert stated.disaggregation["s"].cost_cents_per_h > 0
    del source["models"][0]["kvBytesPerToken"]  # 32 layers, 8 heads of 128, keys and values, 2 bytes: 131,072
    system = load_system(source)
    assert profile_of(system, system.servers["s"], "H100").kv_bytes_per_token == 131_072
    assert without_hash(solve(system)) == without_hash(stated)
