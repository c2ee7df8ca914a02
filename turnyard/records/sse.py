"""How events travel as text/event-stream: one parser and one writer for every side.

The parser is pure and incremental: text may be cut anywhere, also inside a line end. It follows the HTML standard:
CR, LF and CRLF end a line, an event ends at an empty line, comments are skipped, an id stays until the next one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_EVENT_CHARS = 8_000_000
_LINE_END = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `id` is the last id seen so far, "" when none; `retry_ms` is set when the event carried one."""

    event: str
    data: str
    id: str = ""
    retry_ms: int | None = None


class SSEParser:
    """Turns pieces of text into events; keep one per stream."""

    def __init__(self, *, last_id: str = "", max_event_chars: int = MAX_EVENT_CHARS) -> None:
        self._max = max_event_chars
        self._rest: list[str] = []
        self._rest_chars = 0
        self._started = False
        self._skip_lf = False
        self._name = ""
        self._data: list[str] = []
        self._data_chars = 0
        self._retry_ms: int | None = None
        self.last_id = last_id

    def feed(self, text: str) -> list[Event]:
        """Return the events that `text` completes.

        Raises:
            ValueError: one event is longer than the parser may hold; the stream cannot be read on.
        """
        if not self._started and text:
            text = text.removeprefix("\ufeff")
            self._started = True
        events: list[Event] = []
        for line in self._lines(text):
            event = self._take(line)
            if event is not None:
                events.append(event)
        return events

    def _lines(self, text: str) -> list[str]:
        if self._skip_lf and text:
            # The LF of a CRLF that was cut in two: its line has ended already.
            text = text.removeprefix("\n")
            self._skip_lf = False
        if "\n" not in text and "\r" not in text:
            self._hold(text)
            return []
        self._skip_lf = text.endswith("\r")
        lines = _LINE_END.split("".join((*self._rest, text)))
        self._rest, self._rest_chars = [], 0
        self._hold(lines.pop())
        return lines

    def _hold(self, text: str) -> None:
        if not text:
            return
        self._rest.append(text)
        self._rest_chars += len(text)
        self._check(self._rest_chars)

    def _check(self, chars: int) -> None:
        if chars > self._max:
            raise ValueError(f"an event of the stream is longer than {self._max} characters")

    def _take(self, line: str) -> Event | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
            self._data_chars += len(value)
            self._check(self._data_chars)
        elif name == "event":
            self._name = value
        elif name == "id" and "\0" not in value:
            self.last_id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self._retry_ms = int(value)
        return None

    def _dispatch(self) -> Event | None:
        name, data, retry_ms = self._name or "message", self._data, self._retry_ms
        self._name, self._data, self._data_chars, self._retry_ms = "", [], 0, None
        if not data:
            return None
        return Event(name, "\n".join(data), self.last_id, retry_ms)


def format_event(event: str, data: str, *, id: str | None = None, retry_ms: int | None = None) -> str:  # noqa: A002 - the field's own name
    """Return one event as it goes over the wire. `data` may have several lines; `event` and `id` may not."""
    lines = [f"event: {event}"]
    if id is not None:
        lines.append(f"id: {id}")
    if retry_ms is not None:
        lines.append(f"retry: {retry_ms}")
    lines.extend(f"data: {line}" for line in _LINE_END.split(data))
    return "\n".join(lines) + "\n\n"
