"""What the demo judges by: which calls were repeated, who went on, what a model call saw, how it ends."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from turnyard.cli.demo import journal
from turnyard.cli.demo.journal import MODEL, Made
from turnyard.cli.demo.story import NEWS, WISHES, saw_all
from turnyard.cli.demo.studio import AGENT, app
from turnyard.cli.demo.transcript import Transcript
from turnyard.testing import ManualClock

LATE = "[render call_1] result for the earlier pending call: harbour.png"
SEEN = (LATE, *WISHES, f"[notification] {NEWS}")


def made(call: str, phase: str = "begin", *, pid: int = 1, at_s: float = 0.0, key: str = "", name: str = "print_card") -> Made:
    return Made(name, phase, call, key or f"key of {call}", pid=pid, at_s=at_s)  # type: ignore[arg-type]


def test_a_call_that_begins_twice_is_one_repeat_and_its_end_is_none():
    calls = [made("1"), made("1", "end"), made("2", pid=1), made("2", pid=2), made("2", "end", pid=2)]
    assert journal.repeats(calls) == [made("2", pid=2)]
    assert journal.repeats([made("1"), made("1", name=MODEL)]) == []


def test_a_repeat_under_another_key_is_found():
    assert journal.keys_stay([made("1"), made("1"), made("2")])
    assert not journal.keys_stay([made("1"), made("1", key="another")])


def test_who_goes_on_is_another_process_that_begins_a_call_after_the_moment():
    calls = [made("1", pid=2, at_s=1.0), made("2", pid=1, at_s=2.0), made("2", pid=1, at_s=4.0), made("2", "end", pid=2, at_s=5.0)]
    assert journal.takeover(calls, old=1, after_s=3.0) is None
    assert journal.takeover([*calls, made("3", pid=2, at_s=6.0)], old=1, after_s=3.0) == made("3", pid=2, at_s=6.0)
    assert journal.last_sign(calls, old=1, before_s=6.0) == 4.0
    assert journal.last_sign(calls, old=9, before_s=6.0) is None


def test_a_journal_is_read_up_to_its_last_whole_line(tmp_path: Path):
    file = tmp_path / "calls.jsonl"
    assert journal.read(file) == []
    journal.write_down(file, Made(MODEL, "begin", "c", "k", "asks", ("a", "b")))
    with file.open("ab") as half:
        half.write(b'{"name": "mod')
    (found,) = journal.read(file)
    assert (found.call, found.key, found.shown, found.pid > 0, found.at_s > 0) == ("c", "k", ("a", "b"), True, True)


def test_a_model_call_saw_all_only_with_all_four_in_their_order():
    assert saw_all(SEEN)


@pytest.mark.parametrize("seen", [SEEN[:3], SEEN[1:], SEEN[::-1], (*SEEN, "more"), ("[render call_1] pending", *SEEN[1:])])
def test_a_model_call_that_saw_less_more_or_in_another_order_did_not_see_all(seen: tuple[str, ...]):
    assert not saw_all(seen)


def test_the_studio_s_agent_can_be_served():
    assert [(m.name, [t.kind for t in m.tools]) for m in app.manifests()] == [(AGENT, ["lift", "plain"])]


def test_every_broken_promise_is_named_at_the_end_with_what_was_seen():
    screen = io.StringIO()
    tell = Transcript(Console(file=screen, width=60), ManualClock())
    tell.check("the sky is blue", kept=True, seen="blue")
    tell.verdict()
    assert "1 promises were checked, and all were kept." in screen.getvalue()
    tell.check("pigs fly", kept=False, seen="[bold]none[/bold] did")
    tell.verdict()
    assert [check.promise for check in tell.broken] == ["pigs fly"]
    assert screen.getvalue().endswith("1 of 2 promises were broken:\n  pigs fly: [bold]none[/bold] did\n")


def test_the_transcript_fits_a_narrow_terminal_and_takes_text_for_text():
    screen = io.StringIO()
    tell = Transcript(Console(file=screen, width=32), ManualClock())
    tell.chapter("A chapter with a title that is longer than the terminal is wide")
    tell.line("agent", "→ render(scene='[red]x[/red]') and much more that has to be folded")
    tell.table("What it took", [("time", "a value that is longer than there is room for in one line")])
    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= 32
    assert "[red]x[/red]" in screen.getvalue().replace("\n", "").replace(" ", "")
