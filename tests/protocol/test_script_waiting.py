"""What a turn waits for: delays that only wake it, calls whose effect goes on without it, deadlines of jobs."""

from __future__ import annotations

from functools import partial

import pytest

from tests.protocol.broken import Broken, snaps
from tests.protocol.scene import DAY_MS, Scene, call, shown
from turnyard.errors import FenceLost
from turnyard.records.commit import Answer, NewCall, Park, TurnView, Wait
from turnyard.records.ids import session_key
from turnyard.state import calls, fleet, ingress

pytestmark = pytest.mark.asyncio

HOUR_MS = 3_600_000
KINDS = ("retry", "timer")


async def wait(scene: Scene, view: TurnView, kind: str = "retry", ms: int = 5000, name: str = "w1") -> TurnView:
    """The worker comes back later."""
    return await scene.commit(view, wait=(Wait(name, kind, ms),), ending="park")  # type: ignore[arg-type]


async def deadlines(scene: Scene) -> list[str]:
    home = scene.yard.shards[0]
    return [m.decode() for m in await home.redis.zrange(home.keys.prefix + "deadlines", 0, -1)]


# -- retry delays and timers


@pytest.mark.spec("turn-55")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_delay_gives_the_slot_back_wakes_its_turn_and_leaves_nothing_behind(scene: Scene, kind: str) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    before = len(await scene.log())
    await wait(scene, view, kind)
    assert (await scene.state(), await scene.running(), (await scene.head())["aw"]) == ("parked", 0, "1")
    await scene.pass_ms(4999)
    assert (await scene.tick()).due == 0
    await scene.pass_ms(1)
    assert ((await scene.tick()).due, await scene.state()) == (1, "assigned")
    again = await scene.begin(owner)
    assert again is not None
    assert (again.turn, shown(again), again.rows) == (view.turn, ["hello"], ())
    assert len(await scene.log()) == before
    assert (await scene.rows(), await deadlines(scene)) == ({}, [])
    await scene.reply(again)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_delay_stays_when_the_asker_writes_and_both_are_seen_when_it_is_over(scene: Scene, kind: str) -> None:
    owner = await scene.worker()
    await wait(scene, await scene.open_turn(owner, "one"), kind)
    await scene.say("two")
    await scene.dispatch()
    assert await scene.state() == "parked"
    await scene.pass_ms(5001)
    await scene.tick()
    view = await scene.begin(owner)
    assert view is not None
    assert shown(view) == ["one", "two"]
    await scene.reply(view)


async def test_a_delay_whose_asker_wrote_before_it_was_parked_is_kept_too(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner, "one")
    await scene.say("two")
    await scene.dispatch()
    await wait(scene, view)
    assert await scene.state() == "parked"
    await scene.pass_ms(5001)
    await scene.tick()
    await scene.reply(await scene.start(owner))


