"""Dead letters over HTTP."""

from __future__ import annotations

import httpx

from tests.unit.http.fake_edge import NOW_MS, FakeEdge
from turnyard.state.dead import DeadLetter, Decision


def letter(name: str, tenant: str = "default") -> DeadLetter:
    return DeadLetter(name, "unreadable", "retry it", NOW_MS, tenant, "s1", job="job_1", kind="user", came={"v": "9"})


async def test_a_tenants_letters_are_listed_page_by_page(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    edge.letters = [letter("0.3-0"), letter("0.2-0"), letter("0.1-0", "other")]
    answer = (await http.get("/v1/dead", params={"limit": 1})).json()
    assert answer["next"] == "0.3-0"
    assert answer["data"][0] == {
        "id": "0.3-0",
        "object": "dead_letter",
        "reason": "unreadable",
        "fix": "retry it",
        "at": "2026-09-21T14:13:20.000Z",
        "session": "s1",
        "job": "job_1",
        "turn": None,
        "agent": None,
        "call": None,
        "kind": "user",
        "came": {"v": "9"},
    }
    answer = (await http.get("/v1/dead", params={"before": "0.3-0"})).json()
    assert ([x["id"] for x in answer["data"]], answer["next"]) == (["0.2-0"], None)


async def test_a_letter_is_sent_again(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    edge.decisions = {"0.1-0": Decision("done", job="job_2"), "0.2-0": Decision("refused", why="the session is busy")}
    answer = await http.post("/v1/dead/0.1-0/retry")
    assert (answer.status_code, answer.json()["job"]) == (200, "job_2")
    answer = await http.post("/v1/dead/0.2-0/retry")
    assert (answer.status_code, answer.json()["detail"]) == (409, "the session is busy")
    answer = await http.post("/v1/dead/0.3-0/retry")
    assert (answer.status_code, answer.json()["code"]) == (404, "not-found")
