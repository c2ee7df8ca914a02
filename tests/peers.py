"""Other people's servers to test against, in environments of their own: what they need cannot live with what we need.

An environment is made once per clone, by the first test that asks for it, and kept in `.peers/`. Without a package index
the tests that need it are skipped, by name.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

PEERS = Path(__file__).resolve().parent.parent / ".peers"
_PATIENCE_S = 240


def peer_python(*requirements: str) -> str:
    """Return a Python that has these packages; skip the test where they cannot be installed."""
    with _home(sys.version, *requirements) as (home, ready):
        if not ready.exists():
            _run([sys.executable, "-m", "venv", str(home)], requirements)
            _run(
                [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements],
                requirements,
            )
            ready.touch()
    return str(home / "bin" / "python")


def peer_node(package: str, program: str) -> list[str]:
    """Return the command of a program of a package for Node; skip the test where there is no Node, or it cannot be installed."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip(f"no Node on this machine to run {package} with")
    with _home(package) as (home, ready):
        if not ready.exists():
            home.mkdir()
            _run([npm, "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(home), package], (package,))
            ready.touch()
    return [node, str(home / "node_modules" / program)]


@contextmanager
def _home(*what: str) -> Generator[tuple[Path, Path]]:
    """Hold a directory for these packages, and the file that says that all is in it; what was left half done is gone."""
    home = PEERS / hashlib.sha256(" ".join(what).encode()).hexdigest()[:16]
    ready = home / ".ready"
    PEERS.mkdir(exist_ok=True)
    with (PEERS / f"{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            shutil.rmtree(home, ignore_errors=True)
        yield home, ready


def _run(command: list[str], requirements: tuple[str, ...]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"no environment with {', '.join(requirements)}: it took longer than {_PATIENCE_S} s")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no word of why"])[-1]
        pytest.skip(f"no environment with {', '.join(requirements)}: {last}")
