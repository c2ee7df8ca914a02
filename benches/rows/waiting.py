"""What do calls cost while they wait outside, and how soon does the model hear of one that is done?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager

import uvloop

from benches.load import Submitter, submitter
from benches.options import Options
from benches.results import Result, Unmeasured, percentile, tidy
from benches.stack import Stack, cpu_s, descendants, yard
from benches.stamps import marked, read_stamps
from turnyard.records.ids import session_key
from turnyard.state.ingress import accept_outcome
from turnyard.state.sessions import read_session
from turnyard.state.yard import Yard

QUANTILES = {"completion_to_model_p50_ms": 0.5, "completion_to_model_p99_ms": 0.99}
NAMES = (*QUANTILES, "parked_worker_cpu_ms_per_s")
AGENT = "parking"
SESSIONS = 100
SETTLE_S = 3.0  # what starting processes, or turns that ended, leave to be done is done by then
EACH = 50  # calls that one session may leave waiting


def measure(options: Options, wanted: AbstractSet[str]) -> list[Result]:
    """Measure the wanted ones, each on a deployment of its own."""
    rows: list[Result] = []
    if wanted & set(QUANTILES):
        rows += [row for row in _completions(options) if row.name in wanted]
    if "parked_worker_cpu_ms_per_s" in wanted:
        rows.append(_idle(options))
    return rows


def _completions(options: Options) -> list[Result]:
    with yard() as stack:
        told = uvloop.run(_complete(stack.url, per_s=options.latency_per_s, seconds=options.latency_s))
        started = {stamp.message: stamp.at_ns for stamp in read_stamps(stack.stamps) if stamp.what == "start"}
    missing = [n for n in told if n not in started]
    if missing:
        raise Unmeasured(f"{len(missing)} of {len(told)} outcomes have no stamp of the model call that reads them")
    waited_ms = [(started[n] - at_ns) / 1e6 for n, at_ns in told.items()]
    more = {"outcomes": len(waited_ms), "max_ms": tidy(max(waited_ms))}
    return [Result(name, percentile(waited_ms, q), more=more) for name, q in QUANTILES.items()]


async def _complete(url: str, *, per_s: float, seconds: float) -> dict[int, int]:
    """Park calls, then answer them by the clock; return when each answer was given, by the number it carries."""
    count = int(per_s * seconds)
    told: dict[int, int] = {}
    async with submitter(url, AGENT) as submit:
        await _park(submit, count, sessions=SESSIONS)
        async with _opened(url) as yard_:
            calls = await _parked(yard_, count)
            began = time.monotonic()
            async with asyncio.TaskGroup() as group:
                for n, (store, call) in enumerate(calls, start=count):
                    await asyncio.sleep(max(0.0, began + (n - count) / per_s - time.monotonic()))
                    told[n] = time.monotonic_ns()
                    body = {"content": marked(n), "is_error": False}
                    answer = accept_outcome(yard_, shard=0, store=store, call=call, outcome="result", body=body, secret_hash=None)
                    group.create_task(answer)
            await asyncio.sleep(1)  # the last ones are to be read, too
    return told


@asynccontextmanager
async def _opened(url: str) -> AsyncGenerator[Yard]:
    yard_ = await Yard.open(url)
    try:
        yield yard_
    finally:
        await yard_.aclose()


async def _park(submit: Submitter, count: int, *, sessions: int) -> None:
    """Have each session leave its share of `count` calls waiting."""

    async def one(session: int) -> None:
        for n in range(session, count, sessions):
            await submit.ask(f"{AGENT}-{session}", marked(n))

    async with asyncio.TaskGroup() as group:
        for session in range(sessions):
            group.create_task(one(session))


async def _parked(yard_: Yard, count: int) -> list[tuple[str, str]]:
    """Return store and call of what waits, in turns over the sessions."""
    found: list[list[tuple[str, str]]] = []
    for session in range(min(SESSIONS, count)):
        name = f"{AGENT}-{session}"
        seen = await read_session(yard_, tenant="default", session=name)
        store = f"{session_key('default', name)}.0"
        found.append([(store, call.call) for call in (seen.parked if seen else ())])
    calls = [of[i] for i in range(max(map(len, found))) for of in found if i < len(of)]
    if len(calls) < count:
        raise Unmeasured(f"{len(calls)} calls wait where {count} should")
    return calls


def _idle(options: Options) -> Result:
    """Measure what the workers use beside so many waiting calls, beyond what they use beside none."""
    with yard() as stack:
        time.sleep(SETTLE_S)
        before = _used_ms_per_s(stack, options.idle_s)
        uvloop.run(_leave(stack.url, options.waiting_calls))
        after = _used_ms_per_s(stack, options.idle_s)
    more = {"calls": options.waiting_calls, "idle": tidy(before), "with_calls": tidy(after)}
    return Result("parked_worker_cpu_ms_per_s", max(0.0, after - before), more=more)


async def _leave(url: str, count: int) -> None:
    async with submitter(url, AGENT) as submit:
        await _park(submit, count, sessions=max(1, count // EACH))
    await asyncio.sleep(SETTLE_S)


def _used_ms_per_s(stack: Stack, seconds: float) -> float:
    pids = [
        pid for name, process in stack.processes.items() if name.startswith("worker") for pid in (process.pid, *descendants(process.pid))
    ]
    began, used_s = time.monotonic(), cpu_s(pids)
    time.sleep(seconds)
    return (cpu_s(pids) - used_s) * 1000 / (time.monotonic() - began)
