"""What every session store must do with a turn's own state, with what holds it, and with the time that it runs."""

# ruff: noqa: D102 - the name of a test is its rule

from __future__ import annotations

from dataclasses import replace

import pytest

from turnyard.errors import StateTooLarge
from turnyard.records.commit import MOST_STATE_BYTES, Commit, Note, Park, Say, Wait
from turnyard.records.log import COMPACTION, RESULT
from turnyard.testing.store_scenes import MINUTE_MS, ODD, StoreTest, begun, dumped, ended, long_turn, one, say, summary, words


class TurnRules(StoreTest):
    """The rules about what a turn remembers and what it waits for."""

    async def test_a_turns_state_is_what_its_last_commit_left_whoever_goes_on_and_ends_with_the_turn(self) -> None:
        store, other = await self.open(), await self.open()
        await store.publish({"text": "hi"})
        view = await begun(store)
        assert view.state == {}
        view = await store.commit(view, Commit(state={"s": {"n": 1, **ODD}}, ending="yield"))
        view = await begun(other)
        assert dumped(view.state) == dumped({"s": {"n": 1, **ODD}})
        view = await other.commit(view, Commit(claim=True))
        assert dumped(view.state) == dumped({"s": {"n": 1, **ODD}}), "a commit that says nothing of it leaves it"
        view = await other.commit(view, Commit(state={}))
        assert view.state == {}
        view = await other.commit(view, Commit(state={"s": 2}))
        assert (await begun(other)).state == {"s": 2}
        await ended(other, view)
        await store.publish({"text": "more"})
        assert (await begun(store)).state == {}

    async def test_a_commit_whose_state_is_too_large_changes_nothing(self) -> None:
        store = await self.open()
        await store.publish({"text": "hi"})
        view = await begun(store)
        large = Commit(append=(Say({"text": "never"}),), state={"s": "x" * (MOST_STATE_BYTES + 1)}, usage={"model_calls": 1})
        with pytest.raises(StateTooLarge):
            await store.commit(view, large)
        assert words(await store.entries()) == ["hi"]
        view = await store.commit(view, Commit(claim=True))
        assert (view.rev, view.state) == (1, {})

    async def test_a_delay_holds_the_turn_until_it_is_over_and_is_no_entry(self) -> None:
        store = await self.open()
        await store.publish({"text": "hi"})
        view = await begun(store)
        view = await store.commit(view, Commit(wait=(Wait("w1", "retry", MINUTE_MS),), ending="park"))
        assert view.ended
        await self.pass_ms(MINUTE_MS - 1000)
        assert await store.begin() is None
        await self.pass_ms(2000)
        view = await begun(store)
        assert (words(view.entries), view.rows) == (["hi"], ())
        assert (await ended(store, view)).ended
        assert await store.begin() is None

    async def test_the_time_a_turn_runs_is_counted_without_its_waits(self) -> None:
        store = await self.open()
        await store.publish({"text": "hi"})
        view = await begun(store)
        await self.pass_ms(700)
        view = await store.commit(view, Commit(claim=True))
        assert view.active_ms == 700
        await self.pass_ms(300)
        await store.commit(view, Commit(wait=(Wait("w1", "retry", MINUTE_MS),), ending="park"))
        await self.pass_ms(MINUTE_MS)
        view = await begun(store)
        assert view.active_ms == 1000
        await self.pass_ms(50)
        assert (await store.commit(view, Commit(claim=True))).active_ms == 1050
        assert view.now_ms > 0

    async def test_a_question_holds_the_turn_until_it_is_answered_and_its_answer_is_the_calls_result(self) -> None:
        store = await self.open()
        await store.publish({"text": "ask me"})
        view = await begun(store)
        asked = say(view, "", 1, kind="question")
        asked = replace(asked, calls=(replace(asked.calls[0], awaited=True),))
        call = asked.calls[0].id
        view = await store.commit(view, Commit(append=(asked,)))
        view = await store.commit(view, Commit(park=(Park(call, MINUTE_MS),), ending="park"))
        assert view.ended
        assert await store.begin() is None
        assert await store.outcome(call, "result", {"content": "blue", **ODD}) == "accepted"
        view = await begun(store)
        answer = one(view.entries, RESULT)
        assert (answer.call, answer.outcome, answer.aside) == (call, "result", False)
        assert dumped(answer.body) == dumped({"content": "blue", **ODD})
        assert await store.outcome(call, "result", {"content": "red"}) == "conflict"

    async def test_a_question_that_nobody_answers_has_timed_out_at_its_deadline(self) -> None:
        store = await self.open()
        await store.publish({"text": "ask me"})
        view = await begun(store)
        asked = say(view, "", 1, kind="question")
        asked = replace(asked, calls=(replace(asked.calls[0], awaited=True),))
        view = await store.commit(view, Commit(append=(asked,)))
        await store.commit(view, Commit(park=(Park(asked.calls[0].id, MINUTE_MS),), ending="park"))
        await self.pass_ms(MINUTE_MS + 1000)
        assert one((await begun(store)).entries, RESULT).outcome == "timeout"

    async def test_what_a_summary_with_its_lowest_entry_hides_is_hidden_from_who_begins_anew(self) -> None:
        store, other = await self.open(), await self.open()
        view = await long_turn(store)
        lowest = view.entries[4].seq
        view = await store.commit(view, Commit(append=(summary(view, 4),), low=lowest))
        assert words(view.entries) == ["summed up", "4"]
        view = await store.commit(view, Commit(append=(Say({"text": "5"}),), ending="yield"))
        view = await begun(other)
        assert words(view.entries) == words(await store.entries()) == ["summed up", "4", "5"]
        marker = one(view.entries, COMPACTION)
        again = {**marker.body, "text": "all of it", "at": lowest, "spans": [[1, marker.seq]], "count": 5}
        view = await other.commit(view, Commit(append=(Note(COMPACTION, again),), low=view.entries[-1].seq))
        assert words(view.entries) == words(await store.entries()) == ["all of it", "5"]

    async def test_what_arrives_while_a_summary_is_made_waits_for_the_next_claim_and_none_of_it_is_lost(self) -> None:
        store, other = await self.open(), await self.open()
        view = await long_turn(store)
        await other.publish({"text": "more"})
        await other.notice({"text": "disk full"}, group="disk", key="sda")
        assert await other.pending() == 1
        view = await store.commit(view, Commit(append=(summary(view, 5),), low=view.last_seq + 1))
        assert words(view.entries) == ["summed up"]
        view = await store.commit(view, Commit(claim=True))
        assert words(view.entries) == words((await begun(store)).entries) == ["summed up", "more", "disk full"]
