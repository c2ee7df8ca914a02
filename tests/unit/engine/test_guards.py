"""When a model goes round in circles, and what is done about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.logs import TABLE, asked, got, noticed, said, user, view
from turnyard.engine.bounds import Bounds
from turnyard.engine.budget import Stop
from turnyard.engine.effects import AskModel, ModelAnswer, NoEffect
from turnyard.engine.guards import MOST_CUTS, NOTICE_AT, STOP_AT, check_loop, one_copy, repeats
from turnyard.engine.turn import commit_after, next_effect
from turnyard.ports import Done
from turnyard.records.commit import Note, Say
from turnyard.records.log import NOTICE, LogRecord


def rounds(count: int, *, of: list[LogRecord] | None = None, args: str = "1", answer: str = "3", text: str = "") -> list[LogRecord]:
    """A log with `count` more rounds of one call each, their ids all different."""
    entries = list(of or [user(1)])
    for _ in range(count):
        n = len(entries)
        entries += [said(n + 1, text), asked(n + 2, f"c{n}", provider_id=f"p{n}", args={"a": args}), got(n + 3, f"c{n}", answer)]
    return entries


def warned(entries: list[LogRecord]) -> list[LogRecord]:
    return [*entries, noticed(len(entries) + 1, group="turn", key="loop")]


def test_a_notice_that_somebody_left_under_the_names_of_the_warning_is_no_warning() -> None:
    left = [replace(entry, group_key="turn\nloop") if entry.type == NOTICE else entry for entry in warned(rounds(5))]
    assert isinstance(check_loop(view(*left)), Note)


@given(st.integers(0, NOTICE_AT - 1), st.text(max_size=5))
def test_fewer_than_five_equal_rounds_are_nothing(count: int, answer: str) -> None:
    assert check_loop(view(*rounds(count, answer=answer))) is None


@given(st.integers(NOTICE_AT, STOP_AT - 1))
def test_from_five_equal_rounds_on_the_model_is_warned_once(count: int) -> None:
    entries = rounds(count)
    found = check_loop(view(*entries))
    assert isinstance(found, Note)
    assert (found.type, found.body["key"]) == (NOTICE, "loop")
    assert check_loop(view(*warned(entries))) is None
    assert check_loop(view(*warned(rounds(5)), *rounds(count, of=warned(rounds(5)))[17:])) is None or count + 5 >= STOP_AT


def test_ten_equal_rounds_end_the_turn_whether_warned_or_not() -> None:
    for entries in (rounds(STOP_AT), rounds(5, of=warned(rounds(5)))):
        stop = check_loop(view(*entries))
        assert isinstance(stop, Stop)
        assert stop.code == "loop_detected"


@given(st.integers(0, STOP_AT - 1), st.sampled_from(["args", "answer"]))
def test_a_round_that_differs_in_one_byte_begins_anew(at: int, what: str) -> None:
    entries = rounds(at)
    entries = rounds(1, of=entries, **{what: "other"})
    entries = rounds(STOP_AT - 1 - at, of=entries)
    assert not isinstance(check_loop(view(*entries)), Stop)


def test_polling_with_changing_answers_is_no_circle() -> None:
    entries: list[LogRecord] = [user(1)]
    for n in range(30):
        entries = rounds(1, of=entries, answer=f"{n} %")
    assert check_loop(view(*entries)) is None


@pytest.mark.parametrize("news", [user(99, "stop that"), got(99, "old", "late", aside=True)])
def test_news_ends_a_row_of_equal_rounds(news: LogRecord) -> None:
    assert check_loop(view(*rounds(9), news)) is None
    assert check_loop(view(*rounds(4, of=[*rounds(9), replace(news, seq=29)]))) is None


def test_what_the_model_says_beside_its_calls_counts_for_nothing_and_neither_do_ids() -> None:
    entries: list[LogRecord] = [user(1)]
    for n in range(NOTICE_AT):
        entries = rounds(1, of=entries, text=f"try {n}")
    assert isinstance(check_loop(view(*entries)), Note)


def test_the_sentence_for_a_pending_call_counts_as_the_same_answer() -> None:
    entries: list[LogRecord] = [user(1)]
    for n in range(NOTICE_AT):
        at = len(entries)
        entries += [said(at + 1), asked(at + 2, f"c{n}"), got(at + 3, f"c{n}", f"Pending: call c{n}", outcome="placeholder")]
    assert isinstance(check_loop(view(*entries)), Note)


def test_a_turn_in_a_circle_is_warned_in_its_log_then_stopped_unless_the_guard_is_off() -> None:
    effect = next_effect(view(*rounds(5)), TABLE)
    assert isinstance(effect, NoEffect)
    assert effect.commit.claim
    assert [p.type for p in effect.commit.append if isinstance(p, Note)] == [NOTICE]
    assert isinstance(next_effect(view(*warned(rounds(5))), TABLE), AskModel)
    stopped = next_effect(view(*rounds(5, of=warned(rounds(5)))), TABLE)
    assert isinstance(stopped, NoEffect)
    assert (stopped.commit.failure or {})["code"] == "loop_detected"
    assert isinstance(next_effect(view(*rounds(50)), replace(TABLE, bounds=Bounds(loop_guard=False))), AskModel)


# -- an answer that repeats itself


@given(head=st.text("ab", max_size=20), piece=st.text("xyz", min_size=1, max_size=40), copies=st.integers(2, 30), tail=st.integers(0, 39))
def test_one_copy_of_what_an_answer_ends_in_is_kept(head: str, piece: str, copies: int, tail: int) -> None:
    text = head + piece * copies + piece[: tail % len(piece)]
    kept = one_copy(text)
    assert text.startswith(kept)
    assert len(kept) <= len(head) + len(piece)


@given(st.text("abc", max_size=300))
def test_what_is_cut_off_is_only_ever_a_repetition_of_what_is_kept(text: str) -> None:
    kept = one_copy(text)
    assert text.startswith(kept)
    if kept != text:
        period = next(p for p in range(1, len(kept) + 1) if all(text[i] == text[i - p] for i in range(len(kept), len(text))))
        assert len(text) - len(kept) >= period


def test_a_long_row_of_copies_is_seen_and_a_long_text_is_not() -> None:
    assert repeats("He went on. " * 500)
    assert repeats("x" * 5000)
    assert not repeats("He went on. " * 10)
    assert not repeats("".join(f"line {n}\n" for n in range(2000)))
    assert not repeats(("a long paragraph that comes again, " * 20 + "with an end") * 6)


def cut(cuts: int) -> Any:
    state = {"k": {"cuts": cuts}} if cuts else {}
    done = Done("On and on and on and on", usage={"input_tokens": 5, "output_tokens": 9}, finish="repetition")
    return commit_after(view(user(1), state=state), AskModel("k"), result=ModelAnswer(done), facts=TABLE)


def test_an_answer_cut_for_repeating_itself_is_kept_once_and_the_model_asked_again_twice() -> None:
    first = cut(0)
    said_, note = first.append
    assert isinstance(said_, Say)
    assert said_.body["text"] == "On and o"
    assert (note.type, note.body["key"], first.claim, first.ending) == (NOTICE, "repetition", True, "none")
    assert first.state == {"k": {"cuts": 1}}
    last = cut(MOST_CUTS - 1)
    assert (last.ending, last.failure["code"], len(last.append)) == ("finish", "loop_detected", 1)
    assert last.usage == {"model_calls": 1, "input_tokens": 5, "output_tokens": 9}


def test_an_answer_that_was_not_cut_begins_the_count_anew() -> None:
    done = Done("fine", finish="stop")
    assert commit_after(
        view(user(1), state={"k": {"cuts": 2}}), AskModel("k"), result=ModelAnswer(done), facts=replace(TABLE, hooks=True)
    ).state == {"k": {"over": 1}}
