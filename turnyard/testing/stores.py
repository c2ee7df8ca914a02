"""What every session store must do, as tests that a store's own test class inherits.

A subclass says how to open one more client of the session of this test, and how the store's time passes; the tests then hold it
to the port, each name being one rule of it. The tests are coroutines: run them with pytest-asyncio in its auto mode.
"""

# ruff: noqa: D102 - the name of a test is its rule

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest

from turnyard.engine.render import render
from turnyard.errors import Diverged, FenceLost
from turnyard.ports import SessionStore
from turnyard.records.commit import PLACEHOLDER, Answer, Clear, Commit, Note, Park
from turnyard.records.log import NOTICE, RESULT, USER
from turnyard.testing.store_entries import EntryRules
from turnyard.testing.store_scenes import (
    MINUTE_MS,
    ODD,
    accepted_everywhere,
    answers,
    begun,
    dumped,
    ended,
    launched,
    one,
    records,
    say,
    shown_notice,
    words,
)
from turnyard.testing.store_turns import TurnRules


class SessionStoreConformance(EntryRules, TurnRules):
    """Tests of the store port."""

    # -- calls that are answered later --------------------------------------------------------------------------------

    async def test_a_pending_call_leaves_its_placeholder_lets_the_turn_end_and_blocks_nothing(self) -> None:
        store = await self.open()
        view, call = await launched(store)
        for entries in (view.entries, await store.entries()):
            pending = one(entries, RESULT)
            assert (pending.call, pending.outcome, pending.body) == (call, PLACEHOLDER, {"content": f"Pending: job-7 as {call}"})
        assert (await ended(store, view)).ended
        assert await store.begin() is None
        await store.publish({"text": "can we talk meanwhile?"})
        assert words((await begun(store)).entries)[-1] == "can we talk meanwhile?"

    async def test_a_late_result_wakes_the_session_and_stands_beside_its_placeholder_in_a_list_that_strict_apis_accept(self) -> None:
        store = await self.open()
        view, call = await launched(store)
        await ended(store, view)
        assert await store.outcome(call, "result", {"content": "it is here", **ODD}) == "accepted"
        view = await begun(store)
        first, late = (e for e in view.entries if e.type == RESULT)
        assert (first.outcome, first.aside) == (PLACEHOLDER, False)
        assert (late.call, late.outcome, late.aside) == (call, "result", True)
        assert dumped(late.body) == dumped({"content": "it is here", **ODD})
        shown = [str(m.get("content")) for m in render(view.entries)]
        assert any(f"Pending: job-7 as {call}" in text for text in shown)
        assert "it is here" in shown[-1]
        accepted_everywhere(view)

    async def test_a_late_result_a_message_and_a_notice_are_claimed_together_in_order_of_arrival(self) -> None:
        store = await self.open()
        view, call = await launched(store)
        await ended(store, view)
        await store.notice({"text": "the shop closes"}, group="shop", key="hours")
        await store.publish({"text": "is it here?"})
        await store.outcome(call, "result", {"content": "it is here"})
        view = await begun(store)
        assert [e.type for e in view.entries[-3:]] == [NOTICE, USER, RESULT]
        accepted_everywhere(view)
        await ended(store, view)
        assert await store.begin() is None, "all three are answered"

    async def test_the_first_outcome_stands_an_unknown_call_is_gone_and_past_its_deadline_a_call_has_timed_out(self) -> None:
        store = await self.open()
        view, call = await launched(store)
        await ended(store, view)
        told = [await store.outcome(call, "result", {"content": text}) for text in ("here", "here", "there")]
        assert told == ["accepted", "duplicate", "conflict"]
        assert await store.outcome("call_nobody", "result", {"content": "x"}) == "gone"
        view = await begun(store)
        assert [e.body["content"] for e in view.entries if e.aside] == ["here"]
        view = await ended(store, view)
        view, late = await launched(store)
        await ended(store, view)
        await self.pass_ms(MINUTE_MS - 1000)
        assert await store.begin() is None
        await self.pass_ms(2000)
        view = await begun(store)
        assert [e.outcome for e in view.entries if e.call == late and e.aside] == ["timeout"]
        await ended(store, view)
        told = [await store.outcome(late, "result", {"content": text}) for text in ("after all", "after all", "again")]
        assert told == ["accepted", "duplicate", "conflict"]
        view = await begun(store)
        assert [(e.outcome, e.late) for e in view.entries if e.call == late and e.aside] == [("timeout", False), ("result", True)]
        accepted_everywhere(view)

    # -- notices ------------------------------------------------------------------------------------------------------

    async def test_a_newer_notice_takes_the_place_of_one_that_was_not_shown_and_wakes_nobody(self) -> None:
        store = await self.open()
        for percent in (90, 95, 99):
            await store.notice({"text": f"disk at {percent} %", **ODD}, group="disk", key="sda")
        await store.notice({"text": "no backup"}, group="disk", key="sdb")
        assert (await store.pending(), await store.begin()) == (0, None)
        assert [(n.group, n.key, n.body["text"], n.seq) for n in await store.notices()] == [
            ("disk", "sda", "disk at 99 %", 0),
            ("disk", "sdb", "no backup", 0),
        ]
        await store.publish({"text": "hi"})
        assert await store.pending() == 1
        view = await begun(store)
        assert words(view.entries) == ["disk at 99 %", "no backup", "hi"]
        assert dumped(view.entries[0].body) == dumped({"text": "disk at 99 %", **ODD})

    async def test_a_notice_that_was_shown_stays_beside_a_newer_one_and_one_may_stand_beside_an_unshown_one(self) -> None:
        store = await self.open()
        view = await shown_notice(store)
        await store.notice({"text": "worse"}, group="disk", key="sda")
        await store.notice({"text": "beside"}, group="disk", key="sda", supersede=False)
        assert [(n.body["text"], n.seq > 0) for n in await store.notices()] == [("full", True), ("worse", False), ("beside", False)]
        view = await store.commit(view, Commit(claim=True))
        assert words(view.entries) == ["full", "hi", "worse", "beside"]

    async def test_clearing_takes_away_the_notices_of_a_pair_shown_or_not_and_no_other(self) -> None:
        store = await self.open()
        view = await shown_notice(store)
        await store.notice({"text": "worse"}, group="disk", key="sda")
        await store.notice({"text": "no backup"}, group="disk", key="sdb")
        await store.clear(group="disk", key="sda")
        assert [n.body["text"] for n in await store.notices()] == ["no backup"]
        assert words(await store.entries()) == ["hi"]
        view = await store.commit(view, Commit(claim=True))
        assert words(view.entries) == ["hi", "no backup"]
        await ended(store, view)
        await store.notice({"text": "full again"}, group="disk", key="sda")
        await store.publish({"text": "and now?"})
        assert words((await begun(store)).entries) == ["hi", "no backup", "bye", "full again", "and now?"]

    async def test_a_commit_clears_the_shown_notices_of_a_pair_and_leaves_those_that_wait(self) -> None:
        store, other = await self.open(), await self.open()
        view = await shown_notice(store)
        await store.notice({"text": "worse"}, group="disk", key="sda")
        view = await store.commit(view, Commit(append=(Clear("disk\nsda"),)))
        for seen in (view.entries, await other.entries(), (await begun(store)).entries):
            assert words(seen) == ["hi"]
        assert [n.body["text"] for n in await other.notices()] == ["worse"]
        view = await store.commit(await begun(store), Commit(claim=True))
        assert words(view.entries) == ["hi", "worse"]

    async def test_a_notice_that_has_outlived_its_time_is_not_shown(self) -> None:
        store = await self.open()
        await store.notice({"text": "short"}, group="g", key="short", ttl_ms=MINUTE_MS)
        await store.notice({"text": "long"}, group="g", key="long", ttl_ms=3 * MINUTE_MS)
        await self.pass_ms(MINUTE_MS - 1000)
        assert [n.body["text"] for n in await store.notices()] == ["short", "long"]
        await self.pass_ms(2000)
        assert [n.body["text"] for n in await store.notices()] == ["long"]
        await store.publish({"text": "hi"})
        view = await begun(store)
        assert words(view.entries) == ["long", "hi"]
        assert view.entries[0].until_ms is not None
        assert 0 < view.entries[0].until_ms - view.now_ms < 2 * MINUTE_MS
        await self.pass_ms(2 * MINUTE_MS)
        assert list(await store.notices()) == []

    # -- the fence ----------------------------------------------------------------------------------------------------

    async def test_one_client_has_the_turn_and_may_ask_for_it_again(self) -> None:
        store, other = await self.open(), await self.open()
        assert await store.begin() is None
        await store.publish({"text": "hi"})
        view = await begun(store)
        assert await other.begin() is None
        again = await begun(store)
        assert (again.turn, again.epoch, again.rev, words(again.entries)) == (view.turn, view.epoch, view.rev, ["hi"])
        await ended(store, again)
        await store.publish({"text": "you"})
        assert words((await begun(other)).entries) == ["hi", "bye", "you"]

    async def test_a_stale_writer_is_refused_whole(self) -> None:
        store, other = await self.open(), await self.open()
        await store.publish({"text": "hi"})
        first = await begun(store)
        made = say(first, "", 2)
        second = await store.commit(first, Commit(append=(made,)))
        third = await store.commit(second, Commit(start=(made.calls[0].id,)))
        await store.publish({"text": "waiting"})
        assert await store.pending() == 1
        before = await self._seen(store)
        one_call, other_call = (c.id for c in made.calls)
        stale = Commit(
            append=(Answer(one_call, "result", {"content": "x"}), Note(NOTICE, {"text": "stale"})),
            park=(Park(other_call, MINUTE_MS),),
            settle=(Answer(other_call, "result", {"content": "y"}),),
            unstart=(one_call,),
            usage={"model_calls": 7},
            claim=True,
        )
        with pytest.raises(Diverged):
            await store.commit(first, stale)
        assert await other.begin() is None
        with pytest.raises(FenceLost):
            await other.commit(third, stale)
        with contextlib.suppress(Diverged):
            await store.commit(second, stale)  # what it repeats is done
        assert await self._seen(store) == before
        assert await store.pending() == 1
        view = await store.commit(await store.commit(third, Commit(append=answers(made))), Commit(claim=True))
        assert (await ended(store, view)).ended
        with pytest.raises((FenceLost, Diverged)):
            await store.commit(replace(view, rev=view.rev + 1), Commit(append=(Note(NOTICE, {"text": "after the end"}),)))
        assert words(await store.entries()) == ["hi", "", "waiting", "bye"]

    async def _seen(self, store: SessionStore) -> tuple[Any, ...]:
        view = await begun(store)
        return view.rev, view.rows, [(r.seq, r.type, r.body) for r in await records(store)]
