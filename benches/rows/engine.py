"""What does the engine itself cost: building a request, making a step at the end of a long log, being imported?

No server and no network: the engine on a session in memory, in this process, by its processor time. What is compared is measured
by turns, in pairs, and the medians of the pairs are told, so that a busy machine moves both sides.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benches.options import Options
from benches.results import Result, Unmeasured, median, tidy
from turnyard.clock import SystemClock
from turnyard.engine.effects import RunTool, ToolFact, ToolResult, ToolTable
from turnyard.engine.frame import Built
from turnyard.engine.memory import MemorySession
from turnyard.engine.runner import Means, Model, Performer
from turnyard.engine.shaper import Shaper
from turnyard.engine.store import MemoryStore
from turnyard.engine.turn import commit_after, next_effect
from turnyard.ports import AskedCall, Done, ModelRequest
from turnyard.records.commit import TurnView
from turnyard.records.log import ASSISTANT, CALL, COMPACTION, RESULT, USER, LogRecord

NAMES = ("engine_build_growth", "engine_build_again", "engine_step_growth", "engine_import")
SIZES = (10, 1_000, 10_000)
# What one exchange is in a log: a message, an answer with a call, its result, an answer in words.
EXCHANGE = 5
SHORT_LOG, LONG_LOG = 10, 10_000
VISIBLE = 10


def measure(options: Options, wanted: AbstractSet[str]) -> list[Result]:
    """Measure the wanted rows."""
    rows: dict[str, Callable[[Options], Result]] = {
        "engine_build_growth": _build_growth,
        "engine_build_again": _build_again,
        "engine_step_growth": _step_growth,
        "engine_import": _import,
    }
    gc.collect()
    gc.disable()
    try:
        return [row(options) for name, row in rows.items() if name in wanted]
    finally:
        gc.enable()


# -- a request --------------------------------------------------------------------------------------------------------


def entries(count: int) -> tuple[LogRecord, ...]:
    """Return a log of exchanges, each with a call and its result of a few hundred characters."""
    return tuple(_entry(seq) for seq in range(1, count + 1))


def _entry(seq: int) -> LogRecord:
    at, turn = seq % EXCHANGE, f"turn_{seq // EXCHANGE}"
    call = f"call_{seq - (at - 3 if at else 2)}"
    if at == 1:
        return LogRecord(seq, USER, turn=turn, body={"text": f"question {seq}: what is in file {seq}?"})
    if at == 3:
        return LogRecord(seq, CALL, turn=turn, call=call, kind="plain", body={"name": "read", "args": {"path": f"file{seq}.txt"}})
    if at == 4:
        return LogRecord(seq, RESULT, turn=turn, call=call, kind="plain", outcome="result", body={"content": f"line of file {seq}\n" * 20})
    return LogRecord(seq, ASSISTANT, turn=turn, body={"text": f"answer {seq}"})


def _cpu_us(work: Callable[[], object]) -> float:
    began = time.process_time_ns()
    work()
    return (time.process_time_ns() - began) / 1000


def _build(shaper: Shaper, log: tuple[LogRecord, ...]) -> Built:
    built = shaper.build(log, system="Be brief.")
    if not isinstance(built, Built):
        raise Unmeasured("a request without a budget asked for a fold")
    return built


def _build_growth(options: Options) -> Result:
    """What an entry costs when a request is built from nothing, at the end of a long log by at that of a shorter one."""
    logs = [entries(size) for size in SIZES]
    costs: list[list[float]] = [[] for _ in SIZES]
    for _ in range(options.engine_pairs):
        for log, found in zip(logs, costs, strict=True):
            repeats = max(1, 2_000 // len(log))
            found.append(sum(_cpu_us(lambda log=log: _build(Shaper(), log)) for _ in range(repeats)) / repeats / len(log))
    _, middle, last = costs
    ratio = median(b / a for a, b in zip(middle, last, strict=True))
    return Result(
        "engine_build_growth", ratio, more={f"us_per_entry_at_{size}": tidy(median(c)) for size, c in zip(SIZES, costs, strict=True)}
    )


def _build_again(options: Options) -> Result:
    """What a later step's request costs, with one exchange new, as a part of building it from nothing."""
    shares: dict[int, list[float]] = {size: [] for size in SIZES}
    costs: dict[int, list[float]] = {size: [] for size in SIZES}
    for _ in range(options.engine_pairs):
        for size in SIZES:
            log = entries(size + EXCHANGE)
            shaper = Shaper()
            _build(shaper, log[:size])
            whole = _cpu_us(lambda log=log: _build(Shaper(), log))
            again = _cpu_us(lambda shaper=shaper, log=log: _build(shaper, log))
            shares[size].append(again / whole)
            costs[size].append(again)
    more = {f"us_at_{size}": tidy(median(found)) for size, found in costs.items()}
    return Result("engine_build_again", median(shares[SIZES[-1]]), more=more)


