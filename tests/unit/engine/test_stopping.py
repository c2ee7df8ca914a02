"""Where a segment of a turn ends, what its hooks are asked, and what follows from their answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.logs import TABLE, asked, got, said, user, view
from turnyard.engine.bounds import Bounds
from turnyard.engine.effects import AskHooks, AskModel, Effect, Failure, HookAnswer, ModelAnswer, NoEffect
from turnyard.engine.progress import Progress
from turnyard.engine.turn import commit_after, next_effect
from turnyard.ports import AskedCall, Done
from turnyard.records.commit import Commit, Note, Say, TurnView
from turnyard.records.log import ASSISTANT, CALL, RESULT, USER, LogRecord

HOOKED = replace(TABLE, hooks=True, bounds=Bounds(continuations=2, segment_steps=3))
REPLIED = view(user(1), said(2, "done"))


def answer(effect: Effect, shown: TurnView, said: HookAnswer | Failure, table: Any = HOOKED) -> Commit:
    assert isinstance(effect, AskHooks)
    return commit_after(shown, effect, result=said, facts=table)


def asked_now(shown: TurnView, table: Any = HOOKED) -> AskHooks:
    effect = next_effect(shown, table)
    assert isinstance(effect, AskHooks)
    return effect


def rounds(count: int) -> list[LogRecord]:
    entries: list[LogRecord] = [user(1)]
    for n in range(count):
        at = len(entries)
        entries += [said(at + 1), asked(at + 2, f"c{n}"), got(at + 3, f"c{n}", str(n))]
    return entries


def applied(shown: TurnView, change: Commit) -> TurnView:
    """The view after a commit, what it appended included."""
    entries = list(shown.entries)
    for part in change.append:
        at = len(entries) + 1
        if isinstance(part, Note) and part.type == USER:
            entries.append(replace(user(at), body=part.body))
        elif isinstance(part, Say):
            entries.append(LogRecord(at, ASSISTANT, turn=shown.turn, body=part.body))
            for c in part.calls:
                entries.append(LogRecord(len(entries) + 1, CALL, turn=shown.turn, call=c.id, body=c.body))
                entries.append(LogRecord(len(entries) + 1, RESULT, turn=shown.turn, call=c.id, outcome="result", body={"content": f"{at}"}))
    return replace(shown, entries=tuple(entries), rev=shown.rev + 1, state=shown.state if change.state is None else change.state)


def test_without_hooks_a_reply_ends_its_turn_in_the_same_commit() -> None:
    assert commit_after(view(user(1)), AskModel("k"), result=ModelAnswer(Done("hi")), facts=TABLE).ending == "finish"


def test_with_hooks_a_reply_is_stored_first_and_what_arrived_meanwhile_comes_before_them() -> None:
    change = commit_after(view(user(1)), AskModel("k"), result=ModelAnswer(Done("hi")), facts=HOOKED)
    assert (change.ending, change.claim) == ("none", True)
    assert isinstance(next_effect(view(user(1), said(2, "hi"), user(3, "and?")), HOOKED), AskModel)
    assert asked_now(view(user(1), said(2, "hi"))).reason == "no_calls"


def test_a_reply_that_does_not_fit_is_corrected_before_any_hook_is_asked() -> None:
    def refuse(text: str) -> Any:
        raise ValueError(text)

    table = replace(HOOKED, read_output=refuse)
    change = commit_after(view(user(1)), AskModel("k"), result=ModelAnswer(Done("no json")), facts=table)
    assert (change.ending, change.claim, len(change.append)) == ("none", True, 2)


def test_a_turn_that_asked_no_model_asks_no_hook() -> None:
    assert next_effect(view(), HOOKED) == NoEffect(Commit(ending="finish"))


@given(stop=st.booleans(), texts=st.lists(st.text(min_size=1), max_size=3).map(tuple), used=st.integers(0, 3))
def test_a_stop_wins_over_going_on_and_the_budget_wins_over_both(texts: tuple[str, ...], used: int, *, stop: bool) -> None:
    shown = replace(REPLIED, state=Progress(continuations=used).into({}))
    change = answer(asked_now(shown), shown, HookAnswer(stop, texts))
    goes_on = bool(texts) and not stop and used < 2
    assert (change.ending == "finish") == (not goes_on)
    assert change.failure is None
    if goes_on:
        told = Note("turn/continue", {"segment": used + 1, "reason": "no_calls", "steps": 1, "messages": list(texts)})
        assert change.append == (told, *(Note(USER, {"text": t, "origin": "hook"}) for t in texts))
        assert Progress.read(change.state or {}) == Progress(continuations=used + 1, segment=1)


def test_what_hooks_said_is_answered_by_the_model_and_then_they_are_asked_again() -> None:
    shown = applied(REPLIED, answer(asked_now(REPLIED), REPLIED, HookAnswer(texts=("and now?",))))
    effect = next_effect(shown, HOOKED)
    assert isinstance(effect, AskModel)
    shown = applied(shown, commit_after(shown, effect, result=ModelAnswer(Done("now this")), facts=HOOKED))
    again = asked_now(shown)
    assert (again.reason, again.steps, again.segments, again.budget.continuations) == ("no_calls", 2, 1, 1)


@pytest.mark.parametrize("continuations", [0, None])
def test_no_continuations_allow_none_and_no_bound_allows_any(continuations: int | None) -> None:
    table = replace(HOOKED, bounds=Bounds(continuations=continuations))
    shown = replace(REPLIED, state=Progress(continuations=0 if continuations == 0 else 50).into({}))
    change = answer(asked_now(shown, table), shown, HookAnswer(texts=("more",)), table)
    assert (change.ending == "finish") == (continuations == 0)


def test_a_hook_that_raised_fails_the_turn() -> None:
    change = answer(asked_now(REPLIED), REPLIED, Failure("hook_failed", "the hook raised", ref="r"))
    assert change.ending == "finish"
    assert change.failure == {"code": "hook_failed", "message": "the hook raised", "retryable": False, "ref": "r"}


# -- steps of a segment


def test_a_segment_ends_after_its_steps_and_a_hook_may_begin_the_next() -> None:
    shown = view(*rounds(3))
    assert isinstance(next_effect(view(*rounds(2)), HOOKED), AskModel)
    effect = asked_now(shown)
    assert (effect.reason, effect.steps) == ("step_limit", 3)
    on = applied(shown, answer(effect, shown, HookAnswer(texts=("go on",))))
    assert isinstance(next_effect(on, HOOKED), AskModel)
    ended = answer(effect, shown, HookAnswer())
    assert (ended.failure or {})["code"] == "step_limit"
    alone = next_effect(shown, replace(HOOKED, hooks=False))
    assert isinstance(alone, NoEffect)
    assert "segment_steps" in (alone.commit.failure or {})["message"]


def test_a_message_of_the_user_begins_the_count_of_steps_anew() -> None:
    shown = view(*rounds(2), user(8, "wait"))
    effect = next_effect(shown, HOOKED)
    assert isinstance(effect, AskModel)
    done = Done("", (AskedCall("x", "add", "{}"),))
    shown = applied(shown, commit_after(shown, effect, result=ModelAnswer(done), facts=HOOKED))
    assert Progress.of(shown).segment == 2
    for _ in range(2):
        effect = next_effect(shown, HOOKED)
        assert isinstance(effect, AskModel)
        shown = applied(shown, commit_after(shown, effect, result=ModelAnswer(done), facts=HOOKED))
    assert asked_now(shown).steps == 5


# -- the budget


@pytest.mark.spec("runner-20")
def test_over_the_budget_hooks_hear_of_it_and_cannot_go_on() -> None:
    table = replace(HOOKED, bounds=Bounds(model_calls=3, continuations=5))
    shown = view(*rounds(3))
    effect = asked_now(shown, table)
    assert (effect.reason, effect.budget.exhausted, effect.budget.model_calls) == ("budget", True, 0)
    change = answer(effect, shown, HookAnswer(texts=("go on",)), table)
    assert (change.append, (change.failure or {})["code"]) == ((), "step_limit")


@pytest.mark.spec("runner-20")
def test_a_reply_that_used_up_the_budget_still_ends_its_turn_well() -> None:
    table = replace(HOOKED, bounds=Bounds(model_calls=1, continuations=5))
    effect = asked_now(REPLIED, table)
    assert effect.reason == "budget"
    change = answer(effect, REPLIED, HookAnswer(texts=("go on",)), table)
    assert (change.ending, change.failure, change.append) == ("finish", None, ())
