"""What the proxy sees of the protocol: who begins and commits what, and how each script answers.

It is asked about every command in the proxy's thread, writes down what the oracles need and counts what should happen
sometimes. It decides nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import hiredis

from tests.faults.proxy import Command, Fault, Hook

_READ = frozenset({"begin", "commit", "accept", "tick", "begin_row"})
_CODES = {"FENCED": "FENCED", "ALREADY": "ALREADY", "DIVERGED": "DIVERGED", "duplicate": "DUPLICATE"}


class Observer:
    """Reads replies, then lets `then` have its say. `sessions` maps key parts to names."""

    def __init__(self, note: Callable[..., None], sessions: Mapping[str, str], then: Hook) -> None:
        self.counts: Counter[str] = Counter()
        self._note = note
        self._sessions = sessions
        self._then = then
        self._turns: dict[str, str] = {}
        self._asked: dict[tuple[int, int], float] = {}

    def __call__(self, command: Command, reply: bytes | None) -> Fault | None:
        """See a command or its reply."""
        if command.what == "commit" and reply is None:
            self._asked[command.link, command.nth] = time.monotonic()
        if reply is not None and command.what in _READ:
            self._read(command, reply)
        return self._then(command, reply)

    def _read(self, command: Command, reply: bytes) -> None:
        reader = hiredis.Reader()
        reader.feed(reply)
        found: Any = reader.gets()
        if not isinstance(found, list):
            return
        if command.what == "tick":
            self.counts["begin_by_missed"] += int(found[1])
            return
        code = found[0].decode()
        asked_s = self._asked.pop((command.link, command.nth), 0.0)
        self.counts[_CODES.get(code, "")] += 1
        if code not in ("OK", "ALREADY"):
            return
        if command.what == "begin":
            self._began(command, found[1])
        elif command.what == "commit":
            self._committed(command, found[1], asked_s, repeat=code == "ALREADY")

    def _began(self, command: Command, head: list[Any]) -> None:
        session, owner, turn = self._name(command), command.words[6].decode(), head[2].decode()
        self._note("began", session=session, epoch=int(command.words[5]), owner=owner, of=command.pid)
        if turn and self._turns.setdefault(turn, owner) != owner:
            self.counts["resumed_elsewhere"] += 1
            self._turns[turn] = owner

    def _committed(self, command: Command, head: list[Any], asked_s: float, *, repeat: bool) -> None:
        fields = {"epoch": int(command.words[5]), "owner": command.words[6].decode(), "rev": int(command.words[7])}
        self._note("committed", session=self._name(command), asked_s=asked_s, repeat=repeat, **fields)
        self.counts["yielded"] += head[7] == b"yield"

    def _name(self, command: Command) -> str:
        sid = command.words[4].decode()
        return self._sessions.get(sid, sid)
