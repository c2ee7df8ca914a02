"""An app whose tools leave a trace and wait for a file, for tests that kill processes at a chosen moment."""

from __future__ import annotations

from pathlib import Path

APP = '''
import asyncio, os, time
from pathlib import Path
from turnyard import App, Limits, Park, ToolContext, tool

HERE = Path(__file__).parent

def note(what):
    with (HERE / "trace").open("a") as file:
        file.write(f"{what} {os.getpid()}\\n")

async def gate(name):
    while not (HERE / name).exists():
        await asyncio.sleep(0.01)

@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    note("add")
    return a + b

@tool(idempotent=True)
async def again(name: str) -> str:
    """Wait for a gate; may run again."""
    note("again")
    await gate(name)
    return f"{name} is open"

@tool
async def once(name: str) -> str:
    """Wait for a gate; must not run again."""
    note("once")
    await gate(name)
    return f"{name} is open"

@tool(idempotent=True)
async def nap(seconds: float) -> str:
    """Take some time; may run again."""
    note("nap")
    await asyncio.sleep(seconds)
    return "rested"

@tool(idempotent=True)
async def kill(n: int) -> str:
    """End the process."""
    note("kill")
    os.kill(os.getpid(), 9)
    return ""

@tool(idempotent=True)
async def killhost(n: int) -> str:
    """End the process, its siblings and its supervisor, as a host does that goes down."""
    note("killhost")
    family = [int(pid) for pid in Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read_text().split()]
    for pid in [os.getppid(), *(pid for pid in family if pid != os.getpid()), os.getpid()]:
        os.kill(pid, 9)
    return ""

@tool
def sleepy(seconds: float) -> str:
    """A plain function that sleeps in its thread."""
    note("sleepy")
    time.sleep(seconds)
    return "woke up"

@tool(timeout=0.05)
async def late(n: int) -> str:
    """Take longer than it may, and say when it is gone."""
    note(f"late+{n}")
    try:
        await asyncio.sleep(600)
    finally:
        note(f"late-{n}")

@tool(timeout=0.05)
def stuck(n: int) -> str:
    """Take longer than it may in a thread that nothing can stop."""
    note("stuck")
    time.sleep(600)

@tool(park=600)
async def order(ctx, name: str) -> str:
    """Order something from a vendor, who answers later."""
    note("order")
    (HERE / "url").write_text(ctx.outcome_url)
    await gate(name)
    return Park("ordered")

@tool
async def block(seconds: float) -> str:
    """Block the whole process."""
    note("block")
    time.sleep(seconds)
    return "woke up"

@tool
async def loud(n: int) -> str:
    """Fail in a way nobody expects."""
    raise RuntimeError("secret detail")

@tool(lift=True, idempotent=True)
async def render(ctx: ToolContext, name: str) -> str:
    """Lifted: say so and wait for a gate; may run again."""
    await ctx.send(f"rendering {name}")
    note("render")
    await gate(name)
    return f"rendered {name}"

@tool(lift=True)
async def burn(name: str) -> str:
    """Lifted: wait for a gate; must not run again."""
    note("burn")
    await gate(name)
    return f"burnt {name}"

app = App()
app.agent("hello", model="scripted:hello.yaml", instructions="Be brief.", tools=[
    add, order, kill, killhost, nap, sleepy, again, once, block, loud, render, burn, late, stuck])
'''

