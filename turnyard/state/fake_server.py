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


def main() -> int:
    """Bind a free port, move into the background, serve."""
    from fakeredis import TcpFakeServer

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


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
