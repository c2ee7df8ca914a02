"""What all that was said of a call comes to: the strictest wins, and several questions become one that each of them would accept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from fnmatch import fnmatchcase
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnyard import Ask, ConfigError, Deny, tool
from turnyard.tools.approval import Verdict
from turnyard.tools.policy import Rule, common, merged

USERS = ("u1", "u2", "ops-1", "ops-22", "a*", "sre")
ENTRIES = (*USERS, "*", "ops-*", "ops-?", "u*", "o*", "u[12]", "?1", "ops-*2")

asks = st.builds(
    Ask,
    st.sampled_from(["", "big", "late", "vip"]),
    approvers=st.lists(st.sampled_from(ENTRIES), max_size=3),
    expires_in=st.sampled_from([None, 1, 60, timedelta(hours=1)]),
    scope=st.sampled_from(["asker", "anyone"]),
    self_approve=st.booleans(),
    remember=st.sampled_from([None, "session"]),
)
denials = st.builds(Deny, st.sampled_from(["", "never", "not here"]), st.sampled_from(["", "ask billing"]))
verdicts = st.lists(st.one_of(st.none(), asks, denials), max_size=5)


def may(approvers: Sequence[str], user: str) -> bool:
    return not approvers or any(user == entry or fnmatchcase(user, entry) for entry in approvers)


@pytest.mark.spec("runner-34")
@given(verdicts, st.booleans())
def test_a_denial_beats_every_question_and_a_question_beats_leave(said: list[Verdict], granted: bool) -> None:
    judgement = merged(said, granted=granted)
    if any(isinstance(one, Deny) for one in said):
        assert judgement.decision == "deny"
    elif any(isinstance(one, Ask) for one in said):
        remembered = granted and all(one.remember == "session" for one in said if isinstance(one, Ask))
        assert judgement.decision in (("allow",) if remembered and judgement.audit.get("granted") else ("ask", "deny"))
    else:
        assert judgement.decision == "allow"


@given(st.lists(st.one_of(asks, denials), min_size=2, max_size=3))
def test_whoever_speaks_first_changes_nothing_of_what_is_decided(said: list[Verdict]) -> None:
    found = [merged(order) for order in permutations(said)]
    assert len({one.decision for one in found}) == 1
    assert len({(one.expires_in_ms, one.scope, one.self_approve, one.remember, frozenset(one.approvers)) for one in found}) == 1


@pytest.mark.spec("S16")
@given(st.lists(asks, min_size=1, max_size=4), st.sampled_from(USERS))
def test_who_may_answer_a_question_may_answer_each_that_it_is_made_of(said: list[Ask], user: str) -> None:
    judgement = merged(said)
    if judgement.decision == "ask" and may(judgement.approvers, user):
        assert all(may(one.approvers, user) for one in said)


@given(st.lists(asks, min_size=1, max_size=4), st.sampled_from(("u1", "u2", "sre")))
def test_who_is_named_by_all_may_answer(said: list[Ask], user: str) -> None:
    named = [Ask(one.reason, approvers=(*one.approvers, user), remember=one.remember) for one in said]
    assert may(merged(named).approvers, user)


@given(st.lists(asks, min_size=1, max_size=4))
def test_a_question_takes_the_strictest_terms(said: list[Ask]) -> None:
    judgement = merged(said)
    if judgement.decision == "deny":
        return
    times = [one.expires_in_ms for one in said if one.expires_in_ms is not None]
    assert judgement.expires_in_ms == (min(times) if times else None)
    assert judgement.self_approve == all(one.self_approve for one in said)
    assert (judgement.remember == "session") == all(one.remember == "session" for one in said)
    assert judgement.reason.split("; ") == list(dict.fromkeys(one.reason for one in said if one.reason)) or not judgement.reason


def test_where_the_rules_name_different_people_nobody_may_approve() -> None:
    assert common(("u1",), ("u2",)) is None
    judgement = merged([Ask("big", approvers=["u1"]), Ask("late", approvers=["ops-*"])])
    assert (judgement.decision, "different people" in judgement.reason) == ("deny", True)


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        ((), (), ()),
        (("u1",), (), ("u1",)),
        (("*",), ("u1",), ("u1",)),
        (("ops-*",), ("ops-1", "u1"), ("ops-1",)),
        (("ops-*",), ("ops-2*",), ("ops-2*",)),
        (("a?",), ("a*",), ("a?",)),
        (("*x",), ("a*",), None),
    ],
)
def test_approvers_that_both_lists_name_stay(first: tuple[str, ...], second: tuple[str, ...], both: tuple[str, ...] | None) -> None:
    assert common(first, second) == both


def test_a_grant_of_the_session_lifts_a_question_that_offers_it_and_no_other() -> None:
    remembered, plain = Ask("big", remember="session"), Ask("late")
    assert merged([remembered], granted=True).decision == "allow"
    assert merged([remembered], granted=True).audit == {"decision": "allow", "granted": "session"}
    assert merged([remembered, plain], granted=True).decision == "ask"
    assert merged([remembered, Deny("never")], granted=True).decision == "deny"
    assert merged([remembered]).decision == "ask"


def test_what_denies_says_why_and_what_to_do_and_keeps_what_it_wants_kept() -> None:
    judgement = merged([Deny("never", "ask billing", {"rule": 7}), Deny("never"), Deny("not here")])
    assert (judgement.reason, judgement.guidance) == ("never; not here", "ask billing")
    assert judgement.audit == {"rule": 7, "decision": "deny", "reason": "never; not here", "guidance": "ask billing"}


def test_an_operators_rule_is_about_the_tools_that_its_globs_name() -> None:
    rule = Rule(tools=("refund", "crm_set_*"), approvers=("boss",), expires_in_ms=900_000, remember="session")
    assert [rule.matches(name) for name in ("refund", "crm_set_x", "crm_get_x", "refunds")] == [True, True, False, False]
    assert merged([rule.ask()]).approvers == ("boss",)
    assert (merged([rule.ask()]).expires_in_ms, rule.ask().self_approve, rule.ask().remember) == (900_000, False, "session")


def test_a_question_with_terms_that_make_no_sense_is_refused_where_it_is_written() -> None:
    with pytest.raises(ConfigError, match="one string"):
        Ask("big", approvers="boss")
    with pytest.raises(ConfigError, match="more than zero"):
        Ask("big", expires_in=0)
    with pytest.raises(ConfigError, match="is no rule"):

        @tool(approval="yes")  # pyright: ignore[reportArgumentType, reportCallIssue]
        def pay() -> str:  # pyright: ignore[reportUnusedFunction]
            return "paid"
