"""Which rows of docs/acceptance.md the rules of the session store prove, on each store that they are run on."""

from __future__ import annotations

import functools
from typing import TypeVar

import pytest

from turnyard.testing.stores import SessionStoreConformance

ROWS = {
    "test_what_an_entry_holds_comes_back_byte_for_byte_also_what_a_summary_stands_for": ("turn-1",),
    "test_records_are_numbered_without_a_gap_and_render_alike_however_they_are_shuffled": ("turn-3",),
    "test_what_waits_is_claimed_once_however_many_race_for_it": ("turn-4",),
    "test_what_a_commit_wrote_is_seen_by_another_client_at_once_and_is_nobodys_arrival": ("turn-5",),
    "test_a_compaction_that_is_broken_off_leaves_the_old_history_or_the_new_one": ("turn-6",),
    "test_injected_context_is_in_the_next_claim_but_starts_nothing_and_is_not_counted": ("turn-18",),
    "test_messages_that_wait_together_are_claimed_together_in_their_order": ("turn-19",),
    "test_a_pending_call_leaves_its_placeholder_lets_the_turn_end_and_blocks_nothing": ("turn-20",),
    "test_a_late_result_wakes_the_session_and_stands_beside_its_placeholder_in_a_list_that_strict_apis_accept": ("turn-21",),
    "test_a_late_result_a_message_and_a_notice_are_claimed_together_in_order_of_arrival": ("turn-22",),
    "test_the_first_outcome_stands_an_unknown_call_is_gone_and_past_its_deadline_a_call_has_timed_out": ("turn-23",),
    "test_a_newer_notice_takes_the_place_of_one_that_was_not_shown_and_wakes_nobody": ("turn-26",),
    "test_clearing_takes_away_the_notices_of_a_pair_shown_or_not_and_no_other": ("turn-26",),
    "test_a_stale_writer_is_refused_whole": ("turn-49",),
}

T = TypeVar("T", bound=type[SessionStoreConformance])


def proves_rows(suite: T) -> T:
    """Mark the tests that a store's class inherits with the rows they prove."""
    for name, rows in ROWS.items():
        setattr(suite, name, pytest.mark.spec(*rows)(_own(getattr(suite, name))))
    return suite


def _own(test: object) -> object:
    """Return a copy of an inherited test, so that its mark is not on the public suite."""

    @functools.wraps(test)  # pyright: ignore[reportArgumentType]
    async def own(self: SessionStoreConformance) -> None:
        await test(self)  # pyright: ignore[reportGeneralTypeIssues, reportCallIssue]

    return own
