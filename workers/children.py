"""One child process as its supervisor sees it.

The child leads a process group of its own, so that whatever its tools started dies with it. It is told who it is
(its owner id) before it registers: a child that dies at any moment can be ticked out by that name.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from typing import Any

from turnyard.records.ids import new_owner_id

from .board import Board, Line
from .link import Link
from .options import Options


class Child:
    """A running child: its process, the link to it, its line on the board, its owner id."""

    def __init__(self, process: asyncio.subprocess.Process, link: Link, line: Line, options: Options, *, slot: int, born_s: float) -> None:
        self.process = process
        self.link = link
        self.line = line
        self.slot = slot
        self.isolation = options.isolation
        self.capacity = options.turns if options.role == "worker" else None
        self.born_s = born_s
        self.owner = new_owner_id()
        self.enrolled = False
        self.ready = False
        self.left = False
        self.beats = 0
        self.held: dict[str, list[str]] = {}

    @classmethod
    async def spawn(cls, options: Options, board: Board, *, slot: int, now_s: float) -> Child:
        """Start a child on a cleared line and tell it what it is to run."""
        line = board.line(slot)
        line.clear()
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                f"{__package__}.child",
                str(theirs.fileno()),
                str(board.fd),
                str(slot),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), board.fd),
                start_new_session=True,
            )
        child = cls(process, await Link.over(ours), line, options, slot=slot, born_s=now_s)
        child.link.send(options=options.to_json(), owner=child.owner)
        return child

    def rename(self) -> None:
        """Make it a new incarnation: the old id was expelled and comes back never."""
        self.owner = new_owner_id()
        self.enrolled = False
        self.held = {}
        self.link.send(owner=self.owner)

    def hear(self, message: dict[str, Any]) -> None:
        """Take in what the child said of itself."""
        if message.get("enrolled") == self.owner:
            self.enrolled = self.ready = True
        if "held" in message:
            self.held = message["held"]
        if message.get("left"):
            self.left, self.enrolled = True, False

    def terminate(self) -> None:
        """Ask it to hand its turns back and end. Only the child is asked: its tools may finish."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()

    def kill(self) -> None:
        """End it and everything it started, now."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
