"""`python -m tests.faults.sweep [--only POINT] [--verbose]`: every command of a golden run as a crash point.

A golden run without harm is recorded first. Then each point has a run of its own, with a fresh session on the same
deployment; what died is started again, and when all has come to rest the run is checked. One line per failure says how
to run just that point; the last line is `points=N failures=F`, and the exit code is 1 when F > 0.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from tests.faults.checks import Cost, findings
from tests.faults.deployment import Deployment
from tests.faults.golden import BOUND_S, Golden
from tests.faults.points import MODES, Plan, Point, Watch, name_of, parse_plan, plans_of, recoveries
from turnyard.state.audit import audit
from turnyard.state.fleet import list_workers
from turnyard.state.yard import Yard

READY_S = 20.0
RECORDED = 3
# Kills after which the recovery itself, with the start of what died, is swept.
RECOVERED = (
    "worker.child:commit#2:before",
    "worker:beat#1:after",
    "lifted.child:accept#1:before",
    "lifted:beat#1:after",
    "dispatcher:dispatch#1:after",
    "platform:exec#1:before",
    "sender:sent#1:before",
    "submitter:accept#1:before",
)
SLOW_BOUND_S = 90.0
_LOGS = 1000


@dataclass
class Sweep:
    """Runs points on one deployment."""

    deployment: Deployment
    yard: Yard
    runs: int = 0
    _healing: list[tuple[float, Point, int]] = field(default_factory=list[tuple[float, Point, int]])
    _seen: int = 0

    def __post_init__(self) -> None:
        self.watch = Watch(self.deployment)
        self.deployment.proxy.hook = self.watch

    async def ready(self) -> None:
        """Wait until every role is there and at work."""
        until = time.monotonic() + READY_S
        while not await self._all_there():
            if time.monotonic() > until:
                raise TimeoutError(f"not ready: {self._missing}")
            self.deployment.restart_dead()
            await asyncio.sleep(0.01)

    async def _all_there(self) -> bool:
        self._missing = [name for name, process in self.deployment.processes.items() if process.pid not in self.watch.active]
        roles = sorted(worker.role for worker in await list_workers(self.yard))
        if roles != ["lifted", "worker"]:
            self._missing.append(f"children {roles}")
        return not self._missing

    def tend(self) -> None:
        """Heal what is due and start again what died."""
        now = time.monotonic()
        for point, pid in self.watch.struck[self._seen :]:
            self._seen += 1
            self._healing.append((now + MODES[point.mode].heal_s, point, pid))
        for entry in [entry for entry in self._healing if entry[0] <= now]:
            self._healing.remove(entry)
            heal = MODES[entry[1].mode].heal
            if heal is not None:
                heal(self.deployment, entry[2])
        self.deployment.restart_dead()

    async def run(self, points: Sequence[Point]) -> list[str] | None:
        """Do one golden run with these faults in it; return what is wrong with it, None when a fault's moment did not come."""
        await self.ready()
        self.runs += 1
        self._seen = 0
        golden = Golden(self.deployment, self.yard, f"g{self.runs}x{time.time_ns() % 1_000_000}", self.tend)
        self.watch.begin(list(points))
        try:
            await golden.run(bound_s=SLOW_BOUND_S if self.deployment.proxy.delay_s else BOUND_S)
            while self._healing:
                self.tend()
                await asyncio.sleep(0.01)
            await self.ready()  # what died may be harmed once more while it starts
            wrong = await findings(golden, _cost(points))
        except TimeoutError as error:
            wrong = [str(error)]
        finally:
            self.watch.end()
            self._heal_all()
        return None if self.watch.plan and not wrong else wrong

    def _heal_all(self) -> None:
        for _, point, pid in self._healing:
            heal = MODES[point.mode].heal
            if heal is not None:
                heal(self.deployment, pid)
        self._healing.clear()


