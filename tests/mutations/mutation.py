"""One rule taken out of the sources, and whether the tests named for it notice.

A mutation is applied to a copy of the tree, never to the tree itself. It is caught when pytest ran at least one of its tests
and one of them failed; tests that cannot be run, and texts that are no longer there, catch nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("turnyard", "dispatcher", "workers", "platforms", "tests", "benches", "docs", "pyproject.toml")
TIMEOUT_S = 120.0
_FAILED = re.compile(r"^(?:FAILED|ERROR) \S*?::(.+?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Edit:
    """`was`, wherever it stands in `file`, becomes `becomes`."""

    file: str
    was: str
    becomes: str

    def apply(self, root: Path) -> None:
        """Change the file below `root`; raise LookupError when it does not say what it should."""
        path = root / self.file
        text = path.read_text()
        if self.was not in text:
            raise LookupError(f"{self.file} no longer says {self.was!r}")
        path.write_text(text.replace(self.was, self.becomes))


@dataclass(frozen=True, slots=True)
class Mutation:
    """What is missing, how the sources look without it, and the pytest words for the tests that must turn red."""

    name: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]

    def caught_by(self) -> str | None:
        """Return the first test that failed without the rule, None when all passed.

        Raises LookupError when nothing could be shown: the text is gone, or no test ran.
        """
        with copied(self.edits) as copy:
            return _first_red(copy, self.tests)


def lua(name: str, was: str, becomes: str) -> Edit:
    """Return an edit of a script, or of a fragment when `name` starts with `lib/`."""
    return Edit(f"turnyard/state/lua/{name}.lua", was, becomes)


@contextlib.contextmanager
def copied(edits: Iterable[Edit], only: Iterable[str] = COPIED) -> Generator[Path]:
    """Copy the tree, or some of it, make the edits there, and give its root for the length of the block."""
    with tempfile.TemporaryDirectory(prefix="ty-mutant-") as name:
        copy = Path(name)
        for part in only:
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, copy / part)
        for edit in edits:
            edit.apply(copy)
        yield copy


def _first_red(copy: Path, tests: tuple[str, ...]) -> str | None:
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    try:
        done = subprocess.run(words, cwd=copy, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"{tests[0]}, which did not end"
    if done.returncode == 0:
        return None
    failed = _FAILED.search(done.stdout)
    if done.returncode != 1 or failed is None:
        raise LookupError(f"pytest {' '.join(tests)} showed nothing:\n{done.stdout[-1500:]}{done.stderr[-500:]}")
    return failed[1]
