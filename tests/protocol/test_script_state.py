"""What a turn remembers between two transitions, and how long it ran, is kept by the server and by nobody else."""

from __future__ import annotations

import pytest

from tests.protocol.broken import Broken, snaps
from tests.protocol.scene import DAY_MS, Scene, call
from turnyard.errors import Diverged, FenceLost, StateTooLarge
from turnyard.records.commit import MOST_STATE_BYTES, Clear, Commit, Note, Park, Say, Wait
from turnyard.records.log import NOTICE
from turnyard.state import turns

pytestmark = pytest.mark.asyncio

STATE = {"s": {"n": 1, "words": ["ü", None, 1.5]}, "k": {"folds": 2}}


@pytest.mark.spec("turn-61")
async def test_the_state_of_a_turn_is_what_its_last_commit_left_whoever_goes_on(scene: Scene) -> None:
    one, two = await scene.worker(), await scene.worker()
    view = await scene.open_turn(one)
    assert view.state == {}
    view = await scene.commit(view, append=(Say({"text": "a"}),), state={"s": 1})
    view = await scene.commit(view, append=(Say({"text": "b"}),), state=STATE)
    assert view.state == STATE
    await scene.tick(one, parts="")  # it died before its next commit
    view = await scene.start(two)
    assert (view.state, [e.body["text"] for e in view.entries]) == (STATE, ["hello", "a", "b"])
    view = await scene.commit(view, claim=True)
    assert view.state == STATE, "a commit that says nothing of it leaves it"
    view = await scene.commit(view, claim=True, state={})
    assert view.state == {}


@pytest.mark.parametrize("how", ["yield", "park"])
async def test_a_turn_that_waits_or_yields_keeps_its_state(scene: Scene, how: str) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    waits = (Wait("w1", "timer", 5000),) if how == "park" else ()
    view = await scene.commit(view, state=STATE, wait=waits, ending=how)
    assert (view.ended, view.state) == (True, {}), "what has ended for this worker shows it nothing"
    await scene.pass_ms(5000)
    await scene.tick()
    assert (await scene.start(owner)).state == STATE


