"""What every session store must do with entries, with what arrives, and with summaries."""

# ruff: noqa: D102 - the name of a test is its rule

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from turnyard.engine.render import render
from turnyard.errors import Diverged
from turnyard.records.commit import Commit, Note, Say
from turnyard.records.log import ASSISTANT, COMPACTION, NOTICE, USER
from turnyard.testing.store_scenes import (
    ODD,
    StoreTest,
    answers,
    begun,
    dumped,
    ended,
    long_turn,
    one,
    records,
    say,
    summary,
    words,
)


class EntryRules(StoreTest):
    """The rules about entries, arrivals and summaries."""

    # -- entries ------------------------------------------------------------------------------------------------------

    async def test_what_an_entry_holds_comes_back_byte_for_byte_also_what_a_summary_stands_for(self) -> None:
        store, other = await self.open(), await self.open()
        asked = {"text": " \u00a0x\r\n", **ODD}
        await store.publish(asked)
        usage = {"input_tokens": 20, "output_tokens": 4, "cached_tokens": 7}
        said = {"text": "", "usage": usage, "model": "m/1", "finish": "stop", **ODD}
        news, custom = {"text": "news", **ODD}, {"odd": ODD}
        view = await begun(store)
        at = view.entries[0].seq
        summary = {**ODD, "text": "it went well", "at": at, "spans": [[at, at]], "count": 1, "subsumes": [{"id": str(at), **ODD}]}
        view = await store.commit(view, Commit(append=(Say(said), Note(NOTICE, news), Note("custom/kind", custom))))
        await store.commit(view, Commit(append=(Note(COMPACTION, summary),)))
        wanted = {ASSISTANT: said, NOTICE: news, COMPACTION: summary}
        kept = await begun(store)
        for seen in (await other.entries(), kept.entries):
            assert {e.type: dumped(e.body) for e in seen} == {kind: dumped(body) for kind, body in wanted.items()}
        assert dumped(one(await records(other), USER).body) == dumped(asked)
        assert dumped(one(await records(other), "custom/kind").body) == dumped(custom)

    async def test_records_are_numbered_without_a_gap_and_render_alike_however_they_are_shuffled(self) -> None:
        store = await self.open()
        await store.publish({"text": "hi"})
        view = await begun(store)
        view = await store.commit(view, Commit(append=(made := say(view, "let me see", 2), *answers(made))))
        view = await store.commit(view, Commit(append=tuple(Note(NOTICE, {"text": str(i)}) for i in range(5))))
        assert [r.seq for r in await records(store)] == list(range(1, len(await records(store)) + 1))
        entries = list(await store.entries())
        assert [e.seq for e in entries] == [e.seq for e in view.entries]
        straight = render(entries)
        for seed in range(20):
            random.Random(seed).shuffle(entries)
            assert render(entries) == straight

    async def test_entries_are_copies_that_their_reader_may_change(self) -> None:
        store = await self.open()
        await store.publish({"text": "hi"})
        await begun(store)
        (await store.entries())[0].body["text"] = "changed"
        assert words(await store.entries()) == ["hi"]

    async def test_what_a_commit_wrote_is_seen_by_another_client_at_once_and_is_nobodys_arrival(self) -> None:
        store, other = await self.open(), await self.open()
        await store.publish({"text": "hi"})
        view = await begun(store)
        view = await store.commit(view, Commit(append=(Note(NOTICE, {"text": "aside"}),)))
        assert words(await other.entries()) == ["hi", "aside"]
        assert await other.pending() == 0
        view = await store.commit(view, Commit(claim=True))
        assert words(view.entries) == ["hi", "aside"]
        assert (await ended(store, view)).ended
        assert await other.begin() is None

    # -- what arrives -------------------------------------------------------------------------------------------------

    async def test_what_waits_is_claimed_once_however_many_race_for_it(self) -> None:
        racers = [await self.open() for _ in range(20)]
        for text in ("one", "two", "three"):
            await racers[0].publish({"text": text})
        assert await racers[1].pending() == 3
        assert await racers[1].entries() == []
        views = await asyncio.gather(*(racer.begin() for racer in racers))
        won = [(racer, view) for racer, view in zip(racers, views, strict=True) if view is not None]
        assert [words(view.entries) for _, view in won] == [["one", "two", "three"]]
        assert [await racer.pending() for racer in racers[:3]] == [0, 0, 0]
        ((winner, view),) = won
        view = await winner.commit(view, Commit(claim=True))
        assert words(view.entries) == ["one", "two", "three"]

    async def test_messages_that_wait_together_are_claimed_together_in_their_order(self) -> None:
        store = await self.open()
        jobs = [await store.publish({"text": text}) for text in ("one", "two", "three")]
        view = await begun(store)
        assert words(view.entries) == ["one", "two", "three"]
        assert [e.jobs for e in view.entries] == [(job,) for job in jobs]
        assert list(view.jobs) == jobs
        await ended(store, view)
        assert await store.begin() is None, "all three are answered"

    async def test_a_message_that_comes_while_a_turn_runs_waits_for_a_claim_and_wakes_when_nobody_claims_it(self) -> None:
        store = await self.open()
        await store.publish({"text": "hi"})
        view = await begun(store)
        await store.publish({"text": "and now?"})
        made = say(view, "", 1)
        view = await store.commit(view, Commit(append=(made,), claim=True))
        assert words(view.entries) == ["hi", ""], "it must not come between a call and its result"
        view = await store.commit(view, Commit(append=answers(made)))
        assert await store.pending() == 1
        view = await ended(store, view)
        view = await begun(store)
        assert words(view.entries)[-1] == "and now?"

    async def test_injected_context_is_in_the_next_claim_but_starts_nothing_and_is_not_counted(self) -> None:
        store = await self.open()
        await store.inject({"text": "it rains", **ODD})
        assert (await store.pending(), await store.begin()) == (0, None)
        await store.publish({"text": "hi"})
        assert await store.pending() == 1
        view = await begun(store)
        assert words(view.entries) == ["it rains", "hi"]
        assert dumped(view.entries[0].body) == dumped({"text": "it rains", **ODD})
        await store.inject({"text": "it pours"})
        assert await store.pending() == 0
        view = await store.commit(view, Commit(claim=True))
        assert words(view.entries) == ["it rains", "hi", "it pours"]

    async def test_injected_context_that_wakes_starts_a_turn(self) -> None:
        store = await self.open()
        await store.inject({"text": "the shop has opened"}, wake=True)
        assert await store.pending() == 1
        view = await begun(store)
        assert (words(view.entries), view.jobs) == (["the shop has opened"], ())
        assert (await ended(store, view)).ended
        assert await store.begin() is None

    # -- summaries ----------------------------------------------------------------------------------------------------

    async def test_a_summary_stands_where_its_entries_stood_and_they_can_still_be_read(self) -> None:
        store, other = await self.open(), await self.open()
        view = await long_turn(store)
        folded = [e.seq for e in view.entries[:4]]
        await store.commit(view, Commit(append=(summary(view, 4),)))
        await store.publish({"text": "later"})
        view = await store.commit(await begun(store), Commit(claim=True))
        for seen in (view.entries, await other.entries()):
            assert words(seen) == ["summed up", "4", "later"]
        hidden = [await other.entry(seq) for seq in folded]
        assert [r.body["text"] for r in hidden if r is not None] == ["hi", "1", "2", "3"]
        assert await other.entry(99) is None

    async def test_a_compaction_that_is_broken_off_leaves_the_old_history_or_the_new_one(self) -> None:
        store, other = await self.open(), await self.open()
        view = await long_turn(store)
        old, new = ["hi", "1", "2", "3", "4"], ["summed up", "4"]
        for moment in range(40):
            writing = asyncio.ensure_future(store.commit(view, Commit(append=(summary(view, 4),))))
            for _ in range(moment):
                await asyncio.sleep(0)
            writing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await writing
            assert words(await other.entries()) in (old, new)
            if words((view := await begun(store)).entries) == new:
                break
        else:
            pytest.fail("no compaction came through")
        assert words(await other.entries()) == new

    async def test_a_compaction_for_a_view_that_is_not_the_newest_changes_nothing(self) -> None:
        store, other = await self.open(), await self.open()
        old = await long_turn(store)
        new = old
        for text in ("5", "6"):
            new = await store.commit(new, Commit(append=(Note(NOTICE, {"text": text}),)))
        with pytest.raises(Diverged):
            await store.commit(old, Commit(append=(summary(old, 4),)))
        assert words(await other.entries()) == ["hi", "1", "2", "3", "4", "5", "6"]
        assert words((await store.commit(new, Commit(append=(summary(new, 5),)))).entries) == ["summed up", "5", "6"]
