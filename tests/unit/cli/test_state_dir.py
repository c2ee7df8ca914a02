"""What the state directory says, and who may keep it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from turnyard.cli import up
from turnyard.cli.state_dir import RoleFacts, StateDir, UpFacts
from turnyard.errors import ConfigError, Conflict
from turnyard.state import pids
from turnyard.state.pids import Mark


def facts_of(mark: Mark, *roles: RoleFacts) -> UpFacts:
    return UpFacts(mark, "ready", ("app:app",), "http://127.0.0.1:1", "unix://x", "valkey", durable=True, agents=("a",), roles=roles)


def me() -> Mark:
    mark = pids.mark_of(os.getpid())
    assert mark
    return mark


def test_a_second_keeper_is_refused_and_told_how_to_stop_the_first(tmp_path: Path):
    first, second = StateDir(tmp_path), StateDir(tmp_path)
    first.hold()
    first.write(facts_of(me()))
    with pytest.raises(Conflict, match=r"http://127\.0\.0\.1:1.*turnyard down"):
        second.hold()
    first.release()
    second.hold()
    second.release()


def test_what_is_written_is_read_back(tmp_path: Path):
    state = StateDir(tmp_path)
    written = facts_of(me(), RoleFacts("worker", Mark(1, "x"), 2))
    state.write(written)
    assert state.facts() == written
    assert state.url() == written.url
    state.clear()
    assert (state.facts(), state.url()) == (None, None)


@pytest.mark.parametrize("broken", ["", "{", "[]", '{"roles": []}'])
def test_a_broken_record_counts_as_none(tmp_path: Path, broken: str):
    (tmp_path / "up.json").write_text(broken)
    assert StateDir(tmp_path).facts() is None
    assert StateDir(tmp_path).alive() == []


def test_a_broken_address_counts_as_none(tmp_path: Path):
    (tmp_path / "url").write_bytes(b"\x8d\xff")
    assert StateDir(tmp_path).url() is None


def test_a_state_directory_that_cannot_be_made_says_what_to_do(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="TURNYARD_STATE"):
        StateDir(tmp_path / "file").hold()


def test_down_ends_the_recorded_processes_and_no_stranger_with_a_reused_pid(tmp_path: Path):
    role, stranger = (subprocess.Popen(["sleep", "60"]) for _ in range(2))
    mark = pids.mark_of(role.pid)
    assert mark
    state = StateDir(tmp_path)
    state.write(facts_of(Mark(stranger.pid, "another start"), RoleFacts("worker", mark, 1)))
    assert up._end(state, grace_s=5.0)
    assert role.wait() != 0
    assert stranger.poll() is None
    assert not up._end(state, grace_s=5.0)
    stranger.kill()
    stranger.wait()