async def test_a_turns_state_ends_with_the_turn(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    view = await scene.commit(view, claim=True, state={"s": 1})
    await scene.say("more")
    await scene.dispatch()
    view = await scene.reply(view)
    assert not view.ended, "the next turn opens at once"
    assert view.state == {}


@pytest.mark.spec("turn-49")
async def test_a_refused_commit_changes_nothing_not_even_the_state(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    newer = await scene.commit(await scene.commit(view, claim=True), claim=True, state={"s": 1})
    stale = Commit(append=(Say({"text": "stale"}), Note(NOTICE, {"text": "x"}), Clear("g\nk")), state={"s": 2}, low=1)
    before = await scene.head()
    with pytest.raises(Diverged):
        await turns.commit(scene.shard(), view, owner, stale)
    with pytest.raises(FenceLost):
        await turns.commit(scene.shard(), newer, "cd" * 16, stale)
    assert await scene.head() == before
    again = await scene.begin_as(owner, newer.epoch)
    assert again is not None
    assert (again.state, again.rev, again.entries) == ({"s": 1}, newer.rev, newer.entries)


@pytest.mark.spec("turn-53")
async def test_who_slept_through_the_lease_is_refused_and_leaves_the_newer_state_alone(scene: Scene) -> None:
    asleep, awake = await scene.worker(), await scene.worker()
    old = await scene.open_turn(asleep)
    await scene.pass_ms(60_000)
    await scene.tick(asleep, parts="")
    view = await scene.commit(await scene.start(awake), append=(Say({"text": "new"}),), state={"s": "new"})
    before = await scene.head()
    with pytest.raises(FenceLost):
        await turns.commit(scene.shard(), old, asleep, Commit(append=(Say({"text": "old"}),), state={"s": "old"}, ending="finish"))
    assert await scene.head() == before
    assert [r.body["text"] for r in await scene.log() if r.is_entry] == ["hello", "new"]
    await scene.reply(view)


async def test_a_state_that_is_too_large_is_refused_before_anything_is_sent(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    most = "x" * (MOST_STATE_BYTES - len('{"s":""}'))
    view = await scene.commit(view, append=(Say({"text": "a"}),), state={"s": most})
    assert view.state == {"s": most}
    too_large = f"{MOST_STATE_BYTES + 1:,} bytes as JSON and may be {MOST_STATE_BYTES:,}: keep what is large"
    with pytest.raises(StateTooLarge, match=too_large):
        await scene.commit(view, append=(Say({"text": "b"}),), state={"s": most + "x"})
    assert await scene.entries() == ["hello", "=a"]
    await scene.reply(view)


async def test_a_turn_without_state_that_never_waits_leaves_no_field_of_it(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    await scene.pass_ms(300)
    await scene.reply(await scene.commit(view, claim=True))
    assert not [field for field in await scene.head() if field in ("sb", "ac", "lb") or field.startswith("lo:")]


# -- how long it ran


async def test_the_time_a_turn_runs_leaves_its_waits_out_and_counts_every_worker(scene: Scene) -> None:
    one, two = await scene.worker(), await scene.worker()
    view = await scene.open_turn(one)
    await scene.pass_ms(700)
    view = await scene.commit(view, wait=(Wait("w1", "retry", 5_000),), claim=True, ending="park")
    await scene.pass_ms(5_000)
    await scene.tick()
    view = await scene.start(one)
    assert view.active_ms == 700
    await scene.pass_ms(300)
    view = await scene.commit(view, claim=True)
    assert view.active_ms == 1_000
    await scene.commit(view, ending="yield")
    await scene.pass_ms(4_000)
    view = await scene.start(one)
    assert view.active_ms == 1_000
    await scene.pass_ms(200)
    await scene.tick(one, parts="")  # it died; until somebody says so, it holds the turn
    await scene.pass_ms(4_000)
    view = await scene.start(two)
    assert view.active_ms == 1_200
    assert (await scene.reply(view)).active_ms == 0


async def test_a_turn_that_is_opened_by_the_end_of_another_counts_from_there(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    await scene.pass_ms(700)
    await scene.say("more")
    await scene.dispatch()
    view = await scene.reply(view)
    assert (view.ended, view.active_ms) == (False, 0)
    await scene.pass_ms(40)
    view = await scene.commit(view, claim=True)
    assert view.active_ms == 40
    await scene.commit(view, wait=(Wait("w1", "retry", 5_000),), ending="park")
    await scene.pass_ms(5_000)
    await scene.tick()
    assert (await scene.start(owner)).active_ms == 40


# -- a question: a call that only waits


@pytest.mark.spec("turn-54")
async def test_a_question_waits_without_a_slot_and_its_first_answer_wakes_the_turn_and_stands(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    asked = call(view, 0, "question", awaited=True)
    view = await scene.ask(view, asked, park=(Park(asked.id, DAY_MS),), ending="park")
    assert (view.ended, await scene.state(), await scene.running()) == (True, "parked", 0)
    store = f"{scene.sid()}.0"
    answers = [{"content": text} for text in ("blue", "blue", "red")]
    codes = [(await scene.outcome(store, asked.id, body=body, secret_hash=None)).code for body in answers]
    assert codes == ["accepted", "duplicate", "conflict"]
    view = await scene.start(owner)
    assert [(e.call, e.outcome, e.body) for e in view.entries[-1:]] == [(asked.id, "result", {"content": "blue"})]
    await scene.reply(view)
    await scene.pass_ms(3_600_000)
    await scene.tick()
    late = await scene.outcome(store, asked.id, body={"content": "red"}, secret_hash=None)
    assert late.code == "conflict", "who answers an hour later hears that somebody else did"


@pytest.mark.spec("turn-54")
async def test_a_question_that_nobody_answers_expires(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    asked = call(view, 0, "question", awaited=True)
    await scene.ask(view, asked, park=(Park(asked.id, 60_000),), ending="park")
    await scene.pass_ms(59_999)
    await scene.tick()
    assert await scene.state() == "parked"
    await scene.pass_ms(1)
    await scene.tick()
    view = await scene.start(await scene.worker())
    assert [(e.call, e.outcome) for e in view.entries[-1:]] == [(asked.id, "timeout")]
    await scene.reply(view)


async def test_a_question_gives_way_to_its_askers_next_message(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    asked = call(view, 0, "question", awaited=True)
    await scene.ask(view, asked, park=(Park(asked.id, DAY_MS),), ending="park")
    await scene.say("never mind")
    view = await scene.start(owner)
    assert await scene.entries() == ["hello", "=", f"?{asked.id}", f"{asked.id}:superseded", "never mind"]
    await scene.reply(view)


DIVERGES = "  if h.rv ~= k - 1 or h[le] ~= base then return {'DIVERGED'} end\n"
DECODES = "  local a = cjson.decode(ARGV[7])\n"
BROKEN: dict[str, Broken] = {
    "a commit leaves the state": (
        test_the_state_of_a_turn_is_what_its_last_commit_left_whoever_goes_on,
        *("  if a.state then set(h, 'sb',", "  if a.state and h.sb == '' then set(h, 'sb',"),
    ),
    "the state ends with the turn": (test_a_turns_state_ends_with_the_turn, *("  set(h, 'sb', '')\n", "")),
    "a refused commit is refused whole": (
        test_a_refused_commit_changes_nothing_not_even_the_state,
        DIVERGES + DECODES,
        DECODES + "  if a.state then set(h, 'sb', ARGV[7 + a.state] or '') end\n" + DIVERGES,
    ),
    "a sleeper is refused": (
        test_who_slept_through_the_lease_is_refused_and_leaves_the_newer_state_alone,
        *("if h.st ~= 'running' or h.ep ~= epoch or h.ow ~= owner or not lease or lease == '-inf' then", "if h.st ~= 'running' then"),
    ),
    "time is counted when the slot is given back": (
        test_the_time_a_turn_runs_leaves_its_waits_out_and_counts_every_worker,
        *("  if h.st == 'running' and h.tu ~= '' then set(h, 'ac', ran(h)) end\n", ""),
    ),
    "a turn counts from its own beginning": (
        test_a_turn_that_is_opened_by_the_end_of_another_counts_from_there,
        *("    set(h, 'ac', h.bg - NOW)\n", ""),
    ),
    "a question stays answered": (
        test_a_question_waits_without_a_slot_and_its_first_answer_wakes_the_turn_and_stands,
        *("or r.k == 'callback' or asks(r)", "or r.k == 'callback'"),
    ),
    "a question expires": (
        test_a_question_that_nobody_answers_expires,
        *("  settle(h, r, outcome, 'tick')\n", ""),
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
async def test_without_its_rule_what_a_turn_remembers_goes_wrong(clean: str, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await snaps(clean, monkeypatch, BROKEN[rule])
