"""What holds for the requests of any log under any policy."""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.sessions import POLICIES, Session, logs
from turnyard.engine.effects import Fold, Summary
from turnyard.engine.render import render
from turnyard.engine.shaper import Built, FoldMode, Shaper, ShaperPolicy
from turnyard.engine.texts import INTERRUPTED
from turnyard.engine.tokens import list_tokens, tools_tokens
from turnyard.engine.validity import validity
from turnyard.errors import ContextOverflow
from turnyard.ports import ToolSpec
from turnyard.records.log import COMPACTION, LogRecord, visible
from turnyard.testing.checkers import check_anthropic, check_gemini, check_openai

MODES: st.SearchStrategy[FoldMode] = st.sampled_from(["auto", "force", "never"])
SYSTEM = st.sampled_from(["", "be brief"])
TOOLS = (ToolSpec("add", "Add numbers.", {"type": "object"}),)


def accepted(messages: list[dict[str, Any]]) -> None:
    assert check_openai(messages) == []
    assert check_anthropic(messages) == []
    assert check_gemini(messages) == []
    assert validity(messages) == messages


def outcome(shaper: Shaper, entries: Any, **given: Any) -> Any:
    try:
        return shaper.build(entries, **given)
    except ContextOverflow as error:
        return error.floor, error.budget


@pytest.mark.spec("turn-34", "runner-25", "I4")
@given(log=logs(), policy=POLICIES, system=SYSTEM, mode=MODES)
def test_any_beginning_of_any_log_builds_a_list_that_strict_apis_accept(
    log: list[LogRecord], policy: ShaperPolicy, system: str, mode: FoldMode
) -> None:
    session, shaper = Session(), Shaper(policy)
    for record in log:
        session.add(record)
        built = outcome(shaper, session.view, system=system, tools=TOOLS, fold=mode)
        for _ in session.view:  # a fold takes at least one entry away
            if not isinstance(built, Fold):
                break
            told = shaper.summary_of(built, "in short")
            accepted(list(built.messages))
            if isinstance(told, Summary):
                session.fold(built, told)
            fold = "auto" if isinstance(told, Summary) else "never"
            built = outcome(shaper, session.view, system=system, tools=TOOLS, fold=fold)
        if isinstance(built, Built):
            accepted(built.messages)
            assert built.tokens == list_tokens(built.messages) + tools_tokens(TOOLS)
            assert built.tokens <= policy.hard() or policy.hard() == 0 or mode == "force"
        else:
            assert built[0] > built[1] == policy.hard()


@pytest.mark.spec("runner-21")
@given(log=logs(), policy=POLICIES, system=SYSTEM, mode=MODES)
def test_what_is_built_step_by_step_is_what_a_fresh_worker_builds(
    log: list[LogRecord], policy: ShaperPolicy, system: str, mode: FoldMode
) -> None:
    session, shaper = Session(), Shaper(policy)
    for record in log:
        session.add(record)
        built = outcome(shaper, session.view, system=system, fold=mode)
        assert outcome(shaper, session.view, system=system, fold=mode) == built
        assert outcome(Shaper(policy), session.cold(), system=system, fold=mode) == built
        told = shaper.summary_of(built, "in short") if isinstance(built, Fold) else None
        if isinstance(built, Fold) and isinstance(told, Summary):
            session.fold(built, told)
            assert session.cold() == session.view


@pytest.mark.spec("turn-3")
@given(log=logs(), policy=POLICIES, mode=MODES, seed=st.integers(0, 99))
def test_the_order_in_which_entries_are_given_does_not_matter(
    log: list[LogRecord], policy: ShaperPolicy, mode: FoldMode, seed: int
) -> None:
    view = visible((), log)
    mixed = random.Random(seed).sample(view, len(view))
    assert outcome(Shaper(policy), mixed, fold=mode) == outcome(Shaper(policy), view, fold=mode)
    assert render(mixed) == render(view)


@given(log=logs())
def test_without_a_policy_the_list_is_the_rendered_log(log: list[LogRecord]) -> None:
    view = visible((), log)
    built = Shaper().build(view, system="s")
    assert isinstance(built, Built)
    assert built.messages == render(view, system="s")


@given(log=logs(), policy=POLICIES, mode=MODES)
def test_building_changes_nothing_it_was_given_and_the_list_is_the_callers_own(
    log: list[LogRecord], policy: ShaperPolicy, mode: FoldMode
) -> None:
    view, shaper = visible((), log), Shaper(policy)
    before = orjson.dumps(view)
    built = outcome(shaper, view, fold=mode)
    if isinstance(built, Built):
        for message in built.messages:
            message["content"] = "changed"
        assert outcome(shaper, view, fold=mode) == outcome(Shaper(policy), view, fold=mode)
    assert orjson.dumps(view) == before


@given(log=logs(20), policy=POLICIES, mode=MODES)
def test_a_fold_takes_what_it_says_and_keeps_calls_with_their_results(log: list[LogRecord], policy: ShaperPolicy, mode: FoldMode) -> None:
    session, shaper = Session(), Shaper(policy)
    session.add(*log)
    fold = outcome(shaper, session.view, fold=mode)
    if not isinstance(fold, Fold):
        return
    before, orphans = session.view, str(render(session.view)).count("result for an earlier call")
    marker = session.fold(fold, Summary("s", 1))
    gone = [e for e in before if e not in session.view]
    assert gone
    assert sum(1 for e in gone if e.type != COMPACTION) == fold.count
    assert min((e.seq for e in session.view if e is not marker), default=fold.low) == fold.low
    assert str(render(session.view)).count("result for an earlier call") <= orphans
    assert str(render(session.view)).count(INTERRUPTED) <= str(render(before)).count(INTERRUPTED)
