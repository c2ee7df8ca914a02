"""What a waiting call says on its way, and what its deadline gives it."""

from __future__ import annotations

import pytest

from tests.protocol.outside import HOUR_MS, beside, callback, pass_to, poll, raw
from tests.protocol.scene import Scene, shown
from turnyard.records.live import read_progress
from turnyard.state import calls, ingress
from turnyard.state.explain import explain
from turnyard.state.sessions import read_session

pytestmark = pytest.mark.asyncio

RIPE = {"content": "slept", "is_error": False}


@pytest.mark.parametrize("awaited", [True, False])
async def test_a_ripe_call_has_its_result_when_its_time_is_over(scene: Scene, awaited: bool) -> None:
    view, made = await callback(scene, awaited=awaited, queue=None, ripe=RIPE)
    if not awaited:
        await scene.reply(view)
    await pass_to(scene, HOUR_MS - 1)
    assert await beside(scene) == ["p"]
    await pass_to(scene, 1)
    again = await scene.start(scene.owners[0])
    assert shown(again)[-1] == f"{made.id}:result"
    assert again.entries[-1].body == RIPE
    assert [(r.outcome, r.extra["by"]) for r in await scene.log() if r.type == "call/resolved"] == [("result", "tick")]
    await scene.reply(again)


@pytest.mark.parametrize("first", ["an outcome", "a cancel"])
async def test_what_comes_before_a_ripe_calls_time_counts_instead(scene: Scene, first: str) -> None:
    view, made = await callback(scene, awaited=True, queue=None, ripe=RIPE)
    if first == "an outcome":
        assert (await scene.outcome(view, made.id, body={"content": "woken", "is_error": False})).code == "accepted"
    else:
        await scene.control("cancel")
    again = await scene.start(scene.owners[0])
    assert await beside(scene) == (["r"] if first == "an outcome" else [])
    again = await scene.commit(again, ending="finish", closing=True)
    told = [(r.outcome, r.body.get("content")) for r in await scene.log() if r.type == "tool/result"]
    assert told == [("result", "woken") if first == "an outcome" else ("cancelled", None)]


async def test_what_a_task_reports_stands_beside_its_row_until_the_call_ends(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    view, made = await poll(scene, awaited=True)
    lifter = await scene.worker(role="lifted")
    await pass_to(scene, 5_000)
    await scene.begin_row(view, made.id, owner=lifter)
    length = len(await scene.log())
    await ingress.follow(scene.yard, view.session, 60)
    for i in range(3):
        assert await calls.report(shard, view.store, made.id, owner=lifter, task="task-1", fraction=i / 4, note=f"frame {i}")
    assert len(await scene.log()) == length
    assert "g" in await beside(scene)
    said = {"fraction": 0.5, "note": "frame 2", "at": scene.now_ms}
    shown_session = await read_session(scene.yard, tenant="default", session="s")
    assert shown_session is not None
    assert [parked.progress for parked in shown_session.parked] == [said]
    why = await explain(scene.yard, tenant="default", session="s")
    assert why is not None
    assert (why.code, why.facts["progress"]) == ("lifted_running", said)
    assert "lifted tool tool0 looks again" in why.detail
    assert "at 50% frame 2" in why.detail
    told = [fields[b"b"].decode() for _, fields in await shard.redis.xrange(shard.keys.live(view.store))]
    assert [read_progress(text) for text in told] == [(made.id, i / 4, f"frame {i}") for i in range(3)]
    assert not await calls.report(shard, view.store, made.id, owner=lifter, task="task-2", note="not mine")
    await scene.outcome(view, made.id, owner=lifter, task="task-1")
    assert not await calls.report(shard, view.store, made.id, owner=lifter, task="task-1", note="too late")
    assert "g" not in await beside(scene)


async def test_what_a_tool_says_to_the_user_stands_in_the_log_once(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    said = [await ingress.say(scene.yard, "default", "s", "half way", event="e1", turn=view.turn, call="call_1") for _ in range(2)]
    assert [a.code for a in said] == ["accepted", "duplicate"]
    (record,) = [r for r in await scene.log() if r.type == "message/sent"]
    assert (record.turn, record.call, record.body) == (view.turn, "call_1", {"text": "half way", "call": "call_1"})
    assert (await ingress.say(scene.yard, "default", "nobody", "x", event="e2")).code == "gone"
    assert (await ingress.say(scene.yard, "other", "s", "x", event="e2")).code == "gone"
    view = await scene.commit(view, claim=True)
    assert shown(view) == ["hello"]
    await scene.reply(view)


async def test_who_follows_sees_what_a_task_reports(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    view, made = await poll(scene)
    lifter = await scene.worker(role="lifted")
    await pass_to(scene, 5_000)
    await scene.begin_row(view, made.id, owner=lifter)
    await calls.report(shard, view.store, made.id, owner=lifter, task="task-1", note="nobody looks")
    await ingress.follow(scene.yard, view.session, 30)
    await calls.report(shard, view.store, made.id, owner=lifter, task="task-1", fraction=0.5, note="half")
    ((_, seen),) = await shard.redis.xrange(shard.keys.live(view.store))
    assert (seen[b"k"], read_progress(seen[b"b"].decode())) == (b"progress", (made.id, 0.5, "half"))
    # The turn's own deltas still find their place behind it.
    at = await shard.redis.xadd(shard.keys.live(view.store), {"k": "text"}, id=f"{view.last_seq}-*")
    assert at.startswith(b"%d-" % view.last_seq)


async def test_that_nobody_knows_how_a_call_ended_is_said_by_its_own_task_alone(scene: Scene) -> None:
    view, made = await poll(scene, awaited=True)
    lifter, other = await scene.worker(role="lifted"), await scene.worker(role="lifted")
    await pass_to(scene, 5_000)
    await scene.begin_row(view, made.id, owner=lifter)
    assert (await scene.outcome(view, made.id, "unknown", owner=other, task="task-1")).code == "conflict"
    assert (await scene.outcome(view, made.id, "unknown", secret_hash=None)).code == "conflict"
    assert (await scene.rows())[made.id].get("o") is None
    assert (await scene.outcome(view, made.id, "unknown", owner=lifter, task="task-1")).code == "accepted"
    assert (await scene.outcome(view, made.id, "unknown", owner=lifter, task="task-1")).code == "conflict"
    again = await scene.start(scene.owners[0])
    assert shown(again)[-1] == f"{made.id}:unknown"
    await scene.reply(again)


async def test_why_a_session_waits_names_when_its_call_is_looked_at_again_and_who_reads_an_answer(scene: Scene) -> None:
    await poll(scene, awaited=True)
    why = await explain(scene.yard, tenant="default", session="s")
    assert why is not None
    assert (why.code, why.facts["due_ms"]) == ("timer", scene.now_ms + 5_000)
    assert "looks again in 5.0 s" in why.detail
    await pass_to(scene, 5_000)
    why = await explain(scene.yard, tenant="default", session="s")
    assert why is not None
    assert (why.code, why.facts["relays"]) == ("lifted_queued", 1)
    await scene.control("cancel")
    await scene.close_turn(await scene.start(scene.owners[0]))
    view, made = await callback(scene, awaited=True)
    why = await explain(scene.yard, tenant="default", session="s")
    assert why is not None
    assert "from outside" in why.detail
    await raw(scene, view, made)
    why = await explain(scene.yard, tenant="default", session="s")
    assert why is not None
    assert why.code == "lifted_queued"
