"""Which promises of docs/acceptance.md do the tests prove?

A row is proven when at least one test marked with its id passed and none failed. An id that is not on the page fails its
test. The marks travel in `user_properties`, so that the controller of a parallel run sees what its workers ran.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

FAMILIES = ("turn", "runner", "I", "S", "L", "rival", "trap")
_ROW = re.compile(r"^\| (?P<id>(?:(?:turn|runner|rival|trap)-|[ISL])\d+) \| (?P<promise>.+) \|$")
_PROPERTY = "spec"


def family(row: str) -> str:
    """Return the family of a row's id: `turn` of `turn-34`, `L` of `L07`."""
    return row.split("-")[0] if "-" in row else row[0]


def promised(acceptance: Path) -> dict[str, str]:
    """Read the page: the promise of each row by its id, in the page's order.

    Raises:
        ValueError: an id stands there twice.
    """
    rows: dict[str, str] = {}
    for line in acceptance.read_text(encoding="utf-8").splitlines():
        if match := _ROW.match(line):
            if match["id"] in rows:
                raise ValueError(f"{acceptance.name}: {match['id']} stands there twice")
            rows[match["id"]] = match["promise"]
    return rows


def spans(rows: Iterable[str]) -> str:
    """Write ids of one family briefly: `1-3 7`."""
    numbers = sorted(int(re.sub(r"\D", "", row)) for row in rows)
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return " ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


class SpecReport:
    """Collects what marked tests did and tells it at the end."""

    def __init__(self, acceptance: Path, *, json_path: Path | None = None, show_missing: bool = False) -> None:
        self._rows = promised(acceptance)
        self._page = acceptance.name
        self._json_path = json_path
        self._show_missing = show_missing or json_path is not None
        self._passed: set[str] = set()
        self._failed: set[str] = set()

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        ids = [str(row) for mark in item.iter_markers("spec") for row in mark.args]
        if ids:
            item.user_properties.append((_PROPERTY, ids))

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        unknown = [row for row in _marked(item.user_properties) if row not in self._rows]
        if unknown:
            pytest.fail(f"{item.nodeid}: {', '.join(unknown)} is not a row of {self._page}; correct the mark or add the row", pytrace=False)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        ids = _marked(report.user_properties)
        if report.failed:
            self._failed.update(ids)
        elif report.when == "call" and report.passed:
            self._passed.update(ids)

    def result(self) -> dict[str, dict[str, list[str]]]:
        """Return the proven and the missing ids of each family, in the page's order."""
        proven = self._passed - self._failed
        found: dict[str, dict[str, list[str]]] = {name: {"proven": [], "missing": []} for name in FAMILIES}
        for row in self._rows:
            found[family(row)]["proven" if row in proven else "missing"].append(row)
        return found

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._json_path:
            self._json_path.write_text(json.dumps(self.result(), indent=1) + "\n", encoding="utf-8")
        if not (self._passed or self._failed or self._show_missing):
            return
        terminalreporter.section(f"rows of {self._page} proven")
        for name, rows in self.result().items():
            total = len(rows["proven"]) + len(rows["missing"])
            missing = f"   missing: {spans(rows['missing'])}" if self._show_missing and rows["missing"] else ""
            terminalreporter.line(f"{name:>7} {len(rows['proven']):>3}/{total}{missing}")


def _marked(properties: Sequence[tuple[str, object]]) -> list[str]:
    return [row for name, rows in properties if name == _PROPERTY and isinstance(rows, list) for row in rows]
