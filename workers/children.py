"""One child process as its supervisor sees it.

Each starts as a spare, which loads the apps and waits to hear who it is; so one may be kept ready beforehand.
The child leads a session of its own and has a mark, so that whatever its tools started dies with it. It is told who it is
(its owner id) before it registers: a child that dies at any moment can be ticked out by that name.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import sys
from typing import Any

from turnyard.records.ids import new_owner_id

from .board import Board, Line
from .link import Link
from .options import Options
from .remains import MARK, end_family


class Spare:
    """A process that loads the apps and then waits to be made a child."""

    def __init__(self, process: asyncio.subprocess.Process, link: Link, mark: str) -> None:
        self.process = process
        self.link = link
        self.mark = mark

    @classmethod
    async def start(cls, options: Options, board: Board) -> Spare:
        """Start one for these apps."""
        ours, theirs = socket.socketpair()
        mark = secrets.token_hex(8)
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                f"{__package__}.child",
                str(theirs.fileno()),
                str(board.fd),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), board.fd),
                env={**os.environ, MARK: mark},
                start_new_session=True,
            )
        spare = cls(process, await Link.over(ours), mark)
        spare.link.send(options=options.to_json())
        return spare

    @property
    def alive(self) -> bool:
        """Tell whether it still waits to be needed."""
        return self.process.returncode is None and not self.link.hung_up

    def become(self, options: Options, board: Board, *, slot: int, now_s: float) -> Child:
        """Give it a cleared line, a name and what it is to do."""
        line = board.line(slot)
        line.clear()
        child = Child(self, line, options, slot=slot, born_s=now_s)
        self.link.send(options=options.to_json(), slot=slot, owner=child.owner)
        return child

    def kill(self) -> None:
        """End it; nobody needs it."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()


class Child:
    """A running child: its process, the link to it, its line on the board, its owner id."""

    def __init__(self, made_of: Spare, line: Line, options: Options, *, slot: int, born_s: float) -> None:
        self.process = made_of.process
        self.link = made_of.link
        self.mark = made_of.mark
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
        end_family(self.mark, leader=self.process.pid)
