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
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from tests.faults.checks import Cost, findings
from tests.faults.deployment import Deployment
from tests.faults.golden import Golden
from tests.faults.points import MODES, Point, Watch, enumerate_points
from turnyard.state.fleet import list_workers
from turnyard.state.yard import Yard

READY_S = 20.0
RECORDED = 2


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
            await golden.run()
            while self._healing:
                self.tend()
                await asyncio.sleep(0.01)
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


async def record(sweep: Sweep) -> list[Point]:
    """Return the points that golden runs without harm have in common.

    Raises:
        AssertionError: a run without harm is not as it must be.
    """
    runs: list[list[str]] = []
    for _ in range(RECORDED):
        wrong = await sweep.run([])
        assert not wrong, f"a run without harm is wrong: {wrong}"
        runs.append(list(sweep.watch.seen))
    return enumerate_points(runs)


async def sweep_points(sweep: Sweep, points: Sequence[Point], *, verbose: bool) -> tuple[int, int]:
    """Run each point; return how many were reached and how many of those failed."""
    reached = failures = 0
    for point in points:
        started = time.monotonic()
        wrong = await sweep.run([point])
        if wrong is None:
            wrong = await sweep.run([point])
        if wrong is None:
            print(f"not reached: {point}")
            continue
        if verbose:
            print(f"{time.monotonic() - started:5.1f} s  {point}", flush=True)
        reached += 1
        failures += bool(wrong)
        if wrong:
            print(f"FAILED {point} ({time.monotonic() - started:.1f} s): {'; '.join(wrong)}\n  make sweep ONLY='{point}'", flush=True)
    return reached, failures


async def main(directory: Path, only: str | None, *, verbose: bool) -> int:
    """Sweep; return the exit code."""
    with Deployment(directory) as deployment:
        yard = await Yard.open(deployment.url)
        sweep = Sweep(deployment, yard)
        points = await record(sweep)
        if only:
            points = [point for point in points if fnmatch(str(point), only)] or [Point.parse(only)]
        reached, failures = await sweep_points(sweep, points, verbose=verbose)
        await yard.aclose()
    print(f"points={reached} failures={failures}")
    return 1 if failures else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Kill each process of a golden run at each of its commands, and check what is left.")
    parser.add_argument("--only", metavar="POINT", help="one point, or a pattern of them")
    parser.add_argument("--verbose", action="store_true", help="name each point as it is done")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sweep-") as folder:
        sys.exit(asyncio.run(main(Path(folder), given.only, verbose=given.verbose)))