def _cost(points: Sequence[Point]) -> Cost:
    costs = [MODES[point.mode].cost for point in points]
    return Cost(sum(c.repeats for c in costs), sum(c.unknown for c in costs))


async def record(sweep: Sweep) -> list[Plan]:
    """Return what golden runs without harm have in common as plans, and those of what follows after a few first kills.

    Raises:
        AssertionError: a run without harm is not as it must be.
    """
    runs: list[list[str]] = []
    for _ in range(RECORDED):
        wrong = await sweep.run([])
        assert not wrong, f"a run without harm is wrong: {wrong}"
        runs.append(list(sweep.watch.seen))
    golden = [moment for moment in runs[0] if all(moment in run for run in runs)]
    plans = plans_of(golden)
    usual = [moment for run in runs[1:] for moment in run]  # the first one may hold what only a start does
    for first in map(Point.parse, RECOVERED):
        # A first kill that fails is a point of its own and is reported as such.
        await sweep.run([first])
        plans += recoveries(first, sweep.watch.seen, usual)
    return plans


@dataclass
class Score:
    """How many points were reached, and how many of them failed."""

    verbose: bool
    reached: int = 0
    failures: int = 0

    def add(self, name: str, wrong: list[str] | None, *, took_s: float) -> None:
        """Count a point, and say what is worth saying."""
        if wrong is None:
            print(f"not reached: {name}", flush=True)
            return
        self.reached += 1
        self.failures += bool(wrong)
        if wrong:
            print(f"FAILED {name} ({took_s:.1f} s): {'; '.join(wrong)}\n  make sweep ONLY='{name}'", flush=True)
        elif self.verbose:
            print(f"{took_s:5.1f} s  {name}", flush=True)


async def _take(sweep: Sweep, plans: deque[Plan], score: Score) -> None:
    while plans:
        plan, started = plans.popleft(), time.monotonic()
        wrong = await sweep.run(plan)
        if wrong is None:
            wrong = await sweep.run(plan)
        score.add(name_of(plan), wrong, took_s=time.monotonic() - started)
    wrong = [f"{found.session}: {found.invariant}: {found.detail}" for found in await audit(sweep.yard, logs=_LOGS)]
    if wrong:
        score.failures += 1
        print(f"FAILED the audit at the end: {'; '.join(wrong)}", flush=True)


def _chosen(plans: list[Plan], only: str | None) -> list[Plan]:
    """Return the points that a name or a pattern means; one that was not recorded may still be named."""
    if only is None:
        return plans
    chosen = [plan for plan in plans if fnmatch(name_of(plan), only)]
    try:
        return chosen or [parse_plan(only)]
    except ValueError as error:
        sys.exit(f"no point is called {only!r}, and it cannot be one: {error}")


async def main(directory: Path, only: str | None, *, jobs: int, verbose: bool) -> int:
    """Sweep with `jobs` deployments side by side; return the exit code."""
    score = Score(verbose)
    async with AsyncExitStack() as stack:
        sweeps: list[Sweep] = []
        for n in range(jobs):
            folder = directory / str(n)
            folder.mkdir()
            deployment = stack.enter_context(Deployment(folder))
            yard = await Yard.open(deployment.url)
            stack.push_async_callback(yard.aclose)
            sweeps.append(Sweep(deployment, yard))
        plans = deque(_chosen(await record(sweeps[0]), only))
        await asyncio.gather(*(_take(sweep, plans, score) for sweep in sweeps))
    print(f"points={score.reached} failures={score.failures}")
    return 1 if score.failures else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Kill each process of a golden run at each of its commands, and check what is left.")
    parser.add_argument("--only", metavar="POINT", help="a point, or a pattern of them")
    parser.add_argument("--jobs", type=int, default=3, metavar="N", help="deployments side by side (default: %(default)s)")
    parser.add_argument("--verbose", action="store_true", help="name each point as it is done")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sweep-") as folder:
        sys.exit(asyncio.run(main(Path(folder), given.only, jobs=given.jobs, verbose=given.verbose)))
