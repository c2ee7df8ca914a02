"""What a follower of a session or a job sees."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import httpx
import pytest

from platforms.http.app import create_app
from platforms.http.desk import Desk
from platforms.http.options import HttpOptions
from tests.unit.http.fake_edge import NOW_MS, FakeEdge
from tests.unit.http.server import reading, served
from turnyard.clock import SystemClock
from turnyard.records import log
from turnyard.records.ids import session_key
from turnyard.records.live import progress_text
from turnyard.records.sse import Event
from turnyard.state.sessions import ParkedCall
from turnyard.testing import wait_until

EVENTS = "/v1/sessions/s1/events"


def names(events: list[Event]) -> list[str]:
    return [event.event for event in events]


def data(event: Event) -> dict[str, Any]:
    return json.loads(event.data)


async def submitted(edge: FakeEdge, desk: Desk, session: str = "s1", **more: Any) -> str:
    transport = httpx.ASGITransport(create_app(desk))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        response = await client.post("/v1/jobs", json={"agent": "hello", "input": "hi", "session": session, **more})
    assert response.status_code == 202
    return response.json()["id"]


async def test_a_stream_begins_with_hello_and_goes_on_with_what_happens(edge: FakeEdge, desk: Desk) -> None:
    job = await submitted(edge, desk)
    async with served(desk) as url, reading(url, EVENTS) as reader:
        assert reader.response.headers["content-type"].startswith("text/event-stream")
        assert reader.response.headers["request-id"]
        hello = await reader.next()
        assert hello is not None
        assert (hello.event, hello.retry_ms, hello.id) == ("hello", 2000, "")
        assert data(hello)["data"] == {"position": "0.0-0", "state": "idle", "oldest": "0.0-0"}
        edge.run_turn("s1", job)
        events = await reader.until("turn/end")
        assert names(events) == ["turn/start", "inbox/claimed", "message/start", "message/end", "turn/end"]
        assert [event.id for event in events] == ["", "0.1-0", "0.1-0", "0.2-0", "0.2-0"]
        final = await reader.next()
        assert final is not None
        assert (final.event, final.id, data(final)["data"]["state"]) == ("job", "0.3-0", "succeeded")


async def test_every_event_says_where_it_belongs(edge: FakeEdge, desk: Desk) -> None:
    job = await submitted(edge, desk)
    edge.run_turn("s1", job)
    async with served(desk) as url, reading(url, EVENTS) as reader:
        for event in await reader.until("job"):
            envelope = data(event)
            assert set(envelope) == {"type", "session", "turn", "job", "seq", "at", "data"}
            assert (envelope["type"], envelope["session"]) == (event.event, "s1")
            if event.event != "hello":
                assert (envelope["turn"], envelope["job"]) == ("turn_1", job)


async def test_a_message_is_told_whole_at_its_end(edge: FakeEdge, desk: Desk) -> None:
    job = await submitted(edge, desk)
    edge.run_turn("s1", job, text="it is 5")
    async with served(desk) as url, reading(url, EVENTS) as reader:
        end = (await reader.until("message/end"))[-1]
        assert data(end)["data"] == {"role": "assistant", "text": "it is 5", "model": "m", "usage": {"input_tokens": 3}}
        turn_end = (await reader.until("turn/end"))[-1]
        assert data(turn_end)["data"]["message"]["text"] == "it is 5"
        assert data(turn_end)["data"]["stop_reason"] == "finished"


async def test_deltas_come_between_the_start_and_the_end_of_their_message(edge: FakeEdge, desk: Desk) -> None:
    await submitted(edge, desk)
    edge.write("s1", log.USER, turn="turn_1", jobs=("job_1",))
    edge.live("s1", 1, "text", "it is ")
    edge.live("s1", 2, "text", "5")
    edge.write("s1", log.ASSISTANT, turn="turn_1", body={"text": "it is 5"})
    async with served(desk) as url, reading(url, EVENTS) as reader:
        events = (await reader.until("message/end"))[3:]
        assert names(events) == ["message/start", "message/update", "message/update", "message/end"]
        assert [data(e)["data"].get("delta") for e in events] == [None, "it is ", "5", None]
        assert [e.id for e in events[1:]] == ["0.1-1", "0.1-2", "0.2-0"]
    async with served(desk) as url, reading(url, EVENTS + "?deltas=false") as reader:
        assert "message/update" not in names(await reader.until("message/end"))


async def test_a_call_and_its_result_are_told_with_the_tool_s_name(edge: FakeEdge, desk: Desk) -> None:
    edge.session("s1")
    edge.write("s1", log.CALL, turn="t", call="call_1", kind="plain", body={"name": "add", "args": {"a": 2}})
    edge.write("s1", log.RESULT, turn="t", call="call_1", outcome="result", body={"content": "5", "is_error": False})
    edge.write("s1", log.CALL, turn="t", call="call_2", kind="plain", body={"name": "pay", "args": {}})
    edge.write("s1", log.RESULT, turn="t", call="call_2", outcome="unknown")
    edge.write("s1", log.PARKED, turn="t", call="call_3", kind="callback", outcome="awaited", extra={"dl": "1790000000000"})
    edge.write("s1", log.RESOLVED, turn="t", call="call_3", outcome="result", extra={"by": "callback"})
    async with served(desk) as url, reading(url, EVENTS) as reader:
        events = {f"{e.event} {data(e)['data'].get('call')}": data(e)["data"] for e in await reader.until("call/resolved")}
    assert events["tool/call call_1"] == {"call": "call_1", "name": "add", "args": {"a": 2}}
    assert events["tool/result call_1"]["content"] == "5"
    assert (events["tool/result call_1"]["name"], events["tool/result call_1"]["is_error"]) == ("add", False)
    assert (events["tool/result call_2"]["name"], events["tool/result call_2"]["is_error"]) == ("pay", True)
    assert "unknown" in events["tool/result call_2"]["content"]
    assert events["call/parked call_3"] == {"call": "call_3", "kind": "callback", "wait": True, "expires_at": "2026-09-21T14:13:20.000Z"}
    assert events["call/resolved call_3"] == {"call": "call_3", "outcome": "result", "by": "callback"}


@pytest.mark.spec("L50", "rival-52")
@pytest.mark.parametrize("how", ["header", "query"])
async def test_a_follower_that_comes_back_gets_exactly_what_it_missed(edge: FakeEdge, desk: Desk, how: str) -> None:
    job = await submitted(edge, desk)
    edge.run_turn("s1", job)
    async with served(desk) as url:
        async with reading(url, EVENTS) as reader:
            whole = (await reader.until("job"))[1:]
        carriers = [i for i, event in enumerate(whole) if event.id and event.id != (whole[i - 1].id if i else "")]
        assert [whole[i].id for i in carriers] == ["0.1-0", "0.2-0", "0.3-0"]
        for i in carriers[:-1]:
            path = EVENTS if how == "header" else f"{EVENTS}?after={whole[i].id}"
            headers = {"Last_Event_ID": whole[i].id} if how == "header" else {}
            async with reading(url, path, **headers) as reader:
                assert names((await reader.until("job"))[1:]) == names(whole[i + 1 :])


async def test_a_follower_that_comes_back_in_mid_turn_is_not_told_of_its_start_again(edge: FakeEdge, desk: Desk) -> None:
    job = await submitted(edge, desk)
    edge.run_turn("s1", job)
    async with served(desk) as url, reading(url, EVENTS, Last_Event_ID="0.1-0") as reader:
        events = await reader.until("turn/end")
        assert names(events) == ["hello", "message/start", "message/end", "turn/end"]
        assert data(events[-1])["job"] == job
        assert data(events[-1])["data"]["steps"] == 1


@pytest.mark.spec("rival-52")
async def test_records_that_are_gone_are_announced_as_a_gap(edge: FakeEdge, desk: Desk) -> None:
    edge.session("s1")
    for n in range(5):
        edge.write("s1", log.CALL, turn="t", call=f"call_{n}", body={"name": "add", "args": {}})
    key = session_key("default", "s1")
    del edge.logs[(key, 0)][:3], edge.items[key][:3]
    async with served(desk) as url, reading(url, EVENTS, Last_Event_ID="0.1-0") as reader:
        events = await reader.take(4)
        assert names(events) == ["hello", "gap", "tool/call", "tool/call"]
        assert data(events[0])["data"]["oldest"] == "0.4-0"
        assert data(events[1])["data"] == {"from": "0.1-0", "to": "0.4-0"}


@pytest.mark.spec("rival-52")
async def test_a_record_that_is_lost_on_the_way_is_announced_as_a_gap(edge: FakeEdge, desk: Desk) -> None:
    edge.session("s1")
    for n in range(3):
        edge.write("s1", log.CALL, turn="t", call=f"call_{n}", body={"name": "add", "args": {}})
    del edge.items[session_key("default", "s1")][1]
    async with served(desk) as url, reading(url, EVENTS) as reader:
        events = await reader.take(5)
        assert names(events) == ["hello", "turn/start", "tool/call", "gap", "tool/call"]
        assert data(events[3])["data"] == {"from": "0.1-0", "to": "0.3-0"}


async def test_a_follower_ahead_of_a_log_that_was_rewound_goes_on_from_its_end(edge: FakeEdge, desk: Desk) -> None:
    edge.session("s1")
    edge.write("s1", log.CALL, turn="t", call="call_1", body={"name": "add", "args": {}})
    async with served(desk) as url, reading(url, EVENTS, Last_Event_ID="0.50-0") as reader:
        events = await reader.take(2)
        assert names(events) == ["hello", "gap"]
        edge.write("s1", log.RESULT, turn="t", call="call_1", outcome="result", body={"content": "5"})
        event = await reader.next()
        assert event is not None
        assert (event.event, event.id, data(event)["data"]["name"]) == ("tool/result", "0.2-0", "add")


async def test_ids_go_on_in_a_new_history(edge: FakeEdge, desk: Desk) -> None:
    edge.session("s1")
    edge.write("s1", log.CALL, turn="t", call="call_1", body={"name": "add", "args": {}})
    async with served(desk) as url, reading(url, EVENTS) as reader:
        await reader.take(3)
        edge.session("s1", ordinal=1, last_seq=0)
        edge.write("s1", log.CALL, turn="u", call="call_2", body={"name": "add", "args": {}})
        start, event = await reader.take(2)
        assert (start.event, event.event, event.id) == ("turn/start", "tool/call", "1.1-0")


async def test_a_reader_may_ask_for_some_events_alone(edge: FakeEdge, desk: Desk) -> None:
    job = await submitted(edge, desk)
    edge.run_turn("s1", job)
    async with served(desk) as url, reading(url, EVENTS + "?types=message/*,job") as reader:
        assert names(await reader.until("job")) == ["hello", "message/start", "message/end", "job"]


async def test_a_quiet_stream_is_kept_open_with_comments(edge: FakeEdge) -> None:
    edge.session("s1")
    desk = Desk(edge, SystemClock(), HttpOptions(ping_s=0.02))
    async with served(desk) as url, reading(url, EVENTS) as reader:
        await reader.next()
        waiting = asyncio.create_task(reader.next())
        await wait_until(lambda: ": ping" in reader.raw, description="a comment")
        waiting.cancel()


async def test_a_long_history_reaches_a_slow_reader_whole(edge: FakeEdge) -> None:
    edge.session("s1")
    desk = Desk(edge, SystemClock(), HttpOptions(stream_buffer=2))
    for n in range(300):
        edge.write("s1", log.RESULT, turn="t", call=f"call_{n}", outcome="result", body={"content": "x" * 20_000})
    async with served(desk) as url, reading(url, EVENTS) as reader:
        results: list[Event] = []
        while len(results) < 300:
            results += [event for event in await reader.take(1) if event.event == "tool/result"]
        assert [e.id for e in results] == [f"0.{n + 1}-0" for n in range(300)]


async def test_a_reader_that_does_not_keep_up_is_told_so_and_dropped(edge: FakeEdge, desk: Desk) -> None:
    edge.session("s1")
    for n in range(5):
        edge.write("s1", log.RESULT, turn="t", call=f"call_{n}", outcome="result", body={"content": "x"})
    edge.lagging_after = 3
    async with served(desk) as url, reading(url, EVENTS) as reader:
        events = await reader.rest()
        assert names(events) == ["hello", "turn/start", "tool/result", "tool/result", "tool/result", "error"]
        assert data(events[-1])["data"]["code"] == "overloaded"
        assert events[-1].id == "0.3-0"


async def test_an_event_between_deltas_never_moves_the_follower_back(edge: FakeEdge, desk: Desk) -> None:
    """Deltas are numbered behind the last entry; another message is accepted while they come."""
    await submitted(edge, desk)
    edge.write("s1", log.USER, turn="turn_1", jobs=("job_1",))
    edge.live("s1", 1, "text", "it ")
    edge.write("s1", log.ACCEPTED, jobs=("job_2",))
    edge.live("s1", 2, "text", "is 5", seq=1)
    edge.write("s1", log.ASSISTANT, turn="turn_1", step=1, body={"text": "it is 5"})
    async with served(desk) as url, reading(url, EVENTS) as reader:
        events = (await reader.until("message/end"))[3:]
        assert names(events) == ["message/start", "message/update", "inbox/accepted", "message/update", "message/end"]
        assert [e.id for e in events[1:]] == ["0.1-1", "0.2-0", "0.2-1", "0.3-0"]


async def test_deltas_that_come_after_their_message_are_dropped(edge: FakeEdge, desk: Desk) -> None:
    job = await submitted(edge, desk)
    edge.write("s1", log.USER, turn="turn_1", jobs=(job,), step=1)
    edge.write("s1", log.ASSISTANT, turn="turn_1", step=1, body={"text": "it is 5"})
    edge.live("s1", 1, "text", "is 5")
    edge.write("s1", log.TURN_END, turn="turn_1", jobs=(job,), outcome="finished")
    edge.live("s1", 1, "text", "is 5")
    edge.write("s1", log.NOTICE, body={"text": "the end"})
    async with served(desk) as url, reading(url, EVENTS) as reader:
        assert "message/update" not in names(await reader.until("notification"))


async def test_lost_deltas_are_announced_as_a_gap(edge: FakeEdge, desk: Desk) -> None:
    edge.session("s1")
    edge.write("s1", log.USER, turn="turn_1", jobs=("job_1",))
    for k, text in ((4, "d"), (5, "e"), (9, "i")):
        edge.live("s1", k, "text", text)
    async with served(desk) as url, reading(url, EVENTS) as reader:
        events = (await reader.take(9))[3:]
        assert names(events) == ["gap", "message/start", "message/update", "message/update", "gap", "message/update"]
        assert [data(e)["data"] for e in events if e.event == "gap"] == [{"from": "0.1-0", "to": "0.1-4"}, {"from": "0.1-5", "to": "0.1-9"}]
    async with served(desk) as url, reading(url, EVENTS, Last_Event_ID="0.1-4") as reader:
        assert names(await reader.take(3)) == ["hello", "message/start", "message/update"]


async def test_no_more_streams_are_opened_than_may_be(edge: FakeEdge) -> None:
    edge.session("s1")
    desk = Desk(edge, SystemClock(), HttpOptions(max_streams=1))
    async with served(desk) as url:
        async with reading(url, EVENTS) as first:
            await first.next()
            async with reading(url, EVENTS) as second:
                assert second.response.status_code == 503
                assert "retry-after" in second.response.headers
        await wait_until(lambda: not desk.streams, description="the stream to end")
        async with reading(url, EVENTS) as third:
            assert third.response.status_code == 200


async def test_streams_end_when_the_process_does_and_the_reader_may_come_back(edge: FakeEdge, desk: Desk) -> None:
    edge.session("s1")
    async with served(desk) as url, reading(url, EVENTS) as reader:
        await reader.next()
        desk.closing.set()
        assert await reader.rest() == []


async def test_a_store_that_goes_away_in_mid_stream_is_told(edge: FakeEdge, desk: Desk) -> None:
    job = await submitted(edge, desk)
    async with served(desk) as url, reading(url, EVENTS) as reader:
        await reader.next()
        edge.down = True
        edge.write("s1", log.TURN_END, turn="t", jobs=(job,), outcome="finished")
        events = await reader.rest()
        assert (names(events), data(events[-1])["data"]["code"]) == (["error"], "redis-unavailable")


async def follow_job(url: str, job: str, **headers: str) -> tuple[int, list[Event]]:
    async with reading(url, f"/v1/jobs/{job}/events", **headers) as reader:
        return reader.response.status_code, await reader.rest()


async def test_a_job_s_stream_ends_with_its_last_state_and_is_204_after_that(edge: FakeEdge, desk: Desk) -> None:
    job = await submitted(edge, desk)
    async with served(desk) as url:
        async with reading(url, f"/v1/jobs/{job}/events") as reader:
            assert names(await reader.take(2)) == ["hello", "job"]
            edge.run_turn("s1", job)
            events = await reader.rest()
        assert names(events)[-2:] == ["turn/end", "job"]
        assert data(events[-1])["data"]["state"] == "succeeded"
        assert await follow_job(url, job, Last_Event_ID=events[-1].id) == (204, [])
        status, again = await follow_job(url, job, Last_Event_ID="0.2-0")
        assert (status, names(again)) == (200, ["hello", "turn/end", "job"])


async def test_a_job_s_stream_holds_its_turns_alone(edge: FakeEdge, desk: Desk) -> None:
    first, second = await submitted(edge, desk), await submitted(edge, desk, input="again")
    edge.run_turn("s1", first, turn="turn_1", text="one")
    edge.run_turn("s1", second, turn="turn_2", text="two")
    edge.forever = False
    async with served(desk) as url:
        for job, turn, text in ((first, "turn_1", "one"), (second, "turn_2", "two")):
            _, events = await follow_job(url, job)
            assert {data(e)["turn"] for e in events[1:]} == {turn}
            assert [data(e)["data"]["text"] for e in events if e.event == "message/end"] == [text]
            assert data(events[-1])["data"]["id"] == job


async def test_a_job_that_took_two_turns_is_told_to_the_end_of_the_second(edge: FakeEdge, desk: Desk) -> None:
    job = await submitted(edge, desk)
    edge.run_turn("s1", job, turn="turn_1", text="it renders")
    edge.write("s1", log.RESULT, turn="turn_2", call="call_1", outcome="result", aside=True, body={"content": "rendered"})
    edge.write("s1", log.ASSISTANT, turn="turn_2", body={"text": "here it is"})
    edge.jobs[job] = replace(edge.jobs[job], finished_ms=NOW_MS + 60_000)
    edge.write("s1", log.TURN_END, turn="turn_2", jobs=(job,), outcome="finished", at_ms=NOW_MS + 60_000)
    async with served(desk) as url:
        _, events = await follow_job(url, job)
        assert [data(e)["data"]["text"] for e in events if e.event == "message/end"][:1] == ["it renders"]
        assert names(events)[-2:] == ["turn/end", "job"]
        assert names(events).count("turn/end") == 2


async def test_a_job_that_ends_without_a_turn_still_ends_its_stream(edge: FakeEdge, desk: Desk) -> None:
    job = await submitted(edge, desk)
    async with served(desk) as url, reading(url, f"/v1/jobs/{job}/events") as reader:
        await reader.take(2)
        edge.finish(job, state="cancelled", cause="user")
        (event,) = await reader.rest()
        assert (event.event, data(event)["data"]["state"], data(event)["data"]["stop_reason"]) == ("job", "cancelled", "user")


async def test_a_waiting_job_says_what_it_waits_for(edge: FakeEdge, desk: Desk) -> None:
    job = await submitted(edge, desk)
    edge.jobs[job] = replace(edge.jobs[job], state="waiting")
    call = ParkedCall("call_7", "order", "callback", awaited=False, deadline_ms=1_790_000_000_000)
    edge.session("s1", parked=[call])
    async with served(desk) as url, httpx.AsyncClient(base_url=url) as client:
        (waiting,) = (await client.get(f"/v1/jobs/{job}")).json()["waiting_for"]
        assert (waiting["call"], waiting["tool"], waiting["kind"], waiting["wait"]) == ("call_7", "order", "callback", False)
        assert waiting["expires_at"] == "2026-09-21T14:13:20.000Z"


async def test_what_people_are_asked_is_told_with_the_id_to_answer_by_and_then_what_they_said(edge: FakeEdge, desk: Desk) -> None:
    approval = edge.ask()
    asked = {
        "call": "call_1",
        "kind": "allow_deny",
        "tool": "refund",
        "args": {"amount": 120},
        "reason": "over 100",
        "expires_in_ms": 60_000,
    }
    edge.write("s1", log.REQUEST, turn="t", body={**asked, "approvers": ["ann"], "remember": "session"})
    edge.write("s1", log.DECIDED, turn="t", call="call_1", kind="approval", outcome="allow", extra={"by": "ann", "rs": "seen"})
    edge.write("s1", log.DECIDED, turn="t", call="call_2", kind="approval", outcome="timeout", extra={"by": "tick"})
    async with served(desk) as url, reading(url, EVENTS) as reader:
        _, request, allowed, expired = [data(e)["data"] for e in await reader.take(4)]
    assert request == {
        "id": approval.id,
        "call": "call_1",
        "kind": "allow_deny",
        "tool": "refund",
        "args": {"amount": 120},
        "reason": "over 100",
        "approvers": ["ann"],
        "self_approve": True,
        "remember": "session",
        "options": [],
        "multi_select": False,
        "expires_at": "2026-09-21T14:14:20.000Z",
    }
    at = "2026-09-21T14:13:20.000Z"
    assert allowed == {
        "id": approval.id,
        "call": "call_1",
        "outcome": "allow",
        "allow": True,
        "by": "ann",
        "at": at,
        "reason": "seen",
    }
    assert (expired["outcome"], expired["allow"], expired["by"], expired["reason"]) == ("timeout", False, "tick", None)


async def test_progress_is_told_with_its_call_also_when_the_turn_is_over(edge: FakeEdge, desk: Desk) -> None:
    job = await submitted(edge, desk)
    edge.run_turn("s1", job)
    edge.live("s1", 1, "progress", progress_text("call_1", 0.4, "frame 40"))
    edge.live("s1", 2, "progress", progress_text("call_1", None, "two\nlines"))
    async with served(desk) as url, reading(url, EVENTS) as reader:
        first, second = (data(e)["data"] for e in [(await reader.until("tool/progress"))[-1], *await reader.take(1)])
    assert first == {"call": "call_1", "fraction": 0.4, "note": "frame 40"}
    assert second == {"call": "call_1", "fraction": None, "note": "two\nlines"}


async def test_what_a_tool_sends_is_told(edge: FakeEdge, desk: Desk) -> None:
    edge.session("s1")
    edge.write("s1", log.SENT, turn="t", call="call_1", body={"text": "half of it is done"})
    async with served(desk) as url, reading(url, EVENTS) as reader:
        assert data((await reader.until(log.SENT))[-1])["data"] == {"text": "half of it is done", "call": "call_1"}


@pytest.mark.spec("rival-21")
async def test_a_job_is_told_as_waiting_when_its_turn_parks_and_as_running_when_it_goes_on(edge: FakeEdge, desk: Desk) -> None:
    job = await submitted(edge, desk)

    def now(state: str) -> None:
        edge.jobs[job] = replace(edge.jobs[job], state=state, turn="turn_1")  # pyright: ignore[reportArgumentType]

    async with served(desk) as url, reading(url, EVENTS) as reader:
        await reader.until("hello")
        now("running")
        edge.write("s1", log.USER, turn="turn_1", jobs=(job,))
        assert data((await reader.until("job"))[-1])["data"]["state"] == "running"
        edge.write("s1", log.PARKED, turn="turn_1", call="call_0", kind="lift", outcome="detached", extra={"dl": "1790000000000"})
        now("waiting")
        edge.write("s1", log.PARKED, turn="turn_1", call="call_1", kind="approval", outcome="awaited", extra={"dl": "1790000000000"})
        events = await reader.until("job")
        assert [e.event for e in events] == ["call/parked", "call/parked", "job"]
        assert data(events[-1])["data"]["state"] == "waiting"
        edge.write("s1", log.DECIDED, turn="turn_1", call="call_1", outcome="allow")
        now("running")
        edge.write("s1", log.RESULT, turn="turn_1", call="call_1", outcome="result", body={"content": "refunded"})
        assert data((await reader.until("job"))[-1])["data"]["state"] == "running"


async def test_a_reader_that_leaves_leaves_nothing_behind(edge: FakeEdge, desk: Desk) -> None:
    edge.session("s1")
    async with served(desk) as url:
        async with reading(url, EVENTS) as reader:
            await reader.next()
            assert desk.streams == 1
        await wait_until(lambda: not desk.streams, description="the stream to end")
