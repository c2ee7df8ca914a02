"""What a child remembers of sessions, and how much."""

from __future__ import annotations

from turnyard.records.commit import TurnView
from turnyard.records.log import USER, LogRecord
from workers.views import Views


def view(session: str, entries: int) -> TurnView:
    return TurnView("OK", session, f"{session}.0", "turn_1", 1, 1, tuple(LogRecord(i + 1, USER) for i in range(entries)))


def test_a_view_is_handed_out_once() -> None:
    views = Views()
    kept = view("a", 3)
    views.keep(kept)
    assert views.take("a") is kept
    assert views.take("a") is None


def test_the_sessions_not_used_for_longest_are_forgotten_when_entries_are_too_many() -> None:
    views = Views(most_entries=10)
    for session in "abc":
        views.keep(view(session, 4))
    assert views.take("a") is None
    assert views.take("b") is not None
    assert views.take("c") is not None


def test_a_session_kept_again_counts_once() -> None:
    views = Views(most_entries=10)
    for _ in range(5):
        views.keep(view("a", 4))
    views.keep(view("b", 4))
    assert views.take("a") is not None
    assert views.take("b") is not None


def test_a_history_larger_than_all_memory_is_not_kept() -> None:
    views = Views(most_entries=10)
    views.keep(view("a", 11))
    assert views.take("a") is None
