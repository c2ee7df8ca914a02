"""The keeper of a one-machine yard: what it does when roles are ready, die, fail to start or will not end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from turnyard.cli import keeper as keeper_module
from turnyard.cli.keeper import Keeper
from turnyard.cli.plan import Plan
from turnyard.cli.state_dir import StateDir, UpFacts
from turnyard.clock import SystemClock
from turnyard.errors import ConfigError, StoreUnavailable, TurnyardError
from turnyard.state import pids
from turnyard.testing.waiting import wait_until

SERVE = """
import signal, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        body = b'{"data": [{"name": "hello"}]}'
        self.send_response(200); self.send_header("content-length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def log_message(self, *a): pass
def leave(*_):
    print("drained", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
HTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""
STUBBORN = SERVE.replace("sys.exit(0)", "pass")


@dataclass(frozen=True)
class Script:
    """A role that is a few lines of Python; it is given its health port."""

    name: str
    code: str = SERVE
    reloads: bool = False
    port: int | None = None

    def command(self, health_port: int) -> list[str]:
        return [sys.executable, "-c", self.code, str(self.port or health_port)]


class Kept:
    """A keeper that runs, and what is known of it."""

    def __init__(self, root: Path, *roles: Script, agents: tuple[str, ...] = (), clock: SystemClock | None = None) -> None:
        self.state = StateDir(root / "state")
        self.state.hold()
        plan = Plan(("app:app",), agents, "127.0.0.1", 1, roles)  # type: ignore[arg-type]
        me = pids.mark_of(os.getpid())
        assert me
        facts = UpFacts(me, "starting", plan.apps, "http://127.0.0.1:1", "unix://x", "valkey", durable=True)
        self.ready: asyncio.Future[UpFacts] = asyncio.get_running_loop().create_future()
        self.drain = asyncio.Event()
        self.keeper = Keeper(plan, self.state, facts, environ=os.environ, clock=clock or SystemClock(), on_ready=self.ready.set_result)
        self.running = asyncio.create_task(self.keeper.run(self.drain))

    def pid(self, name: str) -> int:
        facts = self.state.facts()
        assert facts
        return next((role.mark.pid for role in facts.roles if role.name == name), 0)

    async def end(self) -> None:
        self.drain.set()
        await self.running
        self.state.release()


async def test_the_yard_is_ready_when_every_role_is_and_the_record_names_them(tmp_path: Path):
    kept = Kept(tmp_path, Script("a"), Script("b"))
    facts = await kept.ready
    assert (facts.phase, sorted(role.name for role in facts.roles)) == ("ready", ["a", "b"])
    assert {name for name, _ in kept.state.alive()} == {"keeper", "a", "b"}
    await kept.end()
    assert {name for name, _ in kept.state.alive()} == {"keeper"}


async def test_a_role_that_is_killed_is_started_again(tmp_path: Path):
    kept = Kept(tmp_path, Script("a"))
    await kept.ready
    first = kept.pid("a")
    os.kill(first, signal.SIGKILL)
    await wait_until(lambda: kept.pid("a") not in (0, first), description="the change of processes")
    await kept.end()


class Impatient(SystemClock):
    """Notes how long it was asked to sleep, and sleeps a moment."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        await super().sleep(min(seconds, 0.01))


@pytest.mark.parametrize("steady", [True, False])
async def test_only_a_role_that_keeps_ending_soon_is_started_ever_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steady: bool):
    monkeypatch.setattr(keeper_module, "STEADY_S", 0.0 if steady else 1e9)
    clock = Impatient()
    kept = Kept(tmp_path, Script("a"), clock=clock)
    await kept.ready
    for _ in range(4):
        last = kept.pid("a")
        os.kill(last, signal.SIGKILL)
        await wait_until(lambda: kept.pid("a") not in (0, last), description="the change of processes")  # noqa: B023 - waited for here
    assert (max(clock.asked) <= 0.2) is steady
    await kept.end()


async def test_a_drain_lets_every_role_finish(tmp_path: Path):
    kept = Kept(tmp_path, Script("a"), Script("b"))
    await kept.ready
    await kept.end()
    assert [kept.state.log(name).read_text() for name in ("a", "b")] == ["drained\n"] * 2


async def test_a_role_that_outlives_the_grace_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(keeper_module, "GRACE_S", 0.3)
    kept = Kept(tmp_path, Script("a", STUBBORN))
    await kept.ready
    pid = kept.pid("a")
    await kept.end()
    assert pids.mark_of(pid) is None


@pytest.mark.parametrize(("code", "kind"), [(3, ConfigError), (4, StoreUnavailable), (1, TurnyardError)])
async def test_a_role_that_ends_before_all_are_ready_ends_the_start_with_its_own_words(
    tmp_path: Path, code: int, kind: type[TurnyardError]
):
    kept = Kept(tmp_path, Script("good"), Script("bad", f"import sys; print('no such agent'); sys.exit({code})"))
    with pytest.raises(kind, match=r"(?s)bad did not start.*no such agent") as caught:
        await kept.running
    assert type(caught.value) is kind
    assert {name for name, _ in kept.state.alive()} == {"keeper"}


async def test_a_yard_whose_agent_is_never_published_does_not_count_as_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(keeper_module, "READY_WITHIN_S", 1.0)
    kept = Kept(tmp_path, Script("a"), agents=("hello",))
    with pytest.raises(TurnyardError, match="agent hello"):
        await kept.running


async def test_a_reload_replaces_only_what_runs_user_code_and_lets_it_finish(tmp_path: Path):
    kept = Kept(tmp_path, Script("core"), Script("code", reloads=True))
    await kept.ready
    core, code = kept.pid("core"), kept.pid("code")
    await kept.keeper.reload()
    await wait_until(lambda: pids.mark_of(code) is None and kept.pid("code") != code, description="the change of processes")
    assert kept.pid("core") == core
    assert pids.mark_of(kept.pid("code")) is not None
    assert "drained" in kept.state.log("code").read_text()
    await kept.end()


async def test_a_reload_of_broken_code_leaves_the_old_one_working(tmp_path: Path):
    broken = tmp_path / "broken"
    code = f"import os, sys\nif os.path.exists({str(broken)!r}): sys.exit(3)\n{SERVE}"
    kept = Kept(tmp_path, Script("code", code, reloads=True))
    await kept.ready
    before = kept.pid("code")
    await asyncio.to_thread(broken.write_text, "")
    await kept.keeper.reload()
    assert pids.mark_of(before) is not None
    await kept.end()


@pytest.mark.parametrize(
    ("listing", "names"),
    [
        (b'{"object": "list", "data": [{"name": "a"}], "next": null}', {"a"}),
        (b'{"object": "problem"}', set[str]()),
        (b"<html>", set[str]()),
        (None, set[str]()),
    ],
)
def test_agents_are_read_from_what_the_api_lists(listing: bytes | None, names: set[str]):
    assert keeper_module.names_in(listing) == names


def test_types_of_scripts_match_what_the_keeper_uses() -> None:
    script: Any = Script("a")
    assert script.command(1)[-1] == "1"