async def test_a_delay_beside_an_awaited_call_wakes_the_turn_when_both_are_over(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    made = call(view, 0, "callback", awaited=True)
    view = await scene.ask(view, made)
    await scene.commit(view, park=(Park(made.id, DAY_MS),), wait=(Wait("w1", "timer", 5000),), ending="park")
    await scene.outcome(view, made.id, secret_hash=None)
    await scene.dispatch()
    assert await scene.state() == "parked"
    await scene.pass_ms(5001)
    await scene.tick()
    again = await scene.begin(owner)
    assert again is not None
    assert shown(again)[-1] == f"{made.id}:result"
    await scene.reply(again)


async def test_a_cancel_ends_a_delay_at_once(scene: Scene) -> None:
    owner = await scene.worker()
    await wait(scene, await scene.open_turn(owner), ms=DAY_MS)
    assert (await scene.control("cancel")).code == "accepted"
    view = await scene.start(owner)
    assert view.cancel == "user"
    await scene.commit(view, ending="finish", closing=True)
    assert (await scene.rows(), await deadlines(scene)) == ({}, [])
    assert await scene.state() == "idle"


async def test_a_delay_asked_for_under_a_cancel_is_not_waited_for(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    await scene.control("cancel")
    await scene.dispatch()
    view = await wait(scene, view)
    assert (view.ended, view.cancel) == (False, "user")
    await scene.commit(view, ending="finish", closing=True)
    assert (await scene.rows(), (await scene.head()).get("aw", "0")) == ({}, "0")


async def test_a_delay_whose_commit_lost_its_answer_is_made_once(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    with scene.lost_reply():
        await wait(scene, view)
    assert ((await scene.head())["aw"], len(await scene.rows())) == ("1", 1)
    assert (await scene.outcome(f"{session_key('default', 's')}.0", "w1", secret_hash=None)).code == "gone"
    await scene.pass_ms(5001)
    await scene.tick()


async def test_a_turn_that_holds_by_a_delay_cannot_finish(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    view = await scene.commit(view, wait=(Wait("w1", "timer", 5000),))
    assert (await scene.commit(view, ending="finish")).code == "AWAITS"
    await scene.commit(view, ending="park")
    await scene.pass_ms(5001)
    await scene.tick()


# -- calls that are let go of while their effect goes on


async def let_go(scene: Scene, owner: str, *, awaited: bool = False) -> tuple[TurnView, NewCall]:
    """A turn whose plain call runs long, so that its worker lets go of it."""
    view = await scene.open_turn(owner)
    made = call(view)
    view = await scene.ask(view, made, start=(made.id,))
    parked = (Park(made.id, HOUR_MS, task="turn:1", awaited=awaited),)
    if awaited:
        await scene.commit(view, park=parked, ending="park")
        return view, made
    return await scene.commit(view, append=(Answer(made.id, "placeholder"),), park=parked, claim=True), made


async def test_a_call_that_runs_long_is_let_go_of_and_its_result_comes_later(scene: Scene) -> None:
    owner = await scene.worker()
    view, made = await let_go(scene, owner)
    assert (view.rows, view.mine) == ((), frozenset())
    await scene.reply(view)
    shard = scene.yard.shards[0]
    assert await shard.redis.scard(shard.keys.owned(owner)) == 1
    assert (await scene.outcome(view, made.id, owner=owner, task="turn:1")).code == "accepted"
    assert await shard.redis.scard(shard.keys.owned(owner)) == 0
    again = await scene.start(owner)
    assert shown(again)[-1] == f"{made.id}:result"
    await scene.reply(again)
    job = (await scene.entries())[-1]
    assert job == "=bye"


async def test_a_turn_may_wait_for_a_call_it_let_go_of(scene: Scene) -> None:
    owner = await scene.worker()
    view, made = await let_go(scene, owner, awaited=True)
    assert (await scene.state(), await scene.running()) == ("parked", 0)
    await scene.outcome(view, made.id, owner=owner, task="turn:1")
    again = await scene.start(owner)
    assert shown(again)[-1] == f"{made.id}:result"
    assert not again.entries[-1].aside
    await scene.reply(again)


async def test_a_call_that_was_let_go_of_is_never_run_by_anybody_else(scene: Scene) -> None:
    owner, other = await scene.worker(), await scene.worker(role="lifted")
    view, made = await let_go(scene, owner)
    assert (await scene.begin_row(view, made.id, owner=other)).code == "FENCED"
    assert (await scene.begin_row(view, made.id, owner=owner, task="turn:1")).code == "FENCED"
    assert "arq" not in [k.decode().rpartition(":")[2] for k in await scene.yard.redis.keys("*out:*")]
    await scene.pass_ms(60_000)
    await scene.tick(parts="d")
    assert [r.type for r in await scene.log() if r.type == "call/relayed"] == []
    await scene.reply(view)


async def test_the_worker_of_a_call_it_let_go_of_dies_and_the_outcome_is_unknown(scene: Scene) -> None:
    owner, second = await scene.worker(), await scene.worker()
    view = await scene.open_turn(owner)
    made = call(view)
    view = await scene.ask(view, made, start=(made.id,))
    view = await scene.commit(view, append=(Answer(made.id, "placeholder"),), park=(Park(made.id, HOUR_MS, task="t"),), claim=True)
    await scene.reply(view)
    await scene.tick(owner, parts="")
    again = await scene.start(second)
    assert shown(again)[-1] == f"{made.id}:unknown"
    # What it had done all the same is told late, once.
    assert (await scene.outcome(view, made.id, owner=owner, task="t")).code == "accepted"
    await scene.dispatch()
    again = await scene.commit(again, claim=True)
    assert shown(again)[-1] == f"{made.id}:result"
    assert again.entries[-1].late
    assert (await scene.outcome(view, made.id, owner=owner, task="t", body={"content": "other"})).code == "conflict"
    await scene.reply(again)


@pytest.mark.parametrize("awaited", [True, False])
@pytest.mark.parametrize("how", ["dies", "drains"])
async def test_an_idempotent_call_whose_worker_let_go_of_it_and_ends_is_run_again_as_a_lifted_one(
    scene: Scene, how: str, awaited: bool
) -> None:
    owner, second, lifter = await scene.worker(), await scene.worker(), await scene.worker(role="lifted")
    view = await scene.open_turn(owner)
    made = call(view, idempotent=True)
    view = await scene.ask(view, made, start=(made.id,))
    parked = (Park(made.id, HOUR_MS, task="t", awaited=awaited),)
    if awaited:
        await scene.commit(view, park=parked, ending="park")
    else:
        await scene.reply(await scene.commit(view, append=(Answer(made.id, "placeholder"),), park=parked, claim=True))
    if how == "dies":
        await scene.tick(owner, parts="")
    else:
        shard = scene.yard.shards[0]
        assert (await calls.put_off(scene.yard, shard, view.store, made.id, owner=owner, task="t", after_ms=0)).code == "accepted"
        assert await shard.redis.scard(shard.keys.owned(owner)) == 0
    (relay,) = [r for r in await scene.log() if r.type == "call/relayed"]
    assert (relay.call, relay.kind, relay.extra["re"]) == (made.id, "lift", "2")
    await scene.pass_ms(1_000)
    start = await scene.begin_row(view, made.id, owner=lifter)
    assert (start.code, start.mode, start.args, start.attempt) == ("OK", "run", {"i": 0}, 2 if how == "dies" else 1)
    assert start.expires == scene.now_ms - 1_000 + HOUR_MS
    # The body that went on all the same is not the call's any more, but the first result counts.
    assert (await scene.outcome(view, made.id, owner=lifter, task="task-1")).code == "accepted"
    assert (await scene.outcome(view, made.id, owner=owner, task="t", body={"content": "late"})).code == "conflict"
    again = await scene.start(second)
    assert shown(again)[-1] == f"{made.id}:result"
    await scene.reply(again)


async def test_a_call_that_is_not_idempotent_is_not_handed_on_by_the_worker_that_let_go_of_it(scene: Scene) -> None:
    owner = await scene.worker()
    view, made = await let_go(scene, owner)
    shard = scene.yard.shards[0]
    said = await calls.put_off(scene.yard, shard, view.store, made.id, owner=owner, task="turn:1", after_ms=0)
    assert (said.code, await shard.redis.scard(shard.keys.owned(owner))) == ("conflict", 2)  # the call and its turn
    await scene.outcome(view, made.id, owner=owner, task="turn:1")


async def test_a_call_that_was_let_go_of_ends_with_its_deadline_and_its_worker_is_told(scene: Scene) -> None:
    owner = await scene.worker()
    view, made = await let_go(scene, owner, awaited=True)
    await scene.pass_ms(HOUR_MS)
    await scene.tick(parts="d")
    assert [item.call for item in await scene.told(owner)] == [made.id]
    # What it had done all the same is told late, once.
    assert (await scene.outcome(view, made.id, owner=owner, task="turn:1")).code == "accepted"
    again = await scene.start(owner)
    assert shown(again)[-2:] == [f"{made.id}:timeout", f"{made.id}:result"]
    await scene.reply(again)


async def test_a_beat_names_the_call_that_its_worker_let_go_of(scene: Scene) -> None:
    owner = await scene.worker()
    view, made = await let_go(scene, owner)
    shard = scene.yard.shards[0]
    await scene.reply(view)
    beaten = await fleet.beat(shard, owner, held=0)
    assert [(s.call, s.task) for s in beaten.strangers if isinstance(s, fleet.RowRef)] == [(made.id, "turn:1")]
    assert (await fleet.beat(shard, owner, held=[made.id])).strangers == ()
    await scene.outcome(view, made.id, owner=owner, task="turn:1")
    await scene.dispatch()
    await scene.reply(await scene.start(owner))


async def test_only_a_started_call_is_let_go_of_and_only_by_the_turns_holder(scene: Scene) -> None:
    owner, second = await scene.worker(), await scene.worker()
    view = await scene.open_turn(owner)
    made = call(view, 0, "callback")
    view = await scene.ask(view, made)
    view = await scene.commit(view, append=(Answer(made.id, "placeholder"),), park=(Park(made.id, HOUR_MS, task="t"),))
    assert (await scene.rows())[made.id].get("tk") is None
    await scene.tick(owner, parts="")
    again = await scene.start(second)
    with pytest.raises(FenceLost):
        await scene.commit(view, park=(Park(made.id, HOUR_MS, task="t"),), owner=owner)
    await scene.reply(again)


async def test_the_cancel_of_a_call_that_was_let_go_of_is_told_to_its_worker(scene: Scene) -> None:
    owner = await scene.worker()
    view, made = await let_go(scene, owner)
    await scene.control("cancel")
    await scene.dispatch()
    assert made.id in {item.call for item in await scene.told(owner)}
    await scene.commit(view, ending="finish", closing=True)
    assert (await scene.outcome(view, made.id, "cancelled", owner=owner, task="turn:1")).code == "conflict"


async def test_who_follows_is_noted_for_sessions_that_exist(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    await ingress.follow(scene.yard, view.session, 30)
    assert (await scene.head())["fu"] == str(scene.now_ms + 30_000)
    nobody = session_key("default", "nobody")
    await ingress.follow(scene.yard, nobody, 30)
    assert await scene.yard.redis.exists(scene.shard("nobody").keys.head(nobody)) == 0
    await scene.reply(view)


BROKEN: dict[str, Broken] = {
    "a delay gives way": (
        partial(test_a_delay_stays_when_the_asker_writes_and_both_are_seen_when_it_is_over, kind="retry"),
        *("elseif wrote.asker and not only_wakes(r) then", "elseif wrote.asker then"),
    ),
    "a delay times out like a call": (
        partial(test_a_delay_gives_the_slot_back_wakes_its_turn_and_leaves_nothing_behind, kind="retry"),
        *("  if only_wakes(r) then\n    settle(h, r, 'fired')\n    return wake(h)\n  end\n", ""),
    ),
    "a delay under a cancel": (
        test_a_delay_asked_for_under_a_cancel_is_not_waited_for,
        "if not closing then wait_rows(a.wait or {}) end",
        "wait_rows(a.wait or {})",
    ),
    "a call let go of belongs to nobody": (
        test_the_worker_of_a_call_it_let_go_of_dies_and_the_outcome_is_unknown,
        *("  r.tk, r.tj = h.ow, task\n  call('SADD', P .. 'w:' .. h.ow, call_member(h, r))\n", ""),
    ),
    "a call let go of is anybodys": (
        test_a_call_that_was_let_go_of_is_never_run_by_anybody_else,
        *(
            "  if r.o or r.s ~= 'parked' or not mode or r.tk and not (r.tk == owner and r.tj == task) then",
            "  mode = 'run'\n  if false then",
        ),
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
async def test_without_its_rule_what_waits_goes_wrong(clean: str, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await snaps(clean, monkeypatch, BROKEN[rule])
