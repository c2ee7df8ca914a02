"""Where one message of the Redis protocol ends and the next begins, in either direction and in both versions of it.

Bytes are handed on as they came: nothing is decoded but the lengths, and the first words of a command.
"""

from __future__ import annotations

_BULK = b"$!="
_LISTS = b"*~>"
_PAIRS = b"%|"
_ATTRIBUTE = ord("|")
_PUSH = ord(">")
_HEAD_WORDS = 8  # up to the number of a commit


class Frames:
    """Cuts a byte stream into messages; what is incomplete waits for more."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        self._missing = 1

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes and return the messages that are whole by now."""
        self._buffer += data
        out: list[bytes] = []
        while self._step():
            if self._missing == 0:
                out.append(bytes(self._buffer[: self._at]))
                del self._buffer[: self._at]
                self._at, self._missing = 0, 1
        return out

    def _step(self) -> bool:
        """Pass one element; False when it is not there yet."""
        end = self._buffer.find(b"\r\n", self._at)
        if end < 0:
            return False
        kind, after = self._buffer[self._at], end + 2
        more = 0
        if kind in _BULK:
            size = int(self._buffer[self._at + 1 : end])
            after += size + 2 if size >= 0 else 0
            if after > len(self._buffer):
                return False
        elif kind in _LISTS:
            more = max(0, int(self._buffer[self._at + 1 : end]))
        elif kind in _PAIRS:
            # An attribute stands before the reply that it belongs to.
            more = 2 * int(self._buffer[self._at + 1 : end]) + (kind == _ATTRIBUTE)
        self._at = after
        self._missing += more - 1
        return True


def is_push(frame: bytes) -> bool:
    """Tell a message that answers nothing from a reply."""
    return frame[0] == _PUSH


def head_words(frame: bytes) -> tuple[bytes, ...]:
    """Return the first words of a command, at most eight."""
    if not frame.startswith(b"*"):
        return tuple(frame.split()[:_HEAD_WORDS])
    end = frame.find(b"\r\n")
    words: list[bytes] = []
    for _ in range(min(_HEAD_WORDS, int(frame[1:end]))):
        start = end + 2
        end = frame.find(b"\r\n", start)
        size = int(frame[start + 1 : end])
        words.append(frame[end + 2 : end + 2 + size])
        end += 2 + size
    return tuple(words)
