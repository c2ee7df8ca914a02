"""What a turn remembers between two transitions, and what a summary hides, is kept by the server and by nobody else."""

from __future__ import annotations

import pytest

from tests.protocol.scene import Scene
from turnyard.errors import Diverged, FenceLost
from turnyard.records.commit import Clear, Commit, Note, Say, Wait
from turnyard.records.log import COMPACTION, NOTICE, USER
from turnyard.state import turns


@pytest.mark.spec("turn-61")
async def test_the_state_of_a_turn_is_what_its_last_commit_left_whoever_goes_on(scene: Scene) -> None:
    one, two = await scene.worker(), await scene.worker()
    view = await scene.open_turn(one)
    assert view.state == {}
    view = await scene.commit(view, append=(Say({"text": "a"}),), state={"s": {"n": 1}}, ending="yield")
    view = await scene.start(two)
    assert view.state == {"s": {"n": 1}}
    view = await scene.commit(view, claim=True)
    assert view.state == {"s": {"n": 1}}, "a commit that says nothing of it leaves it"
    view = await scene.commit(view, claim=True, state={})
    assert view.state == {}


async def test_a_turns_state_ends_with_the_turn(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    view = await scene.commit(view, claim=True, state={"s": 1})
    await scene.say("more")
    await scene.dispatch()
    view = await scene.commit(view, append=(Say({"text": "bye"}),), ending="finish")
    assert not view.ended, "the next turn opens at once"
    assert view.state == {}


@pytest.mark.spec("turn-49")
async def test_a_refused_commit_changes_nothing_not_even_the_state(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    newer = await scene.commit(await scene.commit(view, claim=True), claim=True, state={"s": 1})
    stale = Commit(append=(Say({"text": "stale"}), Note(NOTICE, {"text": "x"}), Clear("g\nk")), state={"s": 2}, low=1)
    with pytest.raises(Diverged):
        await turns.commit(scene.shard(), view, owner, stale)
    with pytest.raises(FenceLost):
        await turns.commit(scene.shard(), newer, "cd" * 16, stale)
    again = await scene.begin_as(owner, newer.epoch)
    assert again is not None
    assert (again.state, again.rev, again.entries) == ({"s": 1}, newer.rev, newer.entries)


async def test_what_a_summary_stands_for_is_read_by_nobody_again(scene: Scene) -> None:
    one, two = await scene.worker(), await scene.worker()
    view = await scene.open_turn(one)
    view = await scene.commit(view, append=tuple(Note(NOTICE, {"text": f"n{i}"}) for i in range(4)))
    old = [e.seq for e in view.entries if e.type == NOTICE]
    marker = {"text": "four", "at": old[2], "spans": [[old[0], old[2]]], "count": 3}
    user = next(e.seq for e in view.entries if e.type == USER)
    view = await scene.commit(view, append=(Note(COMPACTION, marker),), low=user)
    shown = [(e.type, e.body["text"]) for e in view.entries]
    assert shown == [(USER, "hello"), (COMPACTION, "four"), (NOTICE, "n3")]
    view = await scene.commit(
        view, append=(Note(COMPACTION, marker | {"spans": [[user, view.last_seq]], "at": old[3]}),), low=view.last_seq + 1
    )
    await scene.commit(view, ending="yield")
    view = await scene.start(two)
    assert [(e.type, e.body["text"]) for e in view.entries] == [(COMPACTION, "four")]


async def test_the_time_a_turn_runs_leaves_its_waits_out(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    await scene.pass_ms(700)
    view = await scene.commit(view, wait=(Wait("w1", "retry", 5_000),), ending="park")
    assert view.ended
    await scene.pass_ms(5_000)
    await scene.tick()
    view = await scene.start(owner)
    assert 700 <= view.active_ms < 5_000
