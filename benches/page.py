"""How the rows are shown: a table for the terminal, and the one for docs/performance.md."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benches.results import Result, tidy
from turnyard.state.binaries import find_server

HEADINGS = ("row", "measured", "goal", "", "floor", "of floor", "arq", "arq tuned", "more")


@dataclass(frozen=True, slots=True)
class Machine:
    """Where and when it was measured. A load above the cores says that others used the machine, too."""

    cores: int
    cpu: str
    python: str
    server: str
    commit: str
    load_before: tuple[float, float, float]
    load_after: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @classmethod
    def now(cls) -> Machine:
        """Look at this machine before a run."""
        binary = find_server()
        return cls(
            os.cpu_count() or 0, _cpu(), platform.python_version(), binary.path.name if binary else "none", _commit(), os.getloadavg()
        )

    def after(self) -> Machine:
        """Look again after the run."""
        return replace(self, load_after=os.getloadavg())

    def __str__(self) -> str:
        load = f"load average {self.load_before[0]:.1f} before and {self.load_after[0]:.1f} after"
        return f"{self.cores} cores ({self.cpu}), Python {self.python}, {self.server}, commit {self.commit}; {load}"


def print_table(results: Sequence[Result], machine: Machine) -> None:
    """Print the rows for people."""
    table = Table(title="Turnyard, beside its floor and arq", caption=f"{machine}. Ratios of one run say more than numbers.")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in ("row", "", "more") else "right")
    for row in results:
        table.add_row(*_cells(row))
    Console(width=None if os.isatty(1) else 160).print(table)


def as_markdown(results: Sequence[Result], machine: Machine) -> str:
    """Return the rows as the table of docs/performance.md."""
    lines = [f"{machine}.", "", "| " + " | ".join(HEADINGS) + " |", "|---|--:|--:|---|--:|--:|--:|--:|---|"]
    for row in results:
        name, *cells = _cells(row)
        lines.append("| " + " | ".join([f"`{name}`", *cells]) + " |")
    return "\n".join(lines)


def _cells(row: Result) -> list[str]:
    sign = "≥" if row.goal.better == "higher" else "≤"
    more = "; ".join(f"{name} {_shown(value)}" for name, value in row.more.items())
    return [
        row.name,
        f"{_number(row.value)} {row.goal.unit}",
        f"{sign} {_number(row.goal.value)}",
        "met" if row.met else "missed",
        _number(row.floor),
        f"{row.ratio:.2f}" if row.ratio is not None else "",
        _number(row.rival.get("arq")),
        _number(row.rival.get("arq_tuned")),
        "; ".join(filter(None, (row.broken, more))),
    ]


def _number(value: float | None) -> str:
    return "" if value is None else f"{tidy(value):,}".removesuffix(".0")


def _shown(value: object) -> str:
    if isinstance(value, list):
        return " ".join(_shown(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(item)}" for name, item in value.items())
    return _number(value) if isinstance(value, int | float) else str(value)


def _cpu() -> str:
    path = Path("/proc/cpuinfo")
    names = (
        [line.partition(":")[2].strip() for line in path.read_text().splitlines() if line.startswith("model name")] if path.exists() else []
    )
    return names[0] if names else platform.machine()


def _commit() -> str:
    root = Path(__file__).resolve().parent
    done = subprocess.run(["git", "describe", "--always", "--dirty=+"], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
