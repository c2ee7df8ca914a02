"""Every command that a server is sent, told apart from those its scripts run.

MONITOR slows a server down, so what it tells is what was sent, never how fast.
"""

from __future__ import annotations

import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from benches.stack import Stack

_LINE = re.compile(rb'\+[\d.]+ \[\d+ (?P<who>[^\]]*)\] "(?P<command>[^"]*)"(?: "(?P<first>[^"]*)")?(?: "(?P<second>[^"]*)")?')
_FUNCTION = re.compile(r"ty_[0-9a-f]+_(\w+?)(_plain)?$")


class Watched:
    """What was sent so far, by command; script calls by the name of their script."""

    def __init__(self) -> None:
        self.raw = bytearray()

    def sent(self) -> Counter[str]:
        """Count the commands of clients."""
        return Counter(_name(match) for match in _LINE.finditer(self.raw) if match["who"] != b"lua")

    def most_inner(self) -> dict[str, int]:
        """Return the most commands that one call of each script ran."""
        most: Counter[str] = Counter()
        name, inner = "", 0
        for match in _LINE.finditer(self.raw):
            if match["who"] == b"lua":
                inner += 1
                most[name] = max(most[name], inner)
            else:
                name, inner = _name(match), 0
        return dict(most.most_common())


@contextmanager
def watching(stack: Stack) -> Iterator[Watched]:
    """Watch a server for the length of the block."""
    watched = Watched()
    with socket.socket(socket.AF_UNIX) as wire:
        wire.connect(urlsplit(stack.url).path)
        wire.sendall(b"MONITOR\r\n")
        wire.recv(5)  # +OK
        reader = threading.Thread(target=_read, args=(wire, watched), daemon=True)
        reader.start()
        yield watched
        stack.redis.echo("that was all")  # whatever was sent before this has been told when it has
        while b"that was all" not in watched.raw[-65536:]:
            reader.join(0.01)
        wire.shutdown(socket.SHUT_RDWR)
        reader.join()


def _read(wire: socket.socket, watched: Watched) -> None:
    while chunk := wire.recv(1 << 20):
        watched.raw += chunk


def _name(match: re.Match[bytes]) -> str:
    """Return a script's name for its call; two looks that others than a turn's steps take are told apart."""
    command, first = match["command"].decode().upper(), (match["first"] or b"").decode("utf-8", "replace")
    function = _FUNCTION.match(first)
    if command == "FCALL" and function:
        return function[1]
    if command == "HGET" and (":j:job_" in first or match["second"] == b"fu"):
        return "HGET job" if ":j:job_" in first else "HGET fu"
    return command
