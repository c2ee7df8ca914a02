"""What the store promises a transcript: what goes in comes out, once, for whoever looks."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from tests.protocol.scene import Scene
from turnyard.engine.render import render
from turnyard.records.commit import Note, Say
from turnyard.records.log import COMPACTION, NOTICE, USER
from turnyard.state.log import read_log
from turnyard.state.yard import Yard

# What a careless store would trim, decode, reorder or normalise.
ODD = {
    "tag": ' [x]\t"y"\\ {"a":1} ',
    "origin": "a:b/{c}*\u202e\u0000é e\u0301 \U0001f9f5 ",
    "nested": {"z": [1, None, True, 0.5], "a": {"": ""}},
    "number": 9_007_199_254_740_993,
}


@pytest.mark.spec("turn-1")
async def test_odd_tags_and_origins_come_back_byte_for_byte_from_entries_and_from_what_a_compaction_subsumes(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    notice = {"text": "news", **ODD}
    folded = {"summary": "it went well", "subsumes": [{"id": "1", **ODD}, {"id": "2", **ODD}]}
    view = await scene.commit(view, append=(Note(NOTICE, notice), Note(COMPACTION, folded)))
    other = await Yard.open(scene.url)
    try:
        seen = {r.type: r.body for r in await read_log(other.shards[0], view.store, limit=50)}
    finally:
        await other.aclose()
    again = await scene.begin_as(owner, view.epoch)
    assert again is not None
    kept = {r.type: r.body for r in again.entries}
    for bodies in (seen, kept):
        assert orjson.dumps(bodies[NOTICE]) == orjson.dumps(notice)
        assert orjson.dumps(bodies[COMPACTION]) == orjson.dumps(folded)
    assert any(m["content"].startswith("[compacted]") for m in render(again.entries, system=""))
    await scene.reply(view)


@pytest.mark.spec("turn-4")
async def test_each_arrival_is_claimed_once_however_many_race_for_it(scene: Scene) -> None:
    owners = [await scene.worker(capacity=50) for _ in range(20)]
    for i in range(3):
        await scene.say(f"m{i}")
    await scene.dispatch()
    assignment = await scene.take(owners[0])
    assert assignment is not None
    views = await asyncio.gather(*(scene.begin_as(owner, assignment.epoch) for owner in owners))
    claimed = [sum(e.type == USER for e in view.entries) for view in views if view is not None]
    assert claimed == [3]
    (view,) = [view for view in views if view is not None]
    view = await scene.commit(view, claim=True)
    assert sum(e.type == USER for e in view.entries) == 3
    await scene.reply(view)


@pytest.mark.spec("turn-5")
async def test_what_a_turn_appends_is_seen_by_a_second_client_at_once_and_is_nobodys_arrival(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    view = await scene.commit(view, append=(Note(NOTICE, {"text": "aside"}),))
    other = await Yard.open(scene.url)
    try:
        assert [r.body["text"] for r in await read_log(other.shards[0], view.store) if r.type == NOTICE] == ["aside"]
    finally:
        await other.aclose()
    before = len(view.entries)
    view = await scene.commit(view, claim=True)
    assert len(view.entries) == before, "there was nothing to claim"
    view = await scene.commit(view, append=(Say({"text": "bye"}),), ending="finish")
    assert view.ended
    assert await scene.state() == "idle"