SCRIPT = """
replies:
  - {when: "^add (?P<a>\\\\d+) (?P<b>\\\\d+)$", calls: [{name: add, args: {a: "{a}", b: "{b}"}}]}
  - {when: "^add (?P<a>\\\\d+) (?P<b>\\\\d+)$", text: "it is {result}"}
  - {when: "^again (?P<g>\\\\w+)$", calls: [{name: again, args: {name: "{g}"}}]}
  - {when: "^again (?P<g>\\\\w+)$", text: "then: {result}"}
  - {when: "^once (?P<g>\\\\w+)$", calls: [{name: once, args: {name: "{g}"}}]}
  - {when: "^once (?P<g>\\\\w+)$", text: "then: {result}"}
  - {when: "^render (?P<g>\\\\w+)$", calls: [{name: render, args: {name: "{g}"}}]}
  - {when: "^render (?P<g>\\\\w+)$", text: "it renders"}
  - {when: "^burn (?P<g>\\\\w+)$", calls: [{name: burn, args: {name: "{g}"}}]}
  - {when: "^burn (?P<g>\\\\w+)$", text: "it burns"}
  - {when: "^block (?P<s>[0-9.]+)$", calls: [{name: block, args: {seconds: "{s}"}}]}
  - {when: "^block (?P<s>[0-9.]+)$", text: "then: {result}"}
  - {when: "^order (?P<g>\\\\w+)$", calls: [{name: order, args: {name: "{g}"}}]}
  - {when: "^order (?P<g>\\\\w+)$", text: "it is ordered"}
  - {when: "^batch (?P<g>\\\\w+)$", calls: [{name: once, args: {name: "{g}"}}, {name: add, args: {a: 1, b: 1}}, {name: order, args: {name: "{g}"}}]}
  - {when: "^batch (?P<g>\\\\w+)$", text: "all done"}
  - {when: "^two (?P<g>\\\\w+)$", calls: [{name: add, args: {a: 1, b: 1}}, {name: again, args: {name: "{g}"}}]}
  - {when: "^two (?P<g>\\\\w+)$", text: "then: {result}"}
  - {when: "^naps (?P<s>[0-9.]+)$", calls: [{name: sleepy, args: {seconds: "{s}"}}, {name: sleepy, args: {seconds: "{s}"}}, {name: sleepy, args: {seconds: "{s}"}}, {name: sleepy, args: {seconds: "{s}"}}]}
  - {when: "^naps (?P<s>[0-9.]+)$", text: "well rested"}
  - {when: "^late$", calls: [{name: late, args: {n: 1}}, {name: late, args: {n: 2}}, {name: late, args: {n: 3}}]}
  - {when: "^late$", text: "they were late"}
  - {when: "^stuck$", calls: [{name: stuck, args: {n: 1}}, {name: stuck, args: {n: 2}}, {name: stuck, args: {n: 3}}, {name: stuck, args: {n: 4}}]}
  - {when: "^stuck$", text: "they were stuck"}
  - {when: "^killhost$", calls: [{name: killhost, args: {n: 1}}]}
  - {when: "^nap (?P<s>[0-9.]+)$", calls: [{name: nap, args: {seconds: "{s}"}}]}
  - {when: "^nap (?P<s>[0-9.]+)$", text: "then: {result}"}
  - {when: "^kill$", calls: [{name: kill, args: {n: 1}}]}
  - {when: "^sleepy (?P<s>[0-9.]+)$", calls: [{name: sleepy, args: {seconds: "{s}"}}]}
  - {when: "^sleepy (?P<s>[0-9.]+)$", text: "then: {result}"}
  - {when: "^loud$", calls: [{name: loud, args: {n: 1}}]}
  - {when: "^loud$", text: "then: {result}"}
  - {when: "^slowly$", text: "one two three four five six seven eight nine ten", chunks: 10, delay: 0.1}
  - {when: "^fails$", error: "500"}
  - {when: "^hi$", text: "hello"}
  - {text: "noted: {result}"}
loop: true
"""


class SampleApp:
    """The app in a directory of its own. `more` is Python that comes before it, `options` further arguments of its agent."""

    def __init__(self, directory: Path, *, more: str = "", options: str = "") -> None:
        directory.mkdir(exist_ok=True)
        if "limits=" not in options:
            options += "limits=Limits(retry_base=0.1), "
        self.path = directory / "sample.py"
        self._directory = directory
        self.path.write_text(more + APP.replace('app.agent("hello", ', f'app.agent("hello", {options}'))
        (directory / "hello.yaml").write_text(SCRIPT)

    def open(self, gate: str) -> None:
        """Let what waits for this gate go on, now and later."""
        (self._directory / gate).touch()

    def trace(self) -> list[tuple[str, int]]:
        """Return what ran and in which process, in order."""
        try:
            lines = (self._directory / "trace").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [(what, int(pid)) for what, pid in (line.split() for line in lines)]

    def token(self) -> str:
        """Return the token that a parked tool gave to its vendor, empty before it did."""
        url = self._directory / "url"
        return url.read_text().rpartition("/")[2] if url.exists() else ""

    def ran(self, what: str) -> list[int]:
        """Return in which processes one tool ran, in order."""
        return [pid for name, pid in self.trace() if name == what]
