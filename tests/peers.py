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
from pathlib import Path

import pytest

PEERS = Path(__file__).resolve().parent.parent / ".peers"
_PATIENCE_S = 240


def peer_python(*requirements: str) -> str:
    """Return a Python that has these packages; skip the test where they cannot be installed."""
    home = PEERS / hashlib.sha256(" ".join((sys.version, *requirements)).encode()).hexdigest()[:16]
    python, ready = home / "bin" / "python", home / ".ready"
    PEERS.mkdir(exist_ok=True)
    with (PEERS / f"{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            shutil.rmtree(home, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(home)], requirements)
            _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements], requirements)
            ready.touch()
    return str(python)


def _run(command: list[str], requirements: tuple[str, ...]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"no environment with {', '.join(requirements)}: it took longer than {_PATIENCE_S} s")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no word of why"])[-1]
        pytest.skip(f"no environment with {', '.join(requirements)}: {last}")
