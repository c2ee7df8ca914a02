"""Do the sources pass the quick half of `make check`?

Types take too long to be asked by every test run; format, lint and import directions do not.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
SOURCES = ("turnyard", "dispatcher", "workers", "platforms", "tests", "benches", "examples", "hatch_build.py")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("ruff", "format", "--check", "--quiet"), id="format"),
        pytest.param(("ruff", "check", "--quiet"), id="lint"),
    ],
)
def test_the_sources_have_the_one_form(root: Path, command: tuple[str, ...]) -> None:
    present = [name for name in SOURCES if (root / name).exists()]
    done = subprocess.run([BIN / command[0], *command[1:], *present], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_imports_point_the_one_way(root: Path) -> None:
    done = subprocess.run([BIN / "lint-imports"], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
