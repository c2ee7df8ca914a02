"""What goes into a request when the log is larger than the model reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.logs import asked, got, noticed, said, user
from tests.unit.engine.sessions import Session, build, talk
from turnyard.engine.effects import Failure, Fold, Summary
from turnyard.engine.folding import THRASH, count_fold, spans
from turnyard.engine.render import render
from turnyard.engine.shaper import Built, Shaper, ShaperPolicy
from turnyard.engine.stubs import read_entry
from turnyard.errors import ContextOverflow
from turnyard.ports import ToolSpec
from turnyard.records.log import COMPACTION, LogRecord

TIGHT = ShaperPolicy(80, preserve_last_messages=1, preserve_last_tool_calls=0, lod_truncate_above_chars=40, lod_headroom_tokens=-1)
STUBBING = ShaperPolicy(600, 2, 1, 150, -1, hard_budget_tokens=100_000)


def built(shaper: Shaper, session: Session, **given: Any) -> Built:
    made = shaper.build(session.view, **given)
    assert isinstance(made, Built)
    return made


def texts(made: Built) -> list[str]:
    return [m["content"] for m in made.messages]


def four_and_a_question() -> Session:
    session = Session()
    session.add(user(0, "a" * 360), said(0, "b" * 360), user(0, "c" * 360), said(0, "d" * 360), user(0, "why?"))
    return session


# -- stubs ------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("turn-28")
def test_over_the_target_an_older_large_entry_is_a_stub_and_what_is_stored_stays() -> None:
    session = Session()
    session.add(user(0, "x" * 8_000), said(0, "ok"), user(0, "and " * 300), said(0, "fine"), user(0, "go"))
    before = orjson.dumps(session.log)
    made = built(Shaper(replace(STUBBING, budget_tokens=1_000)), session)
    assert texts(made) == [
        f"[event_id=1 length=8000]\n{'x' * 100}\n…",
        "ok",
        f"[event_id=3 length=1200]\n{('and ' * 300)[:100]}\n…",
        "fine",
        "go",
    ]
    assert made.stubbed == 2
    assert orjson.dumps(session.log) == before
    assert read_entry(session.log, 1, 7_990) == f"[event_id=1 characters 7990 to 8000 of 8000]\n{'x' * 10}"


@pytest.mark.spec("turn-27")
def test_the_newest_entry_is_kept_whole_however_large() -> None:
    session = talk(3)
    session.add(said(0), asked(0, "c1"), got(0, "c1", "z" * 1_000_000))
    made = built(Shaper(replace(STUBBING, hard_budget_tokens=10**7)), session, fold="never")
    assert made.messages[-1]["content"] == "z" * 1_000_000
    assert made.stubbed > 0


@pytest.mark.spec("turn-28")
def test_arguments_and_summaries_are_never_stubs() -> None:
    session = Session()
    session.add(
        user(0, "u" * 900),
        said(0),
        asked(0, "c1", args={"t": "w" * 900}),
        got(0, "c1", "r" * 900),
        said(0, "done"),
        user(0, "go"),
        said(0, "x"),
    )
    session.add(LogRecord(0, COMPACTION, body={"text": "s" * 900, "at": 1, "spans": [[1, 1]], "count": 1}), user(0, "go on"))
    made = built(Shaper(replace(STUBBING, preserve_last_messages=1)), session, fold="never")
    assert made.messages[0]["content"] == f"[compacted]\n{'s' * 900}"
    assert orjson.loads(made.messages[1]["tool_calls"][0]["function"]["arguments"]) == {"t": "w" * 900}
    assert made.messages[2]["content"].startswith("[event_id=4 length=900]\n")


@pytest.mark.spec("turn-28")
def test_results_that_the_model_has_not_read_are_no_stubs_even_without_a_tail() -> None:
    session = Session()
    session.add(user(0), said(0), asked(0, "c1"), got(0, "c1", "r" * 5_000))
    policy = ShaperPolicy(60, 0, 0, 40, -1, hard_budget_tokens=100_000)
    assert built(Shaper(policy), session).messages[2]["content"] == "r" * 5_000
    session.add(said(0, "seen"), user(0, "next"))
    assert built(Shaper(policy), session, fold="never").messages[2]["content"].startswith("[event_id=4 length=5000]")


def test_a_message_of_parts_loses_them_in_a_stub() -> None:
    session = Session()
    image = {"type": "image_url", "image_url": {"url": "data:x"}}
    session.add(user(0, "", parts=[{"type": "text", "text": "look " * 100}, image]), said(0, "nice"), user(0), said(0, "y"), user(0, "z"))
    made = built(Shaper(replace(STUBBING, budget_tokens=200)), session)
    assert made.messages[0]["content"].startswith("[event_id=1 length=500]\nlook look")


def test_stubs_are_always_on_when_asked_for_even_without_a_budget() -> None:
    session = talk(4)
    made = built(Shaper(ShaperPolicy(always_lod=True, preserve_last_messages=1, lod_truncate_above_chars=150)), session)
    assert made.stubbed == 8


# -- the prefix -------------------------------------------------------------------------------------------------------


def encoded(made: Built) -> list[bytes]:
    return [orjson.dumps(message) for message in made.messages]


@pytest.mark.spec("turn-29")
def test_within_the_target_the_beginning_of_the_request_stays_the_same_byte_for_byte() -> None:
    session, shaper = talk(1), Shaper(ShaperPolicy(100_000))
    tools = (ToolSpec("add", "Add.", {}),)
    last: list[bytes] = []
    for n in range(5):
        made = encoded(built(shaper, session, system="be brief", tools=tools))
        assert made[: len(last)] == last
        session.add(said(0), asked(0, f"c{n}"), got(0, f"c{n}", "y" * 9_000), noticed(0, "news"))
        last = made
        made = encoded(built(shaper, session, system="be brief", tools=tools))
        assert made[: len(last)] == last
        session.add(said(0, f"answer {n}"), user(0, f"question {n}"))
        last = made
    assert len(last) > 20


@pytest.mark.spec("turn-29")
def test_a_list_of_exactly_the_target_is_left_alone_and_one_token_more_is_not() -> None:
    session = talk(3)
    size = built(Shaper(), session).tokens
    policy = ShaperPolicy(size, 1, 0, 150, -1)
    assert built(Shaper(policy), session).stubbed == 0
    assert built(Shaper(replace(policy, budget_tokens=size - 1)), session).stubbed > 0


@pytest.mark.spec("turn-29")
def test_a_tool_makes_room_for_itself() -> None:
    session = talk(3)
    policy = ShaperPolicy(built(Shaper(), session).tokens, 1, 0, 150, -1)
    assert built(Shaper(policy), session, tools=(ToolSpec("add", "Add.", {}),)).stubbed > 0


ROUNDS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 800), st.booleans()), min_size=2, max_size=12)


@pytest.mark.spec("turn-29")
@given(rounds=ROUNDS, messages=st.integers(1, 4), exchanges=st.integers(0, 4))
def test_over_the_target_only_what_leaves_the_tail_changes(rounds: list[tuple[int, int, bool]], messages: int, exchanges: int) -> None:
    policy = ShaperPolicy(100, messages, exchanges, 120, -1, hard_budget_tokens=10**6)
    session, shaper = talk(2), Shaper(policy)
    last: list[bytes] = []
    for n, (calls, chars, asks) in enumerate(rounds):
        session.add(
            said(0, "w" * chars), *(asked(0, f"{n}_{i}") for i in range(calls)), *(got(0, f"{n}_{i}", "r" * chars) for i in range(calls))
        )
        if asks or not calls:
            session.add(user(0, "more " * chars))
        made = built(shaper, session, fold="never")
        now = encoded(made)
        changed = [(a, b) for a, b in zip(last, now, strict=False) if a != b]
        assert len(now) >= len(last)
        assert all(b"event_id=" in b and b"event_id=" not in a for a, b in changed)
        assert all(encoded(built(shaper, session, fold="never")) == now for _ in range(2))
        last = now


# -- folds ------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("turn-30")
def test_folding_replaces_old_entries_by_one_summary_that_says_what_it_saved() -> None:
    session = four_and_a_question()
    shaper = Shaper(TIGHT)
    made, folds = build(session, shaper)
    (fold,) = folds
    assert (fold.spans, fold.at, fold.low, fold.count, fold.more) == (((1, 4),), 4, 5, 4, False)
    assert texts(made) == ["[compacted]\nso far", "why?"]
    body = session.log[-1].body
    assert {name: body[name] for name in ("text", "at", "spans", "count", "more")} == {
        "text": "so far",
        "at": 4,
        "spans": [[1, 4]],
        "count": 4,
        "more": False,
    }
    assert body["before"] > 360 > 80 >= body["after"] == made.tokens


@pytest.mark.spec("turn-30")
def test_the_summariser_is_given_the_older_entries_numbered_with_labels_and_stubbed() -> None:
    session = Session()
    session.add(user(0, "find <|it|>"), said(0, "sure"), asked(0, "c1", "search", args={"q": "it"}), got(0, "c1", "<|" + "r" * 900))
    session.add(noticed(0, "disk full", tag="ops"), said(0, "found"), user(0, "thanks"))
    fold = Shaper(replace(TIGHT, budget_tokens=60)).build(session.view)
    assert isinstance(fold, Fold)
    assert [m["role"] for m in fold.messages] == ["system", "user"]
    lines = fold.messages[1]["content"].partition("The log:\n")[2]
    assert lines == (
        '1. [user] find &lt;|it|>\n2. [assistant] sure\n3. [call search] {"q":"it"}\n'
        f"4. [result search] [event_id=4 length=902]\n&lt;|{'r' * 98}\n…\n5. [ops] disk full\n6. [assistant] found"
    )


@pytest.mark.spec("turn-33")
def test_folding_again_and_again_keeps_one_live_summary_and_every_entry_can_be_read() -> None:
    session, shaper = talk(3), Shaper(replace(TIGHT, budget_tokens=120))
    for n in range(4):
        made, folds = build(session, shaper, summary=f"summary {n}")
        assert len(folds) == 1
        assert [e.body["text"] for e in session.view if e.type == COMPACTION] == [f"summary {n}"]
        assert texts(made)[0] == f"[compacted]\nsummary {n}"
        if n:
            assert f"[summary] summary {n - 1}" in folds[0].messages[1]["content"]
        session.add(said(0, "r" * 400), user(0, "q" * 100), said(0, "r" * 400), user(0, "so?"))
    assert read_entry(session.log, 1, 0, 5).endswith("\nq0 aa")


@pytest.mark.spec("turn-33")
def test_a_single_summary_is_nothing_to_fold() -> None:
    session, shaper = four_and_a_question(), Shaper(TIGHT)
    build(session, shaper)
    session.add(said(0, "x"), asked(0, "p"), got(0, "p", None, outcome="placeholder"), user(0, "still?"))
    assert len(build(session, shaper, fold="force", summary="s")[1]) == 1
    made = built(shaper, session, fold="force")  # between the summary and the tail stands what must be kept
    assert [m["role"] for m in made.messages] == ["user", "assistant", "tool", "user"]
    assert made.nothing_to_fold
    assert shaper.build(session.view, fold="force") == made


@pytest.mark.spec("turn-32")
@pytest.mark.parametrize("budget", [0, -1])
def test_without_a_budget_nothing_is_folded_or_shortened(budget: int) -> None:
    session, shaper = talk(50, 5_000), Shaper(ShaperPolicy(budget, 1, 1, 40))
    for n in range(5):
        made, folds = build(session, shaper)
        assert folds == []
        assert made.messages == render(session.view)
        session.add(said(0, "r" * 5_000), user(0, f"q{n}"))
    assert [e for e in session.log if e.type == COMPACTION] == []


def test_a_fold_can_be_demanded_under_the_target_and_is_refused_when_there_is_nothing() -> None:
    session, shaper = talk(2), Shaper(ShaperPolicy(preserve_last_messages=1))
    fold = shaper.build(session.view, fold="force")
    assert isinstance(fold, Fold)
    assert fold.count == 4
    short = Session()
    short.add(user(0))
    assert built(Shaper(), short, fold="force") == replace(built(Shaper(), short), nothing_to_fold=True)


@pytest.mark.spec("turn-30")
def test_what_is_too_long_for_the_summariser_is_folded_in_several_the_oldest_first() -> None:
    session = talk(12)
    shaper = Shaper(ShaperPolicy(600, 1, 0, 0, -1, summary_budget_tokens=1_100))
    fold = shaper.build(session.view)
    assert isinstance(fold, Fold)
    assert fold.more
    assert fold.spans[0][0] == 1
    made, folds = build(session, shaper, summary="s")
    assert [f.more for f in folds] == [True] * (len(folds) - 1) + [False]
    assert len(folds) > 2
    assert sum(f.count for f in folds) == 24
    assert texts(made) == ["[compacted]\ns", "why?"]


def test_one_entry_that_is_too_long_for_the_summariser_is_cut_for_it() -> None:
    session = Session()
    session.add(user(0, "x" * 100_000), said(0, "ok"), user(0, "why?"))
    shaper = Shaper(ShaperPolicy(900, 1, 0, 0, -1, summary_budget_tokens=1_000))
    fold = shaper.build(session.view)
    assert isinstance(fold, Fold)
    assert len(fold.messages[1]["content"]) < 2_000
    made, _ = build(session, shaper)
    assert texts(made) == ["[compacted]\nso far", "why?"]


@pytest.mark.spec("turn-27")
def test_what_is_kept_out_of_a_fold_stays_in_its_place() -> None:
    session = Session()
    session.add(user(0, "old " * 99), said(0, "x"), asked(0, "p"), got(0, "p", None, outcome="placeholder"), said(0, "waiting"))
    session.add(
        user(0, "do " * 99), said(0, "y"), asked(0, "c1"), got(0, "c1", "r" * 900), said(0, "z"), asked(0, "c2"), got(0, "c2", "new")
    )
    shaper = Shaper(ShaperPolicy(150, 1, 1, 40, -1, hard_budget_tokens=900))
    made, (fold,) = build(session, shaper)
    assert fold.spans == ((1, 1), (5, 5), (7, 9))
    assert (fold.at, fold.low) == (9, 2)
    assert [m["role"] for m in made.messages] == ["user", "assistant", "tool", "user", "user", "assistant", "tool"]
    assert texts(made)[4] == "[compacted]\nso far"


def test_spans_hold_what_is_folded_and_nothing_that_stays() -> None:
    assert spans([1, 2, 3, 7, 8, 12], [5, 6, 10]) == ((1, 3), (7, 8), (12, 12))
    assert spans([1, 9, 4], []) == ((1, 9),)
    assert spans([], [1]) == ()


# -- when folding does not help ---------------------------------------------------------------------------------------


@pytest.mark.spec("turn-35")
@pytest.mark.parametrize("text", ["", "  \n", "w" * 2_000])
def test_a_summary_that_is_empty_or_longer_than_what_it_replaces_is_refused(text: str) -> None:
    shaper = Shaper(TIGHT)
    fold = shaper.build(four_and_a_question().view)
    assert isinstance(fold, Fold)
    assert isinstance(shaper.summary_of(fold, text), Failure)
    told = shaper.summary_of(fold, " good \n", usage={"input_tokens": 3})
    assert told == Summary("good", fold.rest + 9, {"input_tokens": 3})


@pytest.mark.spec("turn-35")
def test_after_a_failed_summary_the_turn_goes_on_with_stubs_if_the_hard_limit_allows() -> None:
    session, shaper = four_and_a_question(), Shaper(replace(TIGHT, hard_budget_tokens=1_000))
    made, folds = build(session, shaper, summary="")
    assert len(folds) == 1
    assert made.stubbed == 4
    assert made.dropped == 0
    assert len(session.log) == 5


@pytest.mark.spec("turn-35")
def test_after_a_failed_summary_the_oldest_are_left_out_of_the_view_and_a_note_says_how_many() -> None:
    session, shaper = four_and_a_question(), Shaper(replace(TIGHT, hard_budget_tokens=130))
    made, _ = build(session, shaper, summary="")
    assert made.dropped == 2
    assert made.tokens <= 130
    assert texts(made)[0] == "[note] 2 older entries are left out here, because the conversation is longer than the model can read at once."
    assert texts(made)[-1] == "why?"
    assert len(session.log) == 5


def test_a_summary_that_is_left_out_counts_as_what_it_stands_for() -> None:
    session = Session()
    session.add(user(0), said(0, "x"))
    session.add(LogRecord(0, COMPACTION, body={"text": "s" * 400, "at": 2, "spans": [[1, 2]], "count": 17}), said(0, "y"), user(0, "q"))
    made = built(Shaper(replace(TIGHT, hard_budget_tokens=90)), session, fold="never")
    assert made.dropped == 17
    assert texts(made)[1:] == ["y", "q"]


@pytest.mark.parametrize(("above_chars", "left_out"), [(200, False), (0, True)])
def test_many_calls_that_wait_do_not_fill_a_request_for_good(above_chars: int, left_out: bool) -> None:
    session, shaper = Session(), Shaper(ShaperPolicy(2_000, 1, 0, lod_truncate_above_chars=above_chars, lod_headroom_tokens=-1))
    for n in range(9):
        session.add(user(0, f"q{n}"), said(0), asked(0, f"p{n}"), asked(0, f"b{n}"))
        session.add(got(0, f"p{n}", None, outcome="placeholder"), got(0, f"b{n}", "big " * 1_000), said(0, "on its way"))
    session.add(user(0, "and?"))
    made, _ = build(session, shaper)
    assert made.tokens <= 2_000
    assert bool(made.dropped) == left_out
    assert str(made.messages).count("Pending: call p") == (1 if left_out else 9)
    assert texts(made)[-1] == "and?"


@pytest.mark.spec("turn-36")
def test_what_cannot_be_made_small_enough_is_an_overflow_that_tells_both_sizes() -> None:
    session = four_and_a_question()
    session.add(user(0, "huge " * 500))
    shaper = Shaper(TIGHT)
    with pytest.raises(ContextOverflow) as overflow:
        build(session, shaper)
    assert overflow.value.budget == 80
    assert overflow.value.floor > 625
    assert overflow.value.code == "context_overflow"
    assert [e.type for e in session.log].count(COMPACTION) == 1


def test_results_that_no_model_has_read_are_stubs_when_nothing_else_makes_room_and_what_was_asked_stays_whole() -> None:
    session, shaper = Session(), Shaper(replace(TIGHT, budget_tokens=300, preserve_last_tool_calls=2))
    session.add(user(0, "q" * 500), said(0), asked(0, "c1"), asked(0, "c2"), got(0, "c1", "x" * 4_000), got(0, "c2", "y" * 40))
    made, _ = build(session, shaper)
    assert texts(made) == ["q" * 500, "", f"[event_id=5 length=4000]\n{'x' * 100}\n…", "y" * 40]
    assert (made.stubbed, made.tokens <= 300) == (1, True)
    again, _ = build(session, Shaper(replace(TIGHT, budget_tokens=300, preserve_last_tool_calls=2, hard_budget_tokens=5_000)))
    assert "x" * 4_000 in texts(again)


def test_a_message_too_long_for_any_request_is_a_stub_once_another_one_was_asked() -> None:
    session, shaper = Session(), Shaper(replace(TIGHT, preserve_last_messages=6))
    session.add(user(0, "huge " * 500))
    with pytest.raises(ContextOverflow):
        build(session, shaper)
    session.add(user(0, "and now?"))
    made, _ = build(session, shaper)
    assert (made.stubbed, texts(made)[-1]) == (1, "and now?")


def test_a_request_that_the_model_calls_too_long_is_sent_as_stubs_when_nothing_can_be_folded() -> None:
    session = Session()
    session.add(user(0, "q" * 500), said(0), asked(0, "c1"), got(0, "c1", "x" * 9_000))
    made = built(Shaper(), session, fold="force")
    assert (made.nothing_to_fold, made.stubbed) == (False, 1)
    assert made.tokens < built(Shaper(), session).tokens / 4
    assert built(Shaper(ShaperPolicy(lod_truncate_above_chars=0)), session, fold="force").nothing_to_fold


@pytest.mark.spec("turn-36")
def test_tools_and_instructions_alone_can_overflow() -> None:
    session = Session()
    session.add(user(0))
    with pytest.raises(ContextOverflow):
        Shaper(TIGHT).build(session.view, tools=(ToolSpec("t", "d" * 400, {}),))
    with pytest.raises(ContextOverflow):
        Shaper(TIGHT).build(session.view, system="s" * 400)


@pytest.mark.spec("turn-36")
def test_more_than_one_fold_in_a_turn_is_said_once_and_going_on_is_no_further_fold() -> None:
    session, shaper = talk(12), Shaper(ShaperPolicy(600, 1, 0, 0, -1, summary_budget_tokens=1_100))
    folds, notices = 0, list[str | None]()
    for n in range(3):
        while isinstance(fold := shaper.build(session.view), Fold):
            folds, notice = count_fold(session.view, folds)
            notices.append(notice)
            told = shaper.summary_of(fold, "s")
            assert isinstance(told, Summary)
            session.fold(fold, told)
        assert folds == n + 1
        session.add(said(0, "r" * 3_000), user(0, "q"))
    assert [n for n in notices if n] == [THRASH]


# -- late results -----------------------------------------------------------------------------------------------------


def test_a_late_result_takes_the_place_of_the_placeholder_when_that_is_asked_for() -> None:
    session = Session()
    session.add(user(0), said(0), asked(0, "c1", "render"), got(0, "c1", None, outcome="placeholder"), said(0, "ok"))
    session.add(got(0, "c1", "<|done|>", aside=True))
    appended, replaced = built(Shaper(), session), built(Shaper(ShaperPolicy(late="replace")), session)
    assert texts(appended)[-1] == "[render c1] result for the earlier pending call: &lt;|done|>"
    assert [m["content"] for m in replaced.messages[2:]] == ["&lt;|done|>", "ok", "[go on]"]
    assert replaced.messages == render(session.view, late="replace")
