"""A session's log in a test: what happens to it, and what a model may see of it by then."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from tests.unit.engine.logs import asked, got, noticed, said, user
from turnyard.engine.effects import Fold, Summary
from turnyard.engine.folding import marker_body
from turnyard.engine.shaper import Built, FoldMode, Shaper, ShaperPolicy
from turnyard.records.log import ASSISTANT, CLEARED, COMPACTION, NOTICE, STRIKE, LogRecord, visible


@dataclass
class Session:
    """A log, all of it, and the view that grows with it. `low` is where somebody who knows nothing reads from."""

    log: list[LogRecord] = field(default_factory=list[LogRecord])
    view: tuple[LogRecord, ...] = ()
    low: int = 0

    def add(self, *records: LogRecord) -> None:
        """Append records, whose seqs are given here. A strike takes no summary along: a store would set `low` back for that."""
        summaries = {record.seq for record in self.log if record.type == COMPACTION}
        fresh = [
            replace(record, seq=len(self.log) + n, seqs=tuple(seq for seq in record.seqs if seq not in summaries))
            for n, record in enumerate(records, 1)
        ]
        self.log += fresh
        self.view = visible(self.view, fresh)

    def fold(self, fold: Fold, summary: Summary) -> LogRecord:
        """Append the summary that stands for a stretch."""
        self.add(LogRecord(0, COMPACTION, body=marker_body(fold, summary)))
        self.low = fold.low
        return self.log[-1]

    def cold(self) -> tuple[LogRecord, ...]:
        """Return the view of somebody who has not seen the log before."""
        return visible((), [record for record in self.log if record.seq >= self.low])


def talk(rounds: int, chars: int = 400) -> Session:
    """A user who asks and a model that answers, so many times, and a last question."""
    session = Session()
    for n in range(rounds):
        session.add(user(0, f"q{n} " + "a" * chars), said(0, f"r{n} " + "b" * chars))
    session.add(user(0, "why?"))
    return session


def build(session: Session, shaper: Shaper, *, fold: FoldMode = "auto", summary: str = "so far", **given: Any) -> tuple[Built, list[Fold]]:
    """Build the next request, summarising first as often as the shaper wants; return it and the folds."""
    folds: list[Fold] = []
    for _ in range(len(session.log) + 2):
        built = shaper.build(session.view, fold=fold, **given)
        if isinstance(built, Built):
            return built, folds
        folds.append(built)
        told = shaper.summary_of(built, summary)
        if isinstance(told, Summary):
            session.fold(built, told)
            fold = "auto"
        else:
            fold = "never"
    raise AssertionError(f"it goes on folding: {folds}")


IDS = st.sampled_from(["c1", "c2", "c3", "", "odd id!", "x" * 70])
TEXTS = st.sampled_from(["", " \n", "x", "<|x|>", "y" * 90, "long " * 80, "<|im|>" * 60, "é" * 300])
NAMES = st.sampled_from(["add", "render", "9 lives", ""])
OUTCOMES = st.sampled_from(["timeout", "cancelled", "unknown", "placeholder", "result"])
PARTS = st.lists(
    st.sampled_from(
        [{"type": "text", "text": "z" * 200}, {"type": "text", "text": ""}, {"type": "image_url", "image_url": {"url": "data:"}}]
    )
)


def _user(draw: st.DrawFn, seq: int) -> LogRecord:
    return user(seq, draw(TEXTS), **draw(st.sampled_from([{}, {}, {"role": "own"}]) | st.builds(lambda parts: {"parts": parts}, PARTS)))


def _said(draw: st.DrawFn, seq: int) -> LogRecord:
    return LogRecord(seq, ASSISTANT, body={"text": draw(TEXTS)} | draw(st.sampled_from([{}, {}, {"aborted": True}])))


def _asked(draw: st.DrawFn, seq: int) -> LogRecord:
    return asked(seq, draw(IDS), draw(NAMES), args=draw(st.sampled_from([{}, {"t": "w" * 200}, ["no object"]])))


def _got(draw: st.DrawFn, seq: int) -> LogRecord:
    return got(seq, draw(IDS), draw(TEXTS), aside=draw(st.booleans()), late=draw(st.booleans()))


def _ended(draw: st.DrawFn, seq: int) -> LogRecord:
    return got(seq, draw(IDS), None, outcome=draw(OUTCOMES))


def _noticed(draw: st.DrawFn, seq: int) -> LogRecord:
    told = noticed(seq, draw(TEXTS), draw(st.sampled_from([NOTICE, "weather"])), **draw(st.sampled_from([{}, {"tag": "ops"}])))
    return replace(told, group_key="g\nk")


def _cleared(draw: st.DrawFn, seq: int) -> LogRecord:
    return LogRecord(seq, CLEARED, group_key="g\nk")


def _struck(draw: st.DrawFn, seq: int) -> LogRecord:
    return LogRecord(seq, STRIKE, seqs=(draw(st.integers(1, max(1, seq - 1))),))


def _folded(draw: st.DrawFn, seq: int) -> LogRecord:
    first = draw(st.integers(1, max(1, seq - 1)))
    last = draw(st.integers(first, max(first, seq - 1)))
    body = {"text": draw(TEXTS), "at": last, "spans": [[first, last]], "count": 1, "more": draw(st.booleans())}
    return LogRecord(seq, COMPACTION, body=body)


_MAKERS = (_user, _said, _said, _asked, _asked, _got, _got, _got, _ended, _noticed, _cleared, _struck, _folded)


@st.composite
def records(draw: st.DrawFn, seq: int) -> LogRecord:
    """Any record: also one that belongs to nothing before it, comes twice or late, or takes others away."""
    return draw(st.sampled_from(_MAKERS))(draw, seq)


@st.composite
def logs(draw: st.DrawFn, longest: int = 14) -> list[LogRecord]:
    """Any log."""
    return [draw(records(seq)) for seq in range(1, draw(st.integers(1, longest)) + 1)]


POLICIES = st.builds(
    ShaperPolicy,
    budget_tokens=st.sampled_from([0, 15, 60, 150, 250, 400, 2_000]),
    preserve_last_messages=st.integers(0, 3),
    preserve_last_tool_calls=st.integers(0, 3),
    lod_truncate_above_chars=st.sampled_from([0, 40, 120, 150]),
    lod_headroom_tokens=st.sampled_from([-1, 0, 20]),
    always_lod=st.booleans(),
    hard_budget_tokens=st.sampled_from([0, 300, 5_000]),
    summary_budget_tokens=st.sampled_from([0, 1, 800]),
    late=st.sampled_from(["append", "replace"]),
    trusted=st.booleans(),
)
