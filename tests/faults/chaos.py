"""`python -m tests.faults.chaos --seconds N [--seed N]`: real processes, a seeded nemesis, and the oracles at the end.

Load and faults run for the given time; then the faults stop, everything that was killed or frozen goes on, and the
deployment must come to rest within `DRAIN_S`. What a run broke is printed, with the command that runs its seed again;
its data and histories stay in the directory that is named.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.cluster import Cluster
from tests.faults.drained import Rest, at_rest, read_ending, stuck
from tests.faults.history import Journal, events, read_history
from tests.faults.load import SESSIONS, TENANTS
from tests.faults.nemesis import LEASE_S, Nemesis, schedule
from tests.faults.observer import Observer
from tests.faults.sometimes import SOMETIMES, count
from tests.faults.watch import Watch
from turnyard.records.ids import session_key
from turnyard.state.oracles.history import Verdict, judge

DRAIN_S = 30.0
LOAD_S = 60.0  # what a load may need to hear the answers to all it has said, once faults have stopped
SLACK_S = 0.5
START_S = 120.0
USUAL_START_S = 5.0  # a start that takes longer says that others use this machine, too; then bounds stretch with it
STILL_S = 1.0
APPROVED = ("pay", "ship", "doubt")  # of the app's tools
_TURN_S = 0.02
_LOOK_S = 0.2


@dataclass
class Outcome:
    """What one seed came to."""

    seed: int
    directory: Path
    verdict: Verdict = field(default_factory=Verdict)
    broken: list[str] = field(default_factory=list[str])
    drained_s: float | None = None
    slowness: float = 1.0
    messages: int = 0
    faults: int = 0
    counts: Counter[str] = field(default_factory=Counter[str])

    @property
    def good(self) -> bool:
        """Tell whether nothing was broken and all came to rest."""
        return self.verdict.clean and not self.broken and self.drained_s is not None

    def report(self) -> str:
        """Return the two lines that a run ends with, and what was broken."""
        sometimes = " ".join(f"{name}={self.counts[name]}" for name in SOMETIMES)
        drained = "never" if self.drained_s is None else f"{self.drained_s:.1f}"
        lines = [self.verdict.line(), f"drained_s={drained} messages={self.messages} faults={self.faults} sometimes: {sometimes}"]
        for name in self.verdict.__slots__:
            lines += [f"  {name}: {what}" for what in getattr(self.verdict, name)[:20]]
        return "\n".join([*lines, *(f"  {what}" for what in self.broken[:40])])


def run_seed(seed: int, seconds: float, directory: Path) -> Outcome:
    """Run one seed in a directory that is empty."""
    outcome = Outcome(seed, directory)
    book = Journal(directory / "history", "nemesis")
    sessions = {session_key(tenant, f"s{i}"): f"{tenant}/s{i}" for tenant in TENANTS for i in range(SESSIONS)}
    with Cluster(directory, seed, seconds) as cluster:
        nemesis = Nemesis(cluster, schedule(seed, seconds), book.note)
        observer = Observer(Journal(directory / "history", "proxy").note, sessions, nemesis.hook)
        cluster.proxy.hook = observer
        outcome.slowness = _begin(cluster)
        watch = Watch(cluster, list(sessions))
        _storm(cluster, nemesis, watch, seconds)
        _drain(cluster, outcome, book)
        outcome.faults = nemesis.done
        outcome.counts.update(observer.counts)
        outcome.counts["amnesty"] = len(watch.amnesties - {b"0"})
        outcome.broken += sorted(watch.findings)
        _judge(cluster, outcome)
    return outcome


def _begin(cluster: Cluster) -> float:
    """Wait until all processes are there, then let the load begin; return how many times slower than usual this machine is."""
    started_s = time.monotonic()
    while not cluster.ready():
        assert time.monotonic() - started_s < START_S, f"the deployment did not start: see {cluster.directory}"
        time.sleep(0.05)
    (cluster.directory / "go").touch()
    return max(1.0, (time.monotonic() - started_s) / USUAL_START_S)


def _storm(cluster: Cluster, nemesis: Nemesis, watch: Watch, seconds: float) -> None:
    """Let faults strike until the time is over, and look at what must hold meanwhile."""
    started = time.monotonic()
    looked_s = 0.0
    while (now_s := time.monotonic() - started) < seconds:
        nemesis.work(now_s)
        if now_s - looked_s > _LOOK_S:
            looked_s = now_s
            cluster.heal()
            watch.look()
        time.sleep(_TURN_S)
    nemesis.stop()
    cluster.calm()


def _drain(cluster: Cluster, outcome: Outcome, book: Journal) -> None:
    """Wait until the load has all its answers, then until all is at rest; say what is stuck when that takes too long."""
    calm_s = time.monotonic()
    while not cluster.loaded() and time.monotonic() - calm_s < LOAD_S * outcome.slowness:
        cluster.heal()
        time.sleep(0.1)
    if not cluster.loaded():
        outcome.broken.append("the load did not hear all its answers")
    loaded_s = time.monotonic()
    rest = Rest(["not looked yet"])
    while time.monotonic() - loaded_s < DRAIN_S * outcome.slowness + STILL_S:
        cluster.heal()
        before, rest = rest, asyncio.run(at_rest(cluster.direct_url))
        book.note("moving", what_moves=rest.moving)
        if rest.since(before):
            outcome.drained_s = time.monotonic() - loaded_s - STILL_S
            return
        # A vendor's late answer may still wake somebody.
        time.sleep(STILL_S if not rest.moving else 0.2)
    outcome.broken += asyncio.run(stuck(cluster.direct_url, rest))


def _judge(cluster: Cluster, outcome: Outcome) -> None:
    found = list(events(cluster.directory))
    history = read_history(found)
    history = Rest.with_deliveries(history, cluster.directory / "delivered")
    ending, findings = asyncio.run(read_ending(cluster.direct_url, history))
    outcome.messages = sum(sent.code in ("accepted", "duplicate") for sent in history.sent)
    outcome.verdict = judge(history, ending, lease_s=LEASE_S + SLACK_S)
    outcome.broken += findings
    outcome.broken += _unallowed(found)
    outcome.broken += [f"a late commit passed: {e['session']} {e['rev']}" for e in found if e["what"] == "passed"]
    outcome.counts.update(count(ending))
    outcome.counts["dead_letter"] = cluster.ask("XLEN", cluster.keys.prefix + "dead") or 0


def _unallowed(found: Sequence[dict[str, Any]]) -> list[str]:
    """Return the calls that ran though people had to allow them, and nobody did."""
    allowed = {
        e["call"] for e in found if e["what"] == "decided" and e["word"] in ("allow", "edit") and e["code"] in ("accepted", "duplicate")
    }
    asked = [e for e in found if e["what"] == "ran" and e["tool"] in APPROVED]
    return [f"{e['tool']} {e['call']} ran and nobody allowed it" for e in asked if e["call"] not in allowed]


def main(argv: list[str] | None = None) -> int:
    """Run one seed, or several; 1 when anything was broken, or something that should happen sometimes never did."""
    given = _arguments(argv)
    totals: Counter[str] = Counter()
    seeds = [given.seed] if given.seed is not None else list(range(1, given.seeds + 1))
    failed = False
    for seed in seeds:
        directory = Path(tempfile.mkdtemp(prefix=f"ty-chaos-{seed}-"))
        outcome = run_seed(seed, given.seconds, directory)
        totals += outcome.counts
        print(f"seed={seed} {outcome.report()}", flush=True)
        if outcome.good and not given.keep:
            shutil.rmtree(directory, ignore_errors=True)
        elif outcome.good:
            print(f"data, logs and histories: {directory}")
        else:
            failed = True
            print(f"seed {seed} failed; data, logs and histories: {directory}; again: make chaos SECONDS={given.seconds:g} SEED={seed}")
    missing = [name for name in SOMETIMES if not totals[name]] if len(seeds) > 1 else []
    if missing:
        print(f"never happened: {', '.join(missing)}")
    return int(failed or bool(missing))


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos", description="Real processes under faults, judged by the oracles.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--keep", action="store_true", help="keep the directory of a good run, too")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
