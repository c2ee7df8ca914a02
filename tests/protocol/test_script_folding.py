"""What a summary stands for is hidden from models, never from readers, and a rollback of its turn shows it again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.protocol.broken import Broken, snaps
from tests.protocol.scene import Scene
from turnyard.errors import Diverged
from turnyard.records.commit import Clear, Commit, Note, Say, TurnView
from turnyard.records.log import COMPACTION, NOTICE, LogRecord
from turnyard.state import turns
from turnyard.state.log import read_entry

pytestmark = pytest.mark.asyncio


def summary(folded: Sequence[LogRecord], text: str = "summed up") -> Note:
    """Return the summary of a stretch of entries."""
    spans = [[e.seq, e.seq] for e in folded]
    body = {"text": text, "at": folded[-1].seq, "spans": spans, "count": len(folded), "before": 9, "after": 1, "more": False}
    return Note(COMPACTION, body)


def fold(view: TurnView, first: int, last: int, text: str = "summed up") -> Commit:
    """Return the commit that folds the entries of a view from `first` up to, not including, `last`."""
    left = [e.seq for e in (*view.entries[:first], *view.entries[last:])]
    return Commit(append=(summary(view.entries[first:last], text),), low=min(left, default=view.last_seq + 1))


def words(view: TurnView | None) -> list[str]:
    assert view is not None
    return [e.body["text"] for e in view.entries]


async def long_turn(scene: Scene, owner: str, *, of: int = 4) -> TurnView:
    view = await scene.open_turn(owner)
    return await scene.commit(view, append=tuple(Note(NOTICE, {"text": f"n{i}"}) for i in range(of)))


def kept(view: TurnView, before: TurnView) -> TurnView:
    """Return what a worker keeps of a turn that it ended."""
    return replace(view, store=before.store, last_seq=max(e.seq for e in view.entries))


async def read_by_begin(scene: Scene, view: TurnView, owner: str) -> list[int]:
    """Return the numbers of the records that a worker is sent which knows nothing of the turn."""
    reply = await scene.shard().run("begin", view.session, view.epoch, owner, "t", 0, "", 0, "")
    return [int(seq.partition(b"-")[0]) for seq, _ in reply[3]]


async def test_a_summary_stands_where_the_last_of_what_it_stands_for_was(scene: Scene) -> None:
    one, two = await scene.worker(), await scene.worker()
    view = await long_turn(scene, one)
    view = await scene.commit(view, fold(view, 1, 4))
    assert words(view) == ["hello", "summed up", "n3"]
    assert view.last_seq == max(e.seq for e in view.entries) > view.entries[-1].seq
    view = await scene.commit(view, append=(Say({"text": "a"}),))
    await scene.tick(one, parts="")
    view = await scene.start(two)
    assert words(view) == ["hello", "summed up", "n3", "a"]
    await scene.reply(view)


async def test_what_is_folded_is_not_sent_to_a_worker_that_begins_and_can_be_read_by_its_number(scene: Scene) -> None:
    owner = await scene.worker()
    view = await long_turn(scene, owner)
    folded = view.entries[:4]
    view = await scene.commit(view, fold(view, 0, 4))
    low = view.entries[-1].seq
    assert words(view) == ["summed up", "n3"]
    assert min(await read_by_begin(scene, view, owner)) == low
    assert words(await scene.begin_as(owner, view.epoch)) == ["summed up", "n3"]
    for entry in folded:
        found = await read_entry(scene.shard(), view.store, entry.seq)
        assert found is not None
        assert (found.seq, found.type, found.body) == (entry.seq, entry.type, entry.body)
    for seq in (10_000, 0, -5, 2**63, 10**30):
        assert await read_entry(scene.shard(), view.store, seq) is None
    view = await scene.commit(view, fold(view, 0, 2, "all of it"))
    assert words(view) == words(await scene.begin_as(owner, view.epoch)) == ["all of it"]
    assert len(await read_by_begin(scene, view, owner)) == 1
    await scene.reply(view)


async def test_who_ran_the_last_turn_knows_the_summary_and_reads_only_what_is_new(scene: Scene) -> None:
    owner = await scene.worker()
    view = await long_turn(scene, owner)
    view = await scene.commit(view, fold(view, 0, 4))
    known = kept(await scene.reply(view), view)
    await scene.say("more")
    await scene.dispatch()
    assert words(await scene.begin(owner, known=known)) == ["summed up", "n3", "bye", "more"]


# -- what arrives while a stretch is summed up


@pytest.mark.spec("runner-23")
async def test_what_arrives_during_a_compaction_waits_for_the_next_claim_and_is_seen(scene: Scene) -> None:
    one, two = await scene.worker(), await scene.worker()
    view = await long_turn(scene, one)
    await scene.say("are you there?")
    await scene.notice("disk full")
    await scene.dispatch()
    folded = await scene.commit(view, fold(view, 0, 5))
    assert words(folded) == ["summed up"]
    await scene.tick(one, parts="")
    view = await scene.start(two)
    assert words(view) == ["summed up", "are you there?", "disk full"]
    await scene.reply(view)


@pytest.mark.spec("runner-23")
async def test_an_entry_that_was_written_during_a_compaction_makes_it_start_over(scene: Scene) -> None:
    owner = await scene.worker()
    view = await long_turn(scene, owner)
    await scene.say("are you there?")
    await scene.dispatch()
    newer = await scene.commit(await scene.commit(view, claim=True), claim=True)
    before = (await scene.head(), await scene.log())
    # Neither its number nor a rev that somebody guessed right lets it through.
    for old in (view, replace(view, rev=newer.rev)):
        with pytest.raises(Diverged):
            await turns.commit(scene.shard(), old, owner, fold(view, 0, 5))
    assert (await scene.head(), await scene.log()) == before
    newer = await scene.commit(newer, fold(newer, 0, 5))
    assert words(newer) == ["summed up", "are you there?"]
    await scene.reply(newer)


async def test_a_notice_that_is_cleared_during_a_compaction_hinders_it_not(scene: Scene) -> None:
    owner = await scene.worker()
    await scene.notice("disk full")
    view = await long_turn(scene, owner)
    await scene.notice("", clear=True)
    await scene.dispatch()
    view = await scene.commit(view, fold(view, 2, 5))
    assert words(view) == words(await scene.begin_as(owner, view.epoch)) == ["hello", "summed up", "n3"]
    await scene.reply(view)


@pytest.mark.spec("turn-26")
async def test_a_notice_that_is_cleared_while_a_turn_runs_is_gone_with_its_next_commit(scene: Scene) -> None:
    owner = await scene.worker()
    await scene.notice("full")
    view = await scene.open_turn(owner)
    await scene.notice("", clear=True)
    await scene.dispatch()
    view = await scene.commit(view, append=(Say({"text": "a"}),))
    assert words(view) == ["hello", "a"]
    view = await scene.commit(view, append=(Say({"text": "b"}),))
    assert words(view) == words(await scene.begin_as(owner, view.epoch)) == ["hello", "a", "b"]
    await scene.reply(view)


@pytest.mark.spec("turn-26")
async def test_a_commit_clears_what_was_shown_and_leaves_what_waits(scene: Scene) -> None:
    owner = await scene.worker()
    await scene.notice("full")
    view = await scene.open_turn(owner)
    await scene.notice("fuller")
    await scene.dispatch()
    view = await scene.commit(view, append=(Clear("g\nk"),))
    assert words(view) == words(await scene.begin_as(owner, view.epoch)) == ["hello"]
    view = await scene.commit(view, claim=True)
    assert words(view) == words(await scene.begin_as(owner, view.epoch)) == ["hello", "fuller"]
    await scene.reply(view)


@pytest.mark.spec("turn-26")
async def test_a_commit_clears_what_waits_to_be_shown_where_it_says_so(scene: Scene) -> None:
    owner = await scene.worker()
    await scene.notice("full")
    view = await scene.open_turn(owner)
    await scene.notice("fuller")
    await scene.notice("hot", key="other")
    await scene.dispatch()
    view = await scene.commit(view, append=(Clear("g\nk", unshown=True),), claim=True)
    assert words(view) == words(await scene.begin_as(owner, view.epoch)) == ["hello", "hot"]
    await scene.reply(view)


# -- a rollback


async def rolled_back(scene: Scene, owner: str) -> TurnView:
    """Return what a worker keeps of a turn that summed up entries of the one before, and was rolled back."""
    view = await scene.commit(await scene.open_turn(owner, "one"), append=(Say({"text": "first"}),))
    view = await scene.commit(view, fold(view, 0, 1, "earlier"))
    await scene.reply(view)
    view = await scene.open_turn(owner, "two")
    assert words(view) == ["earlier", "first", "bye", "two"]
    view = await scene.commit(view, append=(Say({"text": "wrong"}), Note(NOTICE, {"text": "disk full"})))
    view = await scene.commit(view, fold(view, 0, 3, "earlier and more"))
    view = await scene.commit(view, fold(view, 0, 3, "all of it"))
    assert words(view) == ["all of it", "disk full"]
    await scene.say("better", mode="rollback")
    await scene.dispatch()
    last = await scene.close_turn(view)
    assert last.ended
    return kept(last, view)


async def test_a_rollback_takes_the_turns_summaries_along_and_shows_what_they_hid_of_earlier_turns(scene: Scene) -> None:
    owner = await scene.worker()
    await rolled_back(scene, owner)
    view = await scene.start(owner)
    assert words(view) == ["earlier", "first", "bye", "disk full", "better"]
    await scene.reply(view)


async def test_who_still_knows_the_summaries_of_a_turn_that_was_rolled_back_reads_what_they_hid(scene: Scene) -> None:
    owner = await scene.worker()
    known = await rolled_back(scene, owner)
    view = await scene.start(owner, known=known)
    assert words(view) == ["earlier", "first", "bye", "disk full", "better"]
    await scene.reply(view)


async def test_a_turn_that_is_only_cancelled_keeps_its_summary(scene: Scene) -> None:
    owner = await scene.worker()
    view = await long_turn(scene, owner)
    view = await scene.commit(view, fold(view, 0, 4))
    await scene.cancel()
    await scene.dispatch()
    await scene.close_turn(view)
    view = await scene.open_turn(owner, "more")
    assert words(view) == ["summed up", "n3", "more"]
    await scene.reply(view)


BROKEN: dict[str, Broken] = {
    "a begin reads from the oldest entry that is seen": (
        test_what_is_folded_is_not_sent_to_a_worker_that_begins_and_can_be_read_by_its_number,
        *("math.max(0, tonumber(h['lo:' .. h.ts] or 1) - 1)", "0"),
    ),
    "a commit says which one that is": (
        test_what_is_folded_is_not_sent_to_a_worker_that_begins_and_can_be_read_by_its_number,
        *("  set(h, lo, low)\n", ""),
    ),
    "a compaction compares the last entry": (
        test_an_entry_that_was_written_during_a_compaction_makes_it_start_over,
        *("h.rv ~= k - 1 or h[le] ~= base", "h.rv ~= k - 1"),
    ),
    "a compaction compares the number of its commit": (
        test_an_entry_that_was_written_during_a_compaction_makes_it_start_over,
        *("h.rv ~= k - 1 or h[le] ~= base", "h[le] ~= base and h.rv == k - 1"),
    ),
    "a clear from outside is told": (
        test_a_notice_that_is_cleared_while_a_turn_runs_is_gone_with_its_next_commit,
        *("  if h.nc == h.ts then h.foreign = base end\n", ""),
    ),
    "a rollback strikes summaries": (
        test_a_rollback_takes_the_turns_summaries_along_and_shows_what_they_hid_of_earlier_turns,
        *(", ['session/compaction'] = true", ""),
    ),
    "a rollback reads from where it was": (
        test_a_rollback_takes_the_turns_summaries_along_and_shows_what_they_hid_of_earlier_turns,
        *("  if h.lb > 0 then set(h, 'lo:' .. h.ts, h.lb) end\n", ""),
    ),
    "the first summary of a turn says where it was": (
        test_a_rollback_takes_the_turns_summaries_along_and_shows_what_they_hid_of_earlier_turns,
        *("  if h.lb == 0 then set(h, 'lb',", "  if true then set(h, 'lb',"),
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
async def test_without_its_rule_what_is_folded_goes_wrong(clean: str, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await snaps(clean, monkeypatch, BROKEN[rule])
