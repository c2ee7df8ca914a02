"""How the entries of a log, and what happens between them, become the events of a run.

The log is written first and told afterwards, so what a listener reads of the session is never behind the event it is
told of. A turn of the run is one answer with the results of its calls: it is over when the last call is answered, or
when the run ends before that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from turnyard.engine.bus import (
    AgentEnd,
    AgentStart,
    EventBus,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
    TurnStart,
)
from turnyard.engine.messages import ASSISTANT, Message, message_of
from turnyard.engine.options import TurnDone
from turnyard.ports import Delta
from turnyard.records.log import ASSISTANT as ANSWER
from turnyard.records.log import CALL, COMPACTION, RESULT, LogRecord


@dataclass(slots=True)
class Narration:
    """Tells what happens in one session to its listeners.

    `pending` are the calls that run right now, `last_turn` is the turn of the run that ended last.
    """

    bus: EventBus
    pending: set[str] = field(default_factory=set[str])
    last_turn: TurnDone | None = None
    _pieces: dict[str, list[str]] | None = None
    _in_turn: bool = False
    _answer: Message | None = None
    _open: dict[str, LogRecord] = field(default_factory=dict[str, LogRecord])
    _told: set[str] = field(default_factory=set[str])
    _results: list[Message] = field(default_factory=list[Message])

    # -- the run and its turns ----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A run begins."""
        self.bus.emit(AgentStart())
        self._begin_turn()

    def end(self, added: Sequence[Message]) -> None:
        """The run is over; `added` is what it added to the transcript."""
        self.stream_broke()
        self.end_turn()
        self.pending.clear()
        self.bus.emit(AgentEnd(tuple(added)))

    def end_turn(self) -> None:
        """The turn of the run is over, whether or not its calls are answered."""
        if not self._in_turn:
            return
        self._in_turn = False
        answer, results = self._answer, tuple(self._results)
        self._results.clear()
        if not self._open:
            self._answer = None
        self.last_turn = TurnDone(answer, results)
        self.bus.emit(TurnEnd(answer, results))

    def _begin_turn(self) -> None:
        if not self._in_turn:
            self._in_turn = True
            self.bus.emit(TurnStart())

    # -- what the log holds -------------------------------------------------------------------------------------------

    def tell(self, entries: Sequence[LogRecord]) -> None:
        """Tell of entries that were just written."""
        rest = list(entries)
        while rest:
            entry = rest.pop(0)
            if entry.type == ANSWER:
                calls: list[LogRecord] = []
                while rest and rest[0].type == CALL:
                    calls.append(rest.pop(0))
                self._tell_answer(entry, calls)
            elif entry.type == RESULT and not entry.aside:
                self._tell_result(entry)
            elif entry.type != COMPACTION:
                self._whole(message_of(entry))

    def _tell_answer(self, entry: LogRecord, calls: Sequence[LogRecord]) -> None:
        message = message_of(entry, calls)
        self._begin_turn()
        self._answer, self._open = message, {call.call or "": call for call in calls}
        streamed, self._pieces = self._pieces is not None, None
        if not streamed:
            self.bus.emit(MessageStart(message))
        self.bus.emit(MessageEnd(message))
        if not calls:
            self.end_turn()

    def _tell_result(self, entry: LogRecord) -> None:
        call = entry.call or ""
        asked = self._open.pop(call, None)
        name = str(asked.body.get("name", "")) if asked else ""
        message = message_of(entry, tool=name)
        if call not in self._told and call not in self.pending:
            self.tool_started(call, name, asked.body.get("args") or {} if asked else {})
        if call not in self._told:
            self.tool_ended(call, name, message.text, is_error=message.is_error, details=message.details)
        self._told.discard(call)
        self._results.append(self._whole(message))
        if not self._open:
            self.end_turn()

    def _whole(self, message: Message) -> Message:
        self._begin_turn()
        self.bus.emit(MessageStart(message))
        self.bus.emit(MessageEnd(message))
        return message

    # -- what happens in between --------------------------------------------------------------------------------------

    @property
    def streaming(self) -> Message | None:
        """Return what there is of the answer that streams, None when none does."""
        if self._pieces is None:
            return None
        said = {kind: "".join(pieces) for kind, pieces in self._pieces.items()}
        return Message(ASSISTANT, said.get("text", ""), thinking=said.get("thinking", ""))

    def heard(self, delta: Delta) -> None:
        """The answer grew."""
        if self._pieces is None:
            self._begin_turn()
            self._pieces = {}
            self.bus.emit(MessageStart(Message(ASSISTANT)))
        self._pieces.setdefault(delta.kind, []).append(delta.text)
        if self.bus.heard and (message := self.streaming) is not None:
            self.bus.emit(MessageUpdate(message, delta))

    def stream_broke(self) -> None:
        """The answer that streamed, if one did, will never be complete."""
        broken, self._pieces = self.streaming, None
        if broken is not None:
            self.bus.emit(MessageEnd(replace(broken, stop="error")))

    def tool_started(self, call: str, tool: str, args: Mapping[str, Any]) -> None:
        """A call begins to run."""
        self.pending.add(call)
        self.bus.emit(ToolExecutionStart(call, tool, args))

    def tool_progress(self, call: str, fraction: float, note: str) -> None:
        """A call tells how far it is."""
        if call in self.pending:
            name = str(self._open[call].body.get("name", "")) if call in self._open else ""
            self.bus.emit(ToolExecutionUpdate(call, name, fraction, note))

    def tool_ended(self, call: str, tool: str, content: str, *, is_error: bool, details: Any = None) -> None:
        """A call is over."""
        self.pending.discard(call)
        self._told.add(call)
        self.bus.emit(ToolExecutionEnd(call, tool, content, is_error, details))
