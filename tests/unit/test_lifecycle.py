"""How a process stops, what it says of its health, and what its log lines look like."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import signal
import socket

import httpx
import pytest

from tests.processes import free_port
from turnyard import errors, lifecycle, telemetry
from turnyard.lifecycle import Life, Progress, exit_code, serve


class HeldClock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_asks_for_a_drain_and_the_work_in_hand_is_finished(number: signal.Signals):
    done: list[str] = []

    async def main(life: Life) -> None:
        os.kill(os.getpid(), number)
        await life.drain.wait()
        done.append("in hand")

    assert await serve(main) == 0
    assert done == ["in hand"]


async def test_a_second_signal_changes_nothing():
    async def main(life: Life) -> int:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
            await life.drain.wait()
            await asyncio.sleep(0)
        return 5

    assert await serve(main) == 5


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("x"), 3),
        (errors.Unsupported("x"), 3),
        (errors.StoreUnavailable("x"), 4),
        (errors.UnknownAgent("x"), 6),
        (errors.InboxFull("x"), 7),
        (errors.SessionBusy("x"), 7),
        (errors.InvalidRequest("x"), 2),
        (errors.JobFailed("step_limit", "x"), 1),
        (errors.JobCancelled("user"), 9),
        (TimeoutError(), 8),
        (KeyboardInterrupt(), 130),
        (RuntimeError("x"), 1),
    ],
)
def test_each_error_has_its_exit_code(error: BaseException, code: int):
    assert exit_code(error) == code


async def test_an_error_of_ours_ends_the_process_with_its_code_and_one_line(caplog: pytest.LogCaptureFixture):
    async def main(_: Life) -> None:
        raise errors.StoreUnavailable("server redis://h does not answer")

    assert await serve(main) == 4
    assert [(r.getMessage(), r.exc_info) for r in caplog.records] == [("stopped: server redis://h does not answer", None)]


async def test_health_is_progress_and_ready_is_what_the_role_says():
    port, clock, answers = free_port(), HeldClock(), list[tuple[str, int]]()

    async def ask(http: httpx.AsyncClient, path: str) -> None:
        answers.append((path, (await http.get(path)).status_code))

    async def main(life: Life) -> None:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
            await ask(http, "/healthz")
            await ask(http, "/readyz")
            life.progress.tick("drain")
            life.ready = lambda: True
            await ask(http, "/readyz")
            clock.now_s += 21
            await ask(http, "/healthz")
            life.progress.tick("drain")
            await ask(http, "/healthz")
            life.drain.set()
            await ask(http, "/readyz")
            await ask(http, "/other")

    assert await serve(main, health_port=port, clock=clock) == 0
    assert answers == [
        ("/healthz", 200),
        ("/readyz", 503),
        ("/readyz", 200),
        ("/healthz", 503),
        ("/healthz", 200),
        ("/readyz", 503),
        ("/other", 404),
    ]


async def test_garbage_at_the_health_port_does_no_harm():
    port = free_port()

    async def main(life: Life) -> None:
        for garbage in (b"\r\n\r\n", b"\xff" * 10_000, b"GET\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(garbage)
            await reader.read()
            writer.close()
        async with httpx.AsyncClient(trust_env=False) as http:
            assert (await http.get(f"http://127.0.0.1:{port}/healthz")).status_code == 200

    assert await serve(main, health_port=port) == 0


async def test_a_health_port_in_use_says_what_to_change(caplog: pytest.LogCaptureFixture):
    async def main(_: Life) -> None:
        raise AssertionError("never reached")

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert await serve(main, health_port=taken.getsockname()[1]) == 3
    assert "--health-port" in caplog.text


def test_one_loop_that_stands_still_is_seen_beside_one_that_runs():
    clock = HeldClock()
    progress = Progress(clock)
    progress.tick("a")
    progress.tick("b")
    clock.now_s += 30
    progress.tick("b")
    assert list(progress.stale(20)) == ["a"]
    progress.forget("a")
    assert not progress.stale(20)


def test_a_coroutine_runs_on_the_fast_loop():
    async def name() -> str:
        return type(asyncio.get_running_loop()).__module__

    assert lifecycle.run(name()) == "uvloop"


def record(**extra: object) -> logging.LogRecord:
    return logging.getLogger("turnyard.x").makeRecord("turnyard.x", logging.WARNING, "f", 1, "child gone", (), None, extra=extra)


def test_a_json_line_has_the_known_fields_first_and_every_extra():
    line = json.loads(telemetry.JsonLines("worker").format(record(pid=7, session="s1", turn="t1")))
    assert list(line)[1:6] == ["level", "event", "role", "session", "turn"]
    assert (line["level"], line["event"], line["pid"], line["logger"]) == ("warning", "child gone", 7, "turnyard.x")


def test_a_text_line_is_one_line_for_people():
    assert telemetry.TextLines().format(record(pid=7)).endswith(" WARNING child gone pid=7")


def test_what_is_not_a_terminal_gets_json():
    root, kept = logging.getLogger(), logging.getLogger().handlers[:]
    level, stream = root.level, io.StringIO()
    try:
        telemetry.setup(stream=stream)
        logging.getLogger("turnyard.x").info("up", extra={"port": 1})
        assert json.loads(stream.getvalue())["port"] == 1
    finally:
        root.handlers[:] = kept
        root.setLevel(level)


def test_what_the_sdk_of_mcp_shows_of_servers_is_not_written_down():
    root, kept = logging.getLogger(), logging.getLogger().handlers[:]
    level, stream = root.level, io.StringIO()
    try:
        telemetry.setup(stream=stream)
        logging.getLogger("mcp.client.stdio").error("Failed to parse: sk-hidden")
        logging.getLogger("turnyard.tools").warning("a provider lists no tools")
        logging.getLogger("client").warning("an app's own logger of that name")
        events = [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
        assert events == ["a provider lists no tools", "an app's own logger of that name"]
    finally:
        root.handlers[:] = kept
        root.setLevel(level)