# -- a step -----------------------------------------------------------------------------------------------------------


class _Caller:
    """A model that calls one tool and then says a word."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Done]:
        if request.messages[-1]["role"] == "user":
            yield Done("", (AskedCall("p1", "read", '{"path":"a.txt"}'),), {"input_tokens": 1, "output_tokens": 1}, "tool_calls")
        else:
            yield Done("done", (), {"input_tokens": 1, "output_tokens": 1}, "stop")


async def _run(_view: TurnView, _call: RunTool) -> ToolResult:
    return ToolResult("the content")


async def _instruct(_view: TurnView) -> str:
    return "Be brief."


@dataclass(slots=True)
class _Driven:
    """A session whose log is `length` long and of which `VISIBLE` entries are visible, and who drives it."""

    session: MemorySession
    store: MemoryStore
    performer: Performer
    table: ToolTable

    @classmethod
    def at(cls, length: int) -> _Driven:
        session = MemorySession(SystemClock(), {"agent": "a", "tenant": "default"})
        session.log = [replace(record, seq=seq) for seq, record in enumerate(entries(length - length % EXCHANGE), 1)]
        driven = cls(
            session,
            MemoryStore(session),
            Performer(Means([Model(_Caller(), "scripted")], _run, _instruct)),
            ToolTable(tools={"read": ToolFact()}),
        )
        driven.fold()
        return driven

    def fold(self) -> None:
        """Let a summary stand for all but the newest entries."""
        last = self.session.log[-1].seq
        upto = last - VISIBLE + 1
        body: dict[str, Any] = {
            "text": "all that was before",
            "at": 1,
            "spans": [[1, upto]],
            "count": upto,
            "before": 100,
            "after": 10,
            "more": False,
        }
        self.session.append(LogRecord(0, COMPACTION, body=body))

    async def turn(self) -> int:
        """Run a turn with a call; return how many steps it took."""
        await self.store.publish({"text": "go on"})
        view = await self.store.begin()
        if view is None:
            raise Unmeasured("the session in memory had no turn to take")
        steps = 0
        while not view.ended:
            effect, result = await self.performer.perform(view, next_effect(view, self.table))
            view = await self.store.commit(view, commit_after(view, effect, result=result, facts=self.table))
            steps += 1
        return steps


def _step_growth(options: Options) -> Result:
    """What a step costs in processor time at the end of a long log, by at that of a short one that shows as much."""
    return asyncio.run(_steps(options))


async def _steps(options: Options) -> Result:
    short, long = _Driven.at(SHORT_LOG), _Driven.at(LONG_LOG)
    costs: dict[int, list[float]] = {SHORT_LOG: [], LONG_LOG: []}
    ratios: list[float] = []
    for _ in range(options.engine_pairs * 4):
        for length, driven in ((SHORT_LOG, short), (LONG_LOG, long)):
            driven.fold()
            await driven.turn()  # what a fold makes new is not part of a step
            began, steps = time.process_time_ns(), 0
            for _ in range(5):
                steps += await driven.turn()
            costs[length].append((time.process_time_ns() - began) / 1000 / steps)
        ratios.append(costs[LONG_LOG][-1] / costs[SHORT_LOG][-1])
    more = {f"us_per_step_at_{length}": tidy(median(found)) for length, found in costs.items()}
    return Result("engine_step_growth", median(ratios), more=more)


# -- an import --------------------------------------------------------------------------------------------------------

IMPORTS = {
    "engine": "import turnyard.engine",
    "kernel": "import turnyard.engine.turn",
    "local_session": "import turnyard.engine.local",
    "agent": "from turnyard import Agent",
    "pydantic": "import pydantic",
    "pydantic_model": "from pydantic import BaseModel",
    "python": "pass",
}


def _import(options: Options) -> Result:
    """What importing the engine costs in processor time, by what importing pydantic does; of new processes with compiled sources."""
    spent: dict[str, list[float]] = {name: [] for name in IMPORTS}
    with tempfile.TemporaryDirectory() as cache:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"PYTHONPYCACHEPREFIX": cache, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
        for at in range(options.engine_pairs + 1):
            for name, code in IMPORTS.items():
                took = _child_cpu_s(code, environment)
                if at:  # the first one compiles
                    spent[name].append(took)
    ratio = median(a / b for a, b in zip(spent["kernel"], spent["pydantic"], strict=True))
    return Result("engine_import", ratio, more={f"{name}_ms": tidy(median(found) * 1000) for name, found in spent.items()})


def _child_cpu_s(code: str, environment: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
