"""Do the docs speak of things that exist?"""

from __future__ import annotations

import ast
import re
from pathlib import Path

TEST_NAME = re.compile(r"`(?:tests/[\w/]+\.py::)?(test_\w+)`")
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")


def pages(root: Path) -> list[Path]:
    return [root / name for name in PAGES] + sorted((root / "docs").rglob("*.md"))


def names_in_tests(root: Path) -> set[str]:
    names: set[str] = set()
    for path in (root / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Assign):
                names.update(target.id for target in node.targets if isinstance(target, ast.Name))
        names.add(path.stem)
    return names


def test_every_test_that_a_page_names_exists(root: Path) -> None:
    known = names_in_tests(root)
    unknown = [
        f"{page.name}: {name}" for page in pages(root) for name in TEST_NAME.findall(page.read_text(encoding="utf-8")) if name not in known
    ]
    assert unknown == []


def test_every_failure_window_names_a_test_or_says_that_none_proves_it_yet(root: Path) -> None:
    windows = [
        line for line in (root / "docs" / "guarantees.md").read_text(encoding="utf-8").splitlines() if re.match(r"^\| W\d+ \|", line)
    ]
    assert len(windows) > 20
    assert [line for line in windows if not TEST_NAME.search(line) and "not yet proven" not in line] == []


def test_every_link_between_pages_leads_somewhere(root: Path) -> None:
    broken = [
        f"{page.name}: {target}"
        for page in pages(root)
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []
