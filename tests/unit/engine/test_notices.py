"""Which notices are over before a model reads them again."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.logs import noticed, user, view
from turnyard.engine.notices import Check, Preparer, says_nothing, without
from turnyard.records.commit import TurnView
from turnyard.records.log import CLEARED, COMPACTION, NOTICE, LogRecord, visible

NOW_MS = 1_000_000


def notice(seq: int, pair: str = "disk\nsda", until_ms: int | None = None) -> LogRecord:
    return replace(noticed(seq, f"n{seq}"), group_key=pair, until_ms=until_ms)


def seen(*entries: LogRecord, **more: Any) -> TurnView:
    last = max((e.seq for e in entries), default=0)
    return replace(view(*entries), store="s.0", last_seq=last, now_ms=NOW_MS, **more)


def answering(found: Any, asked: list[str] | None = None) -> Check:
    async def ask(_view: TurnView, key: str) -> Any:
        if asked is not None:
            asked.append(key)
        if isinstance(found, BaseException):
            raise found
        return found

    return Check(ask)


@pytest.mark.spec("turn-25")
@pytest.mark.parametrize("found", ["", "  \n", "null", "{}", "[]", '""', ' "" ', None, {}, []])
async def test_a_check_that_finds_nothing_ends_the_notices_of_its_key(found: Any) -> None:
    assert list(await Preparer({"disk": answering(found)})(seen(user(1), notice(2)))) == ["disk\nsda"]


@pytest.mark.spec("turn-25")
@pytest.mark.parametrize(
    "found", ["full", "0", "false", 0, False, "{ }", {"free": 0}, [None], ValueError("down"), asyncio.CancelledError()]
)
async def test_a_check_that_finds_something_or_fails_keeps_them(found: Any) -> None:
    assert list(await Preparer({"disk": answering(found)})(seen(user(1), notice(2)))) == []


@pytest.mark.spec("turn-25")
async def test_a_group_without_a_check_keeps_its_notices_and_one_that_takes_too_long_too() -> None:
    async def never(_view: TurnView, _key: str) -> None:
        await asyncio.Event().wait()

    async def stubborn(_view: TurnView, _key: str) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        await asyncio.sleep(3600)

    checks = {"disk": Check(never, 0.001), "net": Check(stubborn, 0.001)}
    assert list(await Preparer(checks)(seen(notice(1), notice(2, "net\neth0"), notice(3, "cpu\n0")))) == []


async def test_each_key_is_asked_once_a_round_however_many_notices_it_has_shown_ones_too() -> None:
    asked: list[str] = []
    prepare = Preparer({"disk": answering("full", asked)})
    entries = (notice(1), notice(2, "disk\nsdb"), user(3), notice(4))
    for rounds in (1, 2, 3):
        assert list(await prepare(seen(*entries))) == []
        assert sorted(asked) == ["sda"] * rounds + ["sdb"] * rounds


async def test_checks_of_one_round_run_side_by_side() -> None:
    both = asyncio.Barrier(2)

    async def meet(_view: TurnView, _key: str) -> str:
        await both.wait()
        return ""

    checks = {"disk": Check(meet), "net": Check(meet)}
    assert list(await Preparer(checks)(seen(notice(1), notice(2, "net\neth0")))) == ["disk\nsda", "net\neth0"]


async def test_a_notice_that_has_outlived_its_time_is_over_unless_a_newer_one_of_its_key_has_not() -> None:
    prepare = Preparer({})
    over, lasting = notice(1, until_ms=NOW_MS), notice(2, until_ms=NOW_MS + 1)
    assert list(await prepare(seen(over))) == ["disk\nsda"]
    assert list(await Preparer({})(seen(over, lasting))) == []
    assert list(await Preparer({})(seen(over, notice(2, "disk\nsdb")))) == ["disk\nsda"]


async def test_words_of_the_engine_itself_and_injected_context_are_no_notices() -> None:
    asked: list[str] = []
    prepare = Preparer({"": answering("", asked), "turn": answering("", asked)})
    own = LogRecord(2, NOTICE, body={"text": "reply again", "group": "turn", "key": "output"})
    assert list(await prepare(seen(noticed(1, "context"), own))) == []
    assert asked == []


async def test_without_leaves_out_the_notices_of_the_pairs_and_nothing_else() -> None:
    entries = (notice(1), user(2), notice(3, "disk\nsdb"), notice(4))
    assert [e.seq for e in without(entries, ["disk\nsda"])] == [2, 3]
    assert without(entries, []) is entries


@given(st.text(max_size=4))
def test_only_the_five_words_for_nothing_are_nothing(text: str) -> None:
    assert says_nothing(text) == (text.strip() in ("", "null", "{}", "[]", '""'))


STEPS = st.lists(st.sampled_from(["notice sda", "notice sdb", "word", "clear sda", "fold", "new turn"]), max_size=25)


@given(STEPS)
async def test_what_is_remembered_of_a_store_is_what_looking_at_all_of_it_would_find(steps: list[str]) -> None:
    asked: list[str] = []
    prepare = Preparer({"disk": answering("full", asked)})
    entries: tuple[LogRecord, ...] = ()
    epoch = 1
    for seq, step in enumerate(steps, 1):
        record = user(seq)
        if step.startswith("notice"):
            record = notice(seq, f"disk\n{step[-3:]}")
        elif step.startswith("clear"):
            record = LogRecord(seq, CLEARED, group_key="disk\nsda")
        elif step == "fold" and len(entries) > 1:
            first, last = entries[0], entries[len(entries) // 2 - 1]
            span = [min(first.seq, int(first.body.get("at", first.seq))), max(first.seq, last.seq)]
            record = LogRecord(seq, COMPACTION, body={"text": "", "at": last.body.get("at", last.seq), "spans": [span]})
        elif step == "new turn":
            epoch += 1
        entries = visible(entries, [record])
        asked.clear()
        await prepare(replace(seen(*entries), last_seq=seq, epoch=epoch))
        assert sorted(asked) == sorted({e.group_key[-3:] for e in entries if e.type == NOTICE})


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()], ids=lambda e: type(e).__name__)
async def test_a_check_that_raises_what_would_end_a_process_says_nothing(error: BaseException) -> None:
    async def broken(_view: TurnView, _key: str) -> None:
        raise error

    assert list(await Preparer({"disk": Check(broken)})(seen(user(1), notice(2)))) == []
