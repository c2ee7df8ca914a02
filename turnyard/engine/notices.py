"""Which notices are over before a model reads them again: those whose time has passed, and those whose check finds nothing.

A check is the app's own: asked of a key of its group, it returns what there is to say now. Nothing (None, an empty text,
null, {}, [] or "") means that its notices are over. A check that fails, takes too long or does not exist says nothing, and
the notices stay: a flaky check never hides news. It is asked of each pair once a round, also of notices that were shown
before, because those are what a model reads again in every round.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from turnyard.records.commit import TurnView
from turnyard.records.log import COMPACTION, NOTICE, LogRecord, position
from turnyard.records.notices import Notice, shown_notice

CHECK_TIMEOUT_S = 5.0
_NOTHING = frozenset({"", "null", "{}", "[]", '""'})
_STORES = 256

_log = logging.getLogger("turnyard.engine")


@dataclass(frozen=True, slots=True)
class Check:
    """What is asked of a notice's key, and how long it may take."""

    ask: Callable[[TurnView, str], Awaitable[Any]]
    timeout_s: float = CHECK_TIMEOUT_S


def without(entries: Sequence[LogRecord], pairs: Sequence[str]) -> Sequence[LogRecord]:
    """Return the entries without the notices of these pairs."""
    if not pairs:
        return entries
    return tuple(e for e in entries if e.type != NOTICE or e.group_key not in pairs)


def says_nothing(found: Any) -> bool:
    """Tell whether what a check returned means that there is nothing to say any more."""
    text = found if isinstance(found, str) else orjson.dumps(found, default=str).decode()
    return text.strip() in _NOTHING


@dataclass(frozen=True, slots=True)
class _Shown:
    """The notices of a store that a turn has seen up to `last_seq`."""

    epoch: int
    last_seq: int
    notices: tuple[Notice, ...] = ()


class Preparer:
    """Finds the pairs that are over, by `checks`, one for each group that has any.

    It remembers the notices of the stores it was asked about last, so that a later round looks at new entries only.
    """

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks = checks
        self._known: OrderedDict[str, _Shown] = OrderedDict()

    async def __call__(self, view: TurnView) -> Sequence[str]:
        """Return the pairs (group_key) of shown notices that are over."""
        by_pair: dict[str, list[Notice]] = {}
        for notice in self._notices(view):
            by_pair.setdefault(notice.pair, []).append(notice)
        if not by_pair:
            return ()
        over = [pair for pair, all_ in by_pair.items() if all(n.until_ms is not None and n.until_ms <= view.now_ms for n in all_)]
        asked = [all_[0] for pair, all_ in by_pair.items() if pair not in over and all_[0].group in self._checks]
        answers = await asyncio.gather(*(self._is_over(view, notice) for notice in asked))
        return [*over, *(notice.pair for notice, done in zip(asked, answers, strict=True) if done)]

    async def _is_over(self, view: TurnView, notice: Notice) -> bool:
        try:
            check = self._checks[notice.group]
            return says_nothing(await _bounded(check.ask(view, notice.key), check.timeout_s))
        except Exception as error:  # noqa: BLE001 - the app's own code: what it raises says nothing of the notice
            fields = {"session": view.session, "group": notice.group, "key": notice.key}
            _log.warning("the check of a notice failed", extra=fields | {"reason": f"{type(error).__name__}: {error}"})
            return False

    # -- what was shown -----------------------------------------------------------------------------------------------

    def _notices(self, view: TurnView) -> tuple[Notice, ...]:
        """Return the notices that the view shows, in order."""
        known = self._known.pop(view.store, None)
        if known is None or known.epoch != view.epoch or known.last_seq > view.last_seq:
            known = _Shown(view.epoch, 0)
        new = [notice for record in _after(view.entries, known.last_seq) if (notice := shown_notice(record)) is not None]
        notices = (*(n for n in known.notices if _still_in(view.entries, n)), *new)
        self._known[view.store] = _Shown(view.epoch, view.last_seq, notices)
        while len(self._known) > _STORES:
            self._known.popitem(last=False)
        return notices


async def _bounded(check: Awaitable[Any], timeout_s: float) -> Any:
    """Wait for a check as long as it may take; what goes on after that is left behind."""
    asking = asyncio.ensure_future(_guarded(check))
    try:
        await asyncio.wait({asking}, timeout=timeout_s)
    finally:
        if not asking.done():
            asking.cancel()
    if not asking.done():
        raise TimeoutError(f"no answer within {timeout_s:g} s")
    if asking.cancelled():
        raise RuntimeError("the check cancelled itself")
    return asking.result()


async def _guarded(check: Awaitable[Any]) -> Any:
    """Wait for a check. A task of its own that it ended with SystemExit would end the process."""
    try:
        return await check
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"the check raised {type(error).__name__}") from error


def _after(entries: Sequence[LogRecord], seq: int) -> list[LogRecord]:
    """Return the entries after `seq`, in order. A summary stands among older ones, whatever its own number."""
    found: list[LogRecord] = []
    for entry in reversed(entries):
        if entry.seq <= seq:
            break
        if entry.type != COMPACTION:
            found.append(entry)
    return found[::-1]


def _still_in(entries: Sequence[LogRecord], notice: Notice) -> bool:
    at = bisect_left(entries, (notice.seq, 1), key=position)
    return at < len(entries) and entries[at].seq == notice.seq
