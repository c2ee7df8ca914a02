"""Who gets what when many reach for it at once: turns, slots, the end of a log, and what a step wants sent. On the real server.

`BROKEN` names for each of these rules the line of the Lua without which its test fails.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

import pytest

from tests.protocol.broken import Broken, snaps
from tests.protocol.scene import CLOCK, OK, Scene, call, shown
from turnyard.errors import Diverged, FenceLost
from turnyard.records.commit import Answer, Say, TurnView
from turnyard.records.ids import session_key
from turnyard.records.messages import Accepted
from turnyard.state import flows, ingress, upkeep
from turnyard.state.lanes import sent, take_lane
from turnyard.state.scripts import Library
from turnyard.state.yard import Yard

pytestmark = pytest.mark.asyncio

DISPATCHERS, PASSES = 8, 4


@dataclass(frozen=True)
class Crowd:
    """Sessions by what is the matter with them; only the first are due and free."""

    due: list[str]
    delayed: list[str]
    paused: list[str]
    busy: list[str]

    @staticmethod
    def of(size: int) -> Crowd:
        names = [f"s{i}" for i in range(size)]
        tenth = size // 10
        return Crowd(names[3 * tenth :], names[:tenth], names[tenth : 2 * tenth], names[2 * tenth : 3 * tenth])

    async def come(self, scene: Scene) -> str:
        """Let them all come; return the worker that runs the busy ones."""
        worker = await scene.worker()
        for name in [*self.busy, *self.paused]:
            view = await scene.open_turn(worker, session=name)
            if name in self.paused:
                await scene.reply(view)
                await scene.control("pause", session=name)
        for name in [*self.due, *self.busy, *self.paused]:
            await scene.say("more", session=name, mode="follow_up")
        for name in self.delayed:
            await scene.say("later", session=name, delay_ms=60_000)
        return worker


async def hand_out(yards: list[Yard], *dead: str) -> None:
    """Many dispatchers at once drain, admit and tick until nothing is left to be handed out."""
    for _ in range(PASSES):
        await asyncio.gather(
            *(flows.dispatch(yard.shards[0]) for yard in yards for _ in range(DISPATCHERS)),
            *(upkeep.tick(yard.shards[0], dead=dead) for yard in yards),
        )


async def taken(scene: Scene, claimers: list[str]) -> Counter[tuple[str, int]]:
    """Many workers at once take what lies on the lists; return how often each (session, epoch) was taken."""
    [key] = await scene.yard.redis.keys("*:turns:default:bot@0") or [b""]
    found: Counter[tuple[str, int]] = Counter()

    async def one() -> None:
        while raw := await scene.yard.redis.lpop(key):
            who, _, epoch = raw.decode().partition(" ")
            found[who, int(epoch)] += 1

    await asyncio.gather(*(one() for _ in claimers))
    return found


async def begun(scene: Scene, claimers: list[str], names: list[str], epoch: int) -> dict[str, TurnView]:
    """Every claimer begins every session at once; return the one view that each session gave."""
    views: dict[str, TurnView] = {}
    for name in names:
        tried = await asyncio.gather(*(scene.begin_as(owner, epoch, name) for owner in claimers))
        won = [view for view in tried if view is not None]
        assert len(won) <= 1, f"{name} was begun by {len(won)} workers"
        if won:
            views[name] = won[0]
    return views


async def only_what_is_due_and_free_is_handed_out(scene: Scene, size: int = 10) -> None:
    yards = [scene.yard, await Yard.open(scene.url, library=Library(clock_lua=CLOCK))]
    await flows.set_limits(scene.yard.shards[0], max_concurrent_turns=1000)
    crowd = Crowd.of(size)
    busy = await crowd.come(scene)
    claimers = [await scene.worker() for _ in range(size)]
    await hand_out(yards)
    assert await taken(scene, claimers) == Counter({(session_key("default", name), 1): 1 for name in crowd.due})
    views = await begun(scene, claimers, [*crowd.due, *crowd.delayed, *crowd.paused, *crowd.busy], 1)
    assert sorted(views) == sorted(crowd.due)
    # All of them die at once, and every session comes back once more, under an epoch that nobody had before.
    survivors = [await scene.worker() for _ in range(5)]
    await hand_out(yards, busy, *claimers)
    again = await taken(scene, survivors)
    assert again == Counter({(session_key("default", name), 2): 1 for name in [*crowd.due, *crowd.busy]})
    assert await begun(scene, claimers[:1], crowd.due[:5], 2) == {}
    assert await begun(scene, survivors[:2], crowd.due[:5], 1) == {}
    assert len(await begun(scene, survivors, crowd.due, 2)) == len(crowd.due)
    await yards[1].aclose()


@pytest.mark.spec("turn-50")
async def test_of_a_hundred_sessions_only_what_is_due_and_free_is_handed_out_once_and_under_a_new_epoch(scene: Scene) -> None:
    await only_what_is_due_and_free_is_handed_out(scene, 100)


WRITERS = 4


async def one_of_four_writers_writes(scene: Scene) -> None:
    writers = [await scene.worker() for _ in range(WRITERS)]
    stale: list[TurnView] = []
    held: dict[int, str] = {}
    await scene.say("go")
    for at in range(3 * WRITERS):
        holder = writers[at % WRITERS]
        view = await scene.start(holder, "s")
        held[view.epoch] = holder
        for step in range(2):
            said = Say({"text": f"{at}.{step}"})
            tries = [scene.commit(seen, append=(said,), owner=owner) for owner in writers for seen in (view, *stale[-2:])]
            made = await asyncio.gather(*tries, return_exceptions=True)
            written = [one for one in made if isinstance(one, TurnView)]
            assert all(isinstance(one, TurnView | FenceLost | Diverged) for one in made), made
            assert len(written) == 1, "not one writer but as many as tried"
            stale.append(view)
            view = written[0]
        await scene.commit(view, ending="yield" if at % 3 else "finish", append=(), owner=holder)
        if at % 3 == 0:
            await scene.say("go")
    records = await scene.log()
    assert [r.seq for r in records] == list(range(1, len(records) + 1))
    epochs = [r.epoch for r in records if r.epoch]
    assert epochs == sorted(epochs)
    assert [e.body["text"] for e in records if e.type == "assistant/message"] == [f"{at}.{step}" for at in range(12) for step in range(2)]
    assert len(held) == 3 * WRITERS


@pytest.mark.spec("runner-24")
async def test_of_four_writers_one_writes_at_a_time_and_the_numbers_of_the_log_have_no_gap(scene: Scene) -> None:
    await one_of_four_writers_writes(scene)


async def what_is_committed_is_sent(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    first, second = await scene.worker(), await scene.worker()
    view = await scene.open_turn(first, session="lift")
    lift = call(view, 0, "lift", idempotent=True)
    await scene.launch(await scene.ask(view, lift), lift.id, secret=False, lanes=("arq",))
    await scene.reply(await scene.open_turn(first, session="reply"), "bye", lanes=("slack",))
    lost = await scene.open_turn(first, session="lost")
    lost = await scene.ask(lost, call(lost, 0, "lift"))
    await scene.tick(first)  # its worker is dead, and so is all that it did not commit
    for change in ({"append": (Say({"text": "never"}),), "ending": "finish", "lanes": ("slack",)}, {"lanes": ("arq",)}):
        with pytest.raises(FenceLost):
            await scene.commit(lost, owner=first, **change)
    lent = [(lane, item) for lane in ("arq", "slack") for item in await take_lane(shard, lane)]
    assert [lane for lane, _ in lent] == ["arq", "slack"]
    (_, arq), (_, slack) = lent
    assert {r.call for r in arq.records if r.call} == {lift.id}
    assert [r.body["text"] for r in slack.records if r.type == "assistant/message"] == ["bye"]
    assert all([await sent(shard, lane, item) for lane, item in lent])
    await scene.pass_ms(60_000)
    assert [await take_lane(shard, lane) for lane in ("arq", "slack")] == [[], []]
    assert await scene.begin(second, "lost") is not None


@pytest.mark.spec("turn-63")
async def test_what_a_committed_step_wants_sent_is_sent_though_its_worker_died_and_nothing_of_an_uncommitted_one(scene: Scene) -> None:
    await what_is_committed_is_sent(scene)


async def who_waits_for_a_person_uses_no_slot(scene: Scene) -> None:
    await flows.set_limits(scene.yard.shards[0], max_concurrent_turns=1)
    owner = await scene.worker(capacity=1)
    view = await scene.open_turn(owner, session="asks")
    asked = call(view, 0, "approval", awaited=True)
    await scene.say(session="other")
    await scene.dispatch()
    assert await scene.state("other") == "ready"
    await scene.park(await scene.ask(view, asked), asked.id)
    other = await scene.start(owner, "other")
    assert (await scene.state("asks"), await scene.running()) == ("parked", 1)
    await scene.reply(other)


@pytest.mark.spec("runner-5")
async def test_a_session_that_waits_for_a_person_uses_no_slot_and_another_one_runs_meanwhile(scene: Scene) -> None:
    await who_waits_for_a_person_uses_no_slot(scene)


async def follow_ups_survive_their_worker(scene: Scene) -> None:
    dead, owner = await scene.worker(), await scene.worker()
    view = await scene.open_turn(dead, "m1")
    for text, mode in (("f1", "follow_up"), ("f2", "follow_up"), ("steer", "steer"), ("f3", "follow_up")):
        await scene.say(text, mode=mode)
    await scene.dispatch()
    made = call(view)
    await scene.ask(view, made, start=(made.id,))
    await scene.tick(dead)
    view = await scene.start(owner)
    view = await scene.commit(view, append=(Answer(made.id, "result", OK),), claim=True)
    assert shown(view)[-1] == "steer"
    await scene.reply(view, "to both")
    for text in ("f1", "f2", "f3"):
        view = await scene.start(owner) if await scene.state() != "running" else view
        assert shown(view)[-1] == text
        await scene.reply(view, f"to {text}")
    told = [word for word in await scene.entries() if not word.startswith(made.id) and word not in ("=", f"?{made.id}")]
    assert told == ["m1", "steer", "=to both", "f1", "=to f1", "f2", "=to f2", "f3", "=to f3"]
    assert (await scene.state(), await scene.running()) == ("idle", 0)


@pytest.mark.spec("runner-46")
async def test_follow_ups_survive_a_killed_worker_and_run_one_by_one_in_their_order_behind_what_steered(scene: Scene) -> None:
    await follow_ups_survive_their_worker(scene)


async def one_limit_for_all_workers(scene: Scene) -> None:
    other = await Yard.open(scene.url, library=Library(clock_lua=CLOCK))
    await flows.set_limits(scene.yard.shards[0], max_concurrent_turns=3)
    workers = [await scene.worker() for _ in range(3)]
    names = [f"s{i}" for i in range(9)]
    for name in names:
        await scene.say(session=name)
    runs: dict[str, TurnView] = {}
    for crashed in (*workers[:2], None):
        await hand_out([scene.yard, other])
        assert await scene.running() == 3
        for i, name in enumerate(names):
            view = await scene.begin(workers[2 if crashed is None else (i % 2) + workers.index(crashed)], name)
            runs |= {name: view} if view else {}
        if crashed is not None:
            await scene.tick(crashed)  # the slots of its turns are free, and the turns ready again
    await hand_out([scene.yard, other])
    assert await scene.running() == 3
    await other.aclose()


@pytest.mark.spec("runner-4")
async def test_the_limit_of_turns_holds_over_all_workers_and_the_slots_of_a_crashed_one_come_back(scene: Scene) -> None:
    await one_limit_for_all_workers(scene)


async def one_order_whoever_accepts(scene: Scene) -> None:
    yards = [scene.yard, *[await Yard.open(scene.url, library=Library(clock_lua=CLOCK)) for _ in range(2)]]
    owner, second = await scene.worker(), await scene.worker()
    texts = [f"m{i}" for i in range(30)]
    told: list[str] = []
    for i in range(0, len(texts), 3):
        accepted = [ingress.accept_message(yard, scene.message(text)) for yard, text in zip(yards, texts[i : i + 3], strict=True)]
        made = await asyncio.gather(*accepted, *(flows.dispatch(yard.shards[0], limit=2) for yard in yards))
        told += [text for text, one in zip(texts[i : i + 3], made[:3], strict=True) if isinstance(one, Accepted)]
        if i % 9 == 0:
            await scene.dispatch()
            begun = [view for who in (owner, second) if (view := await scene.begin(who)) is not None]
            assert len(begun) == 1, "two turns of one session at once"
            await scene.reply(begun[0])
    await scene.dispatch()
    for who in (owner, second):
        if (view := await scene.begin(who)) is not None:
            await scene.reply(view)
    order = [r.jobs[0] for r in await scene.log() if r.type == "inbox/accepted"]
    said = [r.jobs[0] for r in await scene.log() if r.type == "user/message"]
    assert said == order
    assert sorted(told) == sorted(texts)
    assert sorted(word for word in await scene.entries() if not word.startswith("=")) == sorted(texts)
    for yard in yards[1:]:
        await yard.aclose()


@pytest.mark.spec("runner-2")
async def test_messages_of_a_session_are_handled_in_the_order_of_acceptance_whoever_accepted_them_and_turn_after_turn(scene: Scene) -> None:
    await one_order_whoever_accepts(scene)


async def one_event_is_one_turn(scene: Scene) -> None:
    other = await Yard.open(scene.url, library=Library(clock_lua=CLOCK))
    message = scene.message("hi", platform="slack")
    accepted = await asyncio.gather(*(ingress.accept_message(yard, message) for yard in (scene.yard, other) * 5))
    assert sorted(a.code for a in accepted) == ["accepted"] + ["duplicate"] * 9
    owner = await scene.worker()
    await asyncio.gather(*(flows.dispatch(yard.shards[0]) for yard in (scene.yard, other)))
    await scene.reply(await scene.start(owner))
    assert (await ingress.accept_message(other, message)).code == "duplicate"
    await scene.dispatch()
    assert await scene.entries() == ["hi", "=bye"]
    assert [r.type for r in await scene.log()].count("turn/end") == 1
    await other.aclose()


@pytest.mark.spec("runner-29")
async def test_an_event_that_two_processes_receive_at_once_makes_one_turn(scene: Scene) -> None:
    await one_event_is_one_turn(scene)


BROKEN: dict[str, Broken] = {
    "a turn is begun by whoever comes": (
        only_what_is_due_and_free_is_handed_out,
        "if h.st == 'running' and h.ow == owner then",
        "if h.st == 'running' then",
    ),
    "what is not due is handed out": (only_what_is_due_and_free_is_handed_out, "tonumber(it.du or 0) <= NOW", "true"),
    "an epoch is given twice": (only_what_is_due_and_free_is_handed_out, "add(h, 'ep', 1)", "if h.ep == 0 then set(h, 'ep', 1) end"),
    "a second writer writes": (one_of_four_writers_writes, "h.ow ~= owner or ", ""),
    "a commit tells no lane": (what_is_committed_is_sent, "for _, lane in ipairs(a.lanes or {}) do", "for _, lane in ipairs({}) do"),
    "a dead worker commits": (
        what_is_committed_is_sent,
        "h.st ~= 'running' or h.ep ~= epoch or h.ow ~= owner or not lease or lease == '-inf'",
        "false",
    ),
    "a session that waits keeps its slot": (
        who_waits_for_a_person_uses_no_slot,
        "release(h)\n  set(h, 'st', 'parked')",
        "set(h, 'st', 'parked')",
    ),
    "a limit counts what is handed out at once": (one_limit_for_all_workers, " - call('ZCARD', RUNNING)", ""),
    "what came later is read first": (one_order_whoever_accepts, "call('XRANGE', key, '-', '+')", "call('XREVRANGE', key, '+', '-')"),
    "an event is taken twice": (one_event_is_one_turn, "if was[1] then return", "if false then return"),
    "a follow-up steers": (follow_ups_survive_their_worker, "elseif mode == 'follow_up' then", "elseif mode == 'none' then"),
}


@pytest.mark.parametrize("rule", BROKEN)
async def test_the_rules_are_what_these_tests_see(clean: str, monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    await snaps(clean, monkeypatch, BROKEN[rule])
