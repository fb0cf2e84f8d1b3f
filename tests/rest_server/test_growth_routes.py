"""Queries of the routes of sweeps and horizons, and what they refuse."""

from api_clients import client
from builders import accelerator, document, server

SOURCE = document(
    [server("chat", 900.0)],
    [accelerator("L4", cost=10.0) | {"tiers": [{"units": 1, "cost": 4, "committed": True}]}],
    {"L4": 4},
    transitionPenalty=0,
)


def test_sweeps_take_several_ranges_and_draw() -> None:
    with client() as service:
        both = service.post("/v1/sweep?vary=load=1,2&vary=count:L4=1,4", json=SOURCE).json()
        assert [axis["parameter"] for axis in both["axes"]] == ["load", "count:L4"]
        picture = service.post("/v1/sweep?vary=load=1,2&format=svg", json=SOURCE)
        assert picture.headers["content-type"].startswith("image/svg+xml")
        wrong = service.post("/v1/sweep?vary=laod=1", json=SOURCE)
        assert wrong.status_code == 422
        assert "did you mean 'load'" in wrong.json()["detail"]
        assert service.post("/v1/sweep", json=SOURCE).status_code == 422
        assert service.post("/v1/sweep?vary=load=1&resume=x", json=SOURCE).status_code == 422


def test_horizons_take_factors_or_loads_by_the_hour() -> None:
    with client() as service:
        answer = service.post("/v1/horizon?factors=0.5&factors=1&factors=2", json=SOURCE)
        assert answer.json()["reservations"][0]["reserved"] == 1
        assert service.post("/v1/horizon?factors=1", json=SOURCE).status_code == 422
        (name,) = {item["name"] for item in SOURCE["servers"]}
        by_hour = service.post(f"/v1/horizon?loads={name}=50,100,200", json=SOURCE)
        assert [hour["loadRpm"] for hour in by_hour.json()["plans"]] == [50, 100, 200]
        for wrong in (
            f"{name}=50",
            "nobody=1,2",
            f"{name}=1,2&loads={name}=1,2",
            f"{name}=1,2&factors=1&factors=2",
        ):
            assert service.post(f"/v1/horizon?loads={wrong}", json=SOURCE).status_code == 422
        assert service.post("/v1/horizon?factors=-1&factors=2", json=SOURCE).status_code == 422


def test_routes_refuse_files_and_programs_of_their_machine() -> None:
    with client() as service:
        for query in (
            "plan?backend=CBC",
            "compare?scale=2&load=/etc/hosts",
            "simulate?trace=/etc/hosts",
            "simulate?plan=/etc/hosts",
            "figure?load=/etc/hosts",
            "sweep?samples=9&trace=/etc/hosts",
            "horizon?trace=/etc/hosts",
        ):
            answer = service.post(f"/v1/{query}", json=SOURCE)
            assert answer.status_code == 422, query
            assert query.partition("?")[2].rpartition("&")[2].partition("=")[0] in answer.json()["detail"]
