"""How records of a log become the events of a stream.

The log is the feed: an event is a rendering of one record, so a follower that comes back with the id of the last event
it saw misses nothing. A record may give several events; only the last carries the id, so a stream that is cut between
them repeats the earlier ones instead of losing the later.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from turnyard.records import log
from turnyard.records.live import read_progress
from turnyard.records.log import LogRecord
from turnyard.wire.views import rfc3339

if TYPE_CHECKING:
    from turnyard.records.live import Live

_AS_THEY_ARE = frozenset({log.COMPACTION, log.NOTICE, log.CLEARED, log.STRIKE, *log.COURSE})

# Call names are remembered so that a result can say whose it is; more open calls than this is no real session.
_NAMES = 2000

_OUTCOME_TEXT = {
    "placeholder": "The call is still running; its result will follow.",
    "denied": "The call was denied.",
    "timeout": "The call did not answer in time.",
    "cancelled": "The call was cancelled.",
    "superseded": "A newer message took the place of this question.",
    "unknown": "The outcome is unknown: the worker was lost while the call ran. Verify before repeating it.",
}
# What people were asked ended otherwise than a call that ran.
_ASKED_TEXT = {
    ("approval", "timeout"): "Nobody decided about the call in time; it was not executed.",
    ("approval", "superseded"): "A newer message took its place before the call was approved; it was not executed.",
    ("question", "timeout"): "Nobody answered the question in time.",
}


@dataclass(frozen=True, slots=True)
class FeedEvent:
    """One event. `data` is the whole envelope: type, session, turn, job, seq, at and data. `id` is None between ids."""

    event: str
    data: dict[str, Any]
    id: str | None = None

    @property
    def raw(self) -> dict[str, Any]:
        """Return the envelope: every answer of a client has its JSON under this name."""
        return self.data


@dataclass(frozen=True, slots=True)
class _Draft:
    type: str
    data: dict[str, Any]
    turn: str = ""
    job: str | None = None


@dataclass(slots=True)
class Renderer:
    """Turns the records of one session into events, in the order in which they come.

    It remembers what a single record does not say: which turn is open and for whom, whether a message has started,
    how calls are named. `prime` tells it what came before the follower's position.
    """

    session: str
    turn: str = ""
    jobs: list[str] = field(default_factory=list[str])
    rounds: int | None = None
    message_open: bool = False
    said_step: int = 0
    closed: str = ""
    last_message: dict[str, Any] | None = None
    names: dict[str, str] = field(default_factory=dict[str, str])

    def prime(self, records: Iterable[LogRecord]) -> None:
        """Learn from records that the follower has already seen, oldest first."""
        whole = False
        for i, record in enumerate(records):
            before = self.turn
            self.render(record)
            if self.turn != before:
                # The turn's first record may lie before the first one given here.
                whole = i > 0 or record.seq == 1
        if not whole:
            self.rounds = None

    def render(self, record: LogRecord) -> list[FeedEvent]:
        """Return the events of one record, none with an id; the caller gives the last one its id."""
        drafts = self._opening(record)
        drafts.extend(self._body(record))
        if record.type == log.TURN_END:
            self._close_turn()
        return [self.envelope(d.type, d.data, turn=d.turn, job=d.job, seq=record.seq, at_ms=record.at_ms) for d in drafts]

    def render_live(self, live: Live) -> list[FeedEvent]:
        """Return the events of one delta, none when what it belongs to has been told already."""
        if live.kind == "progress":
            # Also of a turn that is over: a call in the background goes on.
            call, fraction, note = read_progress(live.text)
            return [self.envelope("tool/progress", {"call": call, "fraction": fraction, "note": note}, turn=live.turn, seq=live.seq)]
        if live.turn == self.closed or (live.turn == self.turn and live.step <= self.said_step):
            return []
        events: list[FeedEvent] = []
        if live.kind == "start" or not self.message_open:
            # A second start means that another worker began the message anew.
            self.message_open = True
            events.append(self.envelope("message/start", {"index": live.index}, turn=live.turn, seq=live.seq))
        if live.kind != "start":
            data = {"kind": live.kind, "index": live.index, "delta": live.text}
            events.append(self.envelope("message/update", data, turn=live.turn, seq=live.seq))
        return events

    def envelope(
        self, event: str, data: dict[str, Any], *, turn: str | None = None, job: str | None = None, seq: int | None = None, at_ms: int = 0
    ) -> FeedEvent:
        """Return an event with what every event says about where it belongs."""
        turn = turn or self.turn or None
        if job is None and self.jobs and turn == self.turn:
            job = self.jobs[0]
        return FeedEvent(
            event, {"type": event, "session": self.session, "turn": turn, "job": job, "seq": seq, "at": rfc3339(at_ms), "data": data}
        )

    def _opening(self, record: LogRecord) -> list[_Draft]:
        if not record.is_entry or not record.turn or record.turn == self.turn:
            return []
        self.turn, self.jobs = record.turn, list(record.jobs)
        self.rounds, self.message_open, self.said_step, self.last_message = 0, False, 0, None
        return [_Draft("turn/start", {"jobs": list(record.jobs)}, record.turn, _first(record.jobs))]

    def _close_turn(self) -> None:
        self.closed, self.turn, self.jobs, self.message_open = self.turn, "", [], False

    def _body(self, record: LogRecord) -> list[_Draft]:
        match record.type:
            case log.USER:
                return self._claimed(record)
            case log.ASSISTANT:
                return self._message(record)
            case log.CALL:
                return [self._call(record)]
            case log.RESULT:
                return [self._result(record)]
            case log.TURN_END:
                return [self._turn_end(record)]
            case _:
                return _event_of(record)

    def _claimed(self, record: LogRecord) -> list[_Draft]:
        if not record.jobs and record.body.get("origin") == "hook":
            return []  # turn/continue, which came before it, has told of it
        self.jobs.extend(job for job in record.jobs if job not in self.jobs)
        return [_Draft("inbox/claimed", {"jobs": list(record.jobs), "step": record.step}, record.turn, _first(record.jobs))]

    def _message(self, record: LogRecord) -> list[_Draft]:
        drafts = [] if self.message_open else [_Draft("message/start", {"index": 0}, record.turn)]
        self.message_open = False
        self.said_step = record.step
        if self.rounds is not None:
            self.rounds += 1
        self.last_message = {"role": "assistant", **record.body}
        drafts.append(_Draft("message/end", self.last_message, record.turn))
        return drafts

    def _call(self, record: LogRecord) -> _Draft:
        name = record.body.get("name")
        if record.call and isinstance(name, str):
            if len(self.names) >= _NAMES:
                self.names.pop(next(iter(self.names)))
            self.names[record.call] = name
        return _Draft("tool/call", {"call": record.call, "name": name, "args": record.body.get("args")}, record.turn)

    def _result(self, record: LogRecord) -> _Draft:
        content = record.body.get("content")
        if content is None:
            content = (
                record.body.get("note")
                or _ASKED_TEXT.get((record.kind or "", record.outcome or ""))
                or _OUTCOME_TEXT.get(record.outcome or "", "")
            )
        failed = record.outcome not in ("result", "placeholder", None)
        data = {
            "call": record.call,
            "name": self.names.get(record.call or ""),
            "content": content,
            "is_error": bool(record.body.get("is_error", failed)),
            "ref": record.body.get("ref"),
            "outcome": record.outcome,
        }
        return _Draft("tool/result", data, record.turn)

    def _turn_end(self, record: LogRecord) -> _Draft:
        failure = record.body if record.outcome == "failed" else None
        data = {
            "stop_reason": record.body.get("stop_reason") or (failure or {}).get("code") or record.outcome,
            "steps": self.rounds if record.turn == self.turn else None,
            "usage": record.body.get("usage"),
            "message": self.last_message if record.turn == self.turn else None,
            "output": record.body.get("output"),
            "error": failure,
        }
        return _Draft("turn/end", data, record.turn, _first(record.jobs))


def _first(jobs: tuple[str, ...]) -> str | None:
    return jobs[0] if jobs else None


def _event_of(record: LogRecord) -> list[_Draft]:
    job = _first(record.jobs)
    match record.type:
        case log.ACCEPTED:
            body = record.body
            data = {"job": job, "user": body.get("user"), "mode": body.get("mode"), "position": body.get("position")}
        case log.PARKED:
            data = {
                "call": record.call,
                "kind": record.kind,
                "wait": record.outcome == "awaited",
                "expires_at": rfc3339(int(record.extra.get("dl", 0))),
            }
        case log.REQUEST:
            data = _request(record)
        case log.DECIDED:
            data = {
                "id": record.body.get("id"),
                "call": record.call,
                "outcome": record.outcome,
                "allow": record.outcome == "allow",
                "by": record.extra.get("by") or None,
                "at": rfc3339(record.at_ms),
                "reason": record.extra.get("rs") or None,
            }
        case log.SENT:
            data = {"text": record.body.get("text"), "call": record.call}
        case log.RESOLVED:
            data = {"call": record.call, "outcome": record.outcome, "by": record.extra.get("by") or None}
        case _ if record.type in _AS_THEY_ARE:
            data = dict(record.body)
        case _:
            return []
    return [_Draft(record.type, data, record.turn, job)]


def _request(record: LogRecord) -> dict[str, Any]:
    """Return what people are asked: whoever shows it needs no more to let them decide."""
    asked = record.body
    within_ms = asked.get("expires_in_ms")
    return {
        "id": asked.get("id"),
        "call": asked.get("call"),
        "kind": "question" if asked.get("kind") == "question" else "allow_deny",
        "tool": asked.get("tool"),
        "args": asked.get("args"),
        "reason": asked.get("reason") or None,
        "approvers": list(asked.get("approvers") or ()),
        "self_approve": asked.get("self_approve", True),
        "remember": asked.get("remember"),
        "options": list(asked.get("options") or ()),
        "multi_select": bool(asked.get("multi_select", False)),
        "expires_at": rfc3339(record.at_ms + int(within_ms)) if within_ms else None,
    }
