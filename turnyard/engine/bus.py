"""What happens in a running session, as events, and who is told.

Listeners are told one after the other, in the order they subscribed, before the session goes on. One that raises is
logged and takes nothing from the others. The order of events of a run is that of `Event`'s members below: a run holds
turns, a turn one answer and what its calls brought; the end of the run is told once, last, however the run ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from turnyard.engine.compaction import Compaction
from turnyard.engine.messages import Message
from turnyard.ports import Delta

_log = logging.getLogger("turnyard.engine")


@dataclass(frozen=True, slots=True)
class AgentStart:
    """A run begins."""

    type: Literal["agent_start"] = field(default="agent_start", init=False)


@dataclass(frozen=True, slots=True)
class TurnStart:
    """A turn of the run begins: what is new, an answer, and the results of its calls."""

    type: Literal["turn_start"] = field(default="turn_start", init=False)


@dataclass(frozen=True, slots=True)
class MessageStart:
    """A message begins; an answer that streams is empty so far."""

    message: Message
    type: Literal["message_start"] = field(default="message_start", init=False)


@dataclass(frozen=True, slots=True)
class MessageUpdate:
    """An answer grew by `delta`; `message` is what there is of it."""

    message: Message
    delta: Delta
    type: Literal["message_update"] = field(default="message_update", init=False)


@dataclass(frozen=True, slots=True)
class MessageEnd:
    """A message is complete and stands in the transcript, unless its `stop` is error."""

    message: Message
    type: Literal["message_end"] = field(default="message_end", init=False)


@dataclass(frozen=True, slots=True)
class ToolExecutionStart:
    """A call begins to run."""

    call: str
    tool: str
    args: Mapping[str, Any]
    type: Literal["tool_execution_start"] = field(default="tool_execution_start", init=False)


@dataclass(frozen=True, slots=True)
class ToolExecutionUpdate:
    """A call tells how far it is: `fraction` from 0 to 1."""

    call: str
    tool: str
    fraction: float
    note: str
    type: Literal["tool_execution_update"] = field(default="tool_execution_update", init=False)


@dataclass(frozen=True, slots=True)
class ToolExecutionEnd:
    """A call is over, or waits outside; `content` is what the model will read, `details` what its tool told besides that."""

    call: str
    tool: str
    content: str
    is_error: bool
    details: Any = None
    type: Literal["tool_execution_end"] = field(default="tool_execution_end", init=False)


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """A turn of the run is over. `message` is its answer, None when there was none; `results` are those of its calls."""

    message: Message | None
    results: tuple[Message, ...]
    type: Literal["turn_end"] = field(default="turn_end", init=False)


@dataclass(frozen=True, slots=True)
class AgentEnd:
    """The run is over. `messages` are all that it added to the transcript."""

    messages: tuple[Message, ...]
    type: Literal["agent_end"] = field(default="agent_end", init=False)


@dataclass(frozen=True, slots=True)
class Compacted:
    """A summary took the place of the older messages."""

    compaction: Compaction
    type: Literal["compacted"] = field(default="compacted", init=False)


Event = (
    AgentStart
    | TurnStart
    | MessageStart
    | MessageUpdate
    | MessageEnd
    | ToolExecutionStart
    | ToolExecutionUpdate
    | ToolExecutionEnd
    | TurnEnd
    | AgentEnd
    | Compacted
)
Listener = Callable[[Event], None]


class EventBus:
    """Tells events to listeners."""

    def __init__(self) -> None:
        # never changed in place: whoever is being told of an event goes on with the list of that moment
        self._listeners: tuple[tuple[object, Listener], ...] = ()

    @property
    def heard(self) -> bool:
        """Tell whether anybody listens."""
        return bool(self._listeners)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Tell `listener` of every event from now on; return what ends that. To end it twice does nothing more."""
        token = object()
        self._listeners = (*self._listeners, (token, listener))

        def unsubscribe() -> None:
            self._listeners = tuple(one for one in self._listeners if one[0] is not token)

        return unsubscribe

    def emit(self, event: Event) -> None:
        """Tell everybody who listens at this moment."""
        for _, listener in self._listeners:
            try:
                listener(event)
            except Exception:  # noqa: BLE001 - a stranger's code: whatever it does, the session and the others go on
                _log.exception("a listener failed on %s", event.type)
