"""A stand-in server for machines that have none: `python -m turnyard.state.fake_server LOG_FILE`.

It detaches, prints "<pid> <port>" and serves fakeredis on loopback until SIGTERM. Nothing it holds survives it.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

INFO = "redis_version:7.4.0\r\nserver_name:fake\r\nused_memory_human:0B\r\nconnected_clients:0\r\nmaxmemory_policy:noeviction\r\n"


def main() -> int:
    """Bind a free port, move into the background, serve."""
    from fakeredis import TcpFakeServer

    _teach_info()
    server = TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    server.daemon_threads = True
    child = os.fork()
    if child:
        sys.stdout.write(f"{child} {server.server_address[1]}\n")
        return 0
    os.setsid()
    log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    # There is nothing to save, and connection threads may be waiting in a blocking read: leave at once.
    signal.signal(signal.SIGTERM, _leave)
    server.serve_forever(poll_interval=0.2)
    return 0


def _teach_info() -> None:
    """Let the fake answer INFO, which it does not know and which workers of lifted calls ask at their start."""
    from fakeredis._commands import command  # pyright: ignore[reportUnknownVariableType]
    from fakeredis._socket import FakeSocket

    def info(_socket: object, *_sections: bytes) -> bytes:
        return INFO.encode()

    FakeSocket.info = command((), (bytes,))(info)  # pyright: ignore[reportAttributeAccessIssue]


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
