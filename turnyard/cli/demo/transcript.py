"""How the demo shows what happens, while it happens: when, who, what.

It reads well on a narrow terminal and without one; what users and models say is text and never markup.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

    from turnyard.ports import Clock

_COLOURS = {"user": "cyan", "agent": "green", "tool": "yellow", "yard": "blue", "demo": "magenta"}


@dataclass(frozen=True, slots=True)
class Check:
    """One promise that was checked: whether it was kept, and what was seen."""

    promise: str
    kept: bool
    seen: str


class Transcript:
    """Writes lines of a live transcript, and remembers which promises were checked."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console = console
        self._clock = clock
        self._origin = clock.monotonic()
        self.checks: list[Check] = []

    @property
    def elapsed_s(self) -> float:
        """Return the seconds since the start, or since `restart`."""
        return self._clock.monotonic() - self._origin

    @property
    def broken(self) -> list[Check]:
        """Return the promises that were not kept."""
        return [check for check in self.checks if not check.kept]

    def restart(self) -> None:
        """Count time from here."""
        self._origin = self._clock.monotonic()

    def chapter(self, title: str) -> None:
        """Begin a part of the story."""
        self._console.print()
        self._console.rule(Text(title, style="bold"), align="left", style="dim")

    def line(self, who: str, text: str) -> None:
        """Show that somebody said or did something."""
        self._row(f"{self.elapsed_s:.1f}", Text(who, style=_COLOURS.get(who, "")), Text(text))

    def check(self, promise: str, kept: bool, *, seen: str) -> None:
        """Show and remember whether a promise was kept."""
        self.checks.append(Check(promise, kept, seen))
        mark = Text("✓", style="bold green") if kept else Text("✗", style="bold red")
        said = promise if kept else f"BROKEN: {promise}"
        self._row("", mark, Text.assemble((said, "bold"), (f": {seen}", "dim" if kept else "red")))

    def table(self, title: str, rows: Iterable[tuple[str, str]]) -> None:
        """Show names and values."""
        table = Table(title=title, title_justify="left", show_header=False)
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        for name, value in rows:
            table.add_row(Text(name), Text(value))
        self._console.print()
        self._console.print(table)

    def verdict(self) -> None:
        """Say how it ended, and name every promise that was broken."""
        broken = self.broken
        if not broken:
            self._console.print(Text(f"{len(self.checks)} promises were checked, and all were kept.", style="bold green"))
            return
        self._console.print(Text(f"{len(broken)} of {len(self.checks)} promises were broken:", style="bold red"))
        for check in broken:
            self._console.print(Text(f"  {check.promise}: {check.seen}", style="red"))

    def _row(self, when: str, who: Text, what: Text) -> None:
        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=5, justify="right", style="dim")
        grid.add_column(min_width=5)
        grid.add_column(ratio=1, overflow="fold")
        grid.add_row(when, who, what)
        self._console.print(grid)
